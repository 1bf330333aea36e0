"""The figures of a job's record: each is a plot of the frame of the same name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from workbench import plots

if TYPE_CHECKING:
    from workbench.engine.views import Record


class Figures:
    """`run.figures`: plotly figures of what has been recorded so far."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def watermarks(self) -> go.Figure:
        """How far has each task come?"""
        return plots.watermarks(self._record.watermarks())

    def who_holds_back(self) -> go.Figure:
        """Which task has the lowest watermark, and since when?"""
        return plots.who_holds_back(self._record.watermarks())

    def end_of_stream(self) -> go.Figure:
        """Who has heard the end from whom?"""
        return plots.end_of_stream(self._record.end_of_stream())

    def drains(self) -> go.Figure:
        """How far has the newest drain come, stage by stage?"""
        return plots.drains(self._record.drains())

    def choices(self) -> go.Figure:
        """Which input went first in each task, and why?"""
        return plots.choices(self._record.choices())

    def batches(self) -> go.Figure:
        """How fast does it go, batch by batch?"""
        return plots.batches(self._record.batches())

    def late_rows(self) -> go.Figure:
        """How many rows came too late, batch by batch?"""
        return plots.late_rows(self._record.batches())

    def bookkeeping(self, task: str | int | None = None) -> go.Figure:
        """What has each task heard from each upstream task?"""
        return plots.bookkeeping(self._record.bookkeeping(task))
