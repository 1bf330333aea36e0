"""Record: what a job has done, as frames, figures and sentences, for whoever has the log."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from workbench.engine.batch_plan import read_plan
from workbench.engine.drains import explain_drain, notifications_frame
from workbench.engine.startpoints import preview_startpoints
from workbench.errors import LogInUse, UnknownTask
from workbench.graph.stages import JobOutline
from workbench.names import SSP, task_index
from workbench.startpoints import Request, Startpoint
from workbench.systems.log import StreamLog
from workbench.telemetry.choices import choices_frame
from workbench.telemetry.drains import drains_frame
from workbench.telemetry.frames import (
    batches_frame,
    bookkeeping_frame,
    end_of_stream_frame,
    watermarks_frame,
)
from workbench.telemetry.recorder import BatchRecord, Recorder, RunRecord
from workbench.telemetry.tally import Tally

if TYPE_CHECKING:
    from workbench.engine.figures import Figures


class Record:
    """What a job recorded, as frames and figures. Needs the log only: no Spark, no code of the application."""

    def __init__(self, log: StreamLog, outline: JobOutline, recorder: Recorder) -> None:
        self.log = log
        self.outline = outline
        self._recorder = recorder
        self._batches: list[BatchRecord] = []
        self._tally = Tally(outline)
        self._reading = threading.Lock()

    @property
    def last_run(self) -> RunRecord:
        """The newest deployment: when it began and ended, its status, and its failure if it failed."""
        return self._recorder.runs()[-1]

    def is_held(self) -> bool:
        """Whether a living process runs the job."""
        try:
            self.log.lock(self.last_run.job).release()
        except LogInUse:
            return True
        return False

    def watermarks(self) -> pd.DataFrame:
        """Task × input stream × batch: the reconciled watermark and its state. See `telemetry.watermarks_frame`."""
        return watermarks_frame(self.outline, self._recorded())

    def end_of_stream(self) -> pd.DataFrame:
        """Task × input stream × upstream task: whether its end was heard, and when."""
        return end_of_stream_frame(self.outline, self._recorded())

    def batches(self) -> pd.DataFrame:
        """One row for each batch: messages in, out, late; rate; lowest watermark."""
        started = {run.run_id: run.started for run in self._recorder.runs()}
        return batches_frame(self.outline, self._recorded(), started)

    def drains(self) -> pd.DataFrame:
        """The newest drain, SSP by SSP: pending, heard from whom, drained when. See `telemetry.drains_frame`."""
        return drains_frame(
            self.outline, self._recorded(), self._recorder.open_rows(), self.last_run.plan["routing"]["drain"]
        )

    def choices(self) -> pd.DataFrame:
        """What the chooser took of which SSP, in which order, and why. See `telemetry.choices_frame`."""
        return choices_frame(self._recorded())

    def notifications(self) -> pd.DataFrame:
        """The drain notifications in the metadata store, and what this job makes of each. See `engine.drains`."""
        return notifications_frame(self.log.metadata, self.last_run.run_id)

    def preview_startpoints(self, more: Mapping[SSP, Startpoint] | Iterable[Request] = ()) -> pd.DataFrame:
        """What the next start would make of the startpoints there are, and of `more` as if they were written.

        One row for each startpoint and task: current and resolved offset, how many messages are `replayed` or `skipped`,
        and whether it applies. While a run is on, its position is that of its newest plan. See `startpoints.PreviewRow`.
        """
        return preview_startpoints(self.log, self.last_run.job, more)

    def explain_drain(self) -> list[str]:
        """In sentences, what a drain still waits for, stage by stage; empty if there is no drain or it is done."""
        return explain_drain(self.outline, self.drains(), self._unread())

    def bookkeeping(self, task: str | int | None = None) -> pd.DataFrame:
        """What a task ("Partition 2" or 2; None: all) has heard from whom. Raises `UnknownTask`."""
        kept = self._recorder.bookkeeping()
        if task is not None:
            index = task if isinstance(task, int) else task_index(task)
            if not 0 <= index < self.outline.tasks:
                raise UnknownTask.from_count(task, self.outline.tasks)
            kept = {index: kept.get(index, {})}
        return bookkeeping_frame(self.outline, kept)

    @cached_property
    def figures(self) -> Figures:
        """The same views as plotly figures: `run.figures.watermarks()` and so on."""
        from workbench.engine.figures import Figures

        return Figures(self)

    def __repr__(self) -> str:
        run = self.last_run
        return f"<record of {run.job!r}: {self._counted().batches} batches, run {run.run_id} {run.status}>"

    def totals(self) -> dict[str, int]:
        """Sums over all batches: `input_messages` counts the messages of source streams only."""
        tally = self._counted()
        return {
            "tasks": self.outline.tasks,
            "input_messages": tally.source_messages,
            "late_messages": tally.late_messages,
            "control_messages": tally.control_messages,
            "batches": tally.batches,
        }

    def _unread(self) -> dict[tuple[str, int], int]:
        """(stream, lane) → messages in intermediate streams that no committed batch has read."""
        directory = self._checkpoint_directory()
        plan = read_plan(directory, self._recorder.last_batch()) if directory is not None else None
        if plan is None:
            return {}
        found: dict[tuple[str, int], int] = {}
        for read in self.outline.inputs:
            if read.intermediate:
                heads = self.log.stream(read.stream).heads()
                for lane, (_, partition) in enumerate(read.lanes(self.outline.tasks)):
                    found[read.stream, lane] = heads[partition] - plan.positions[read.stream][lane]
        return found

    def _checkpoint_directory(self) -> Path | None:
        directory = self.last_run.plan.get("checkpoint")
        return None if directory is None else Path(directory)

    def _counted(self) -> Tally:
        with self._reading:
            self._tally.add(self._recorder.batches(self._tally.last_batch))
            return self._tally

    def _recorded(self) -> list[BatchRecord]:
        with self._reading:
            after = self._batches[-1].batch if self._batches else -1
            self._batches += self._recorder.batches(after)
            return list(self._batches)
