"""Watermark stairs: who is ahead, who is behind?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from workbench.plots._axes import Axis, axis_title, x_axis
from workbench.plots._labels import drawable, in_order
from workbench.plots._stage_facet import Facets
from workbench.plots._stages import ACTIVE, HELD, IDLE, NAMES, Stage, stages
from workbench.plots._stairs import points_per_line
from workbench.plots._theme import dress, nothing

QUESTION = "Who is ahead, who is behind?"
MOST_LINES = 12
"""A stage of more tasks is drawn as a band, with its slowest tasks as lines."""
_SLOWEST = 4
_FACET, _GAP = 220, 62


def watermarks(frame: pd.DataFrame, by: Axis = "batch") -> go.Figure:
    """Draw the watermark of every task after each batch, a facet per stage, from the frame `run.watermarks()`.

    Event time (UTC) runs upwards. The broad grey line is the minimum over the tasks of the stage. There is no line
    where a watermark is not yet known; it is dotted while idle, dashed while held; a star at the top edge marks a task
    that has finished, which is no time. Of more than `MOST_LINES` tasks the area between lowest and highest is shown,
    and the slowest as lines.

    Raises `UnknownColumn` if the frame is not one of watermarks.
    """
    found = stages(frame)
    if not found:
        return nothing(QUESTION)
    plot_height = len(found) * _FACET + (len(found) - 1) * _GAP
    figure = make_subplots(
        rows=len(found),
        shared_xaxes=True,
        vertical_spacing=_GAP / plot_height if len(found) > 1 else 0,
        specs=[[{"secondary_y": True}] for _ in found],
    )
    chosen = {stage.name: _slowest(stage) for stage in found}
    lines = sum(len(columns) + 3 for columns in chosen.values())
    beyond = sum(int((~np.isnat(stage.watermark) & ~drawable(stage.watermark)).sum()) for stage in found)
    ranks = {task: 10 + rank for rank, task in enumerate(in_order(task for stage in found for task in stage.tasks))}
    facets = Facets(figure, by, points_per_line(lines), ranks)
    for row, stage in enumerate(found, start=1):
        facets.draw(stage, row, chosen[stage.name])
    facets.legend(found)
    anything = any(drawable(stage.watermark).any() for stage in found)
    figure.update_yaxes(
        matches="y", title_text="event time (UTC)" if anything else None, showticklabels=anything, showgrid=anything
    )
    for row in range(1, len(found) + 1):
        figure.update_yaxes(
            range=[0, 1], visible=False, fixedrange=True, matches=f"y{2 * row}", secondary_y=True, row=row, col=1
        )
    figure.update_yaxes(type="date", secondary_y=False)
    figure.update_xaxes(title_text=axis_title(by), row=len(found), col=1)
    # Two y axes on a row make plotly leave room for labels of the second, which has none.
    figure.update_xaxes(**x_axis(by, found[0].batch), domain=[0, 1])
    subtitle = "The watermark of every task after each batch; the broad grey line is the lowest of the stage."
    if beyond:
        subtitle += f" {beyond:,} beyond the year 9999 not drawn."
    return dress(figure, QUESTION, subtitle, plot_height)


def _slowest(stage: Stage) -> list[int]:
    """The columns to draw as lines: all, or of too many those that were the minimum in most batches."""
    if len(stage.tasks) <= MOST_LINES:
        return list(range(len(stage.tasks)))
    timed = np.isin(stage.lowest_state, (ACTIVE, IDLE, HELD))
    counts = np.bincount(stage.holder[timed], minlength=len(stage.tasks))
    by_count = np.argsort(-counts, kind="stable")[:_SLOWEST]
    return sorted(int(column) for column in by_count if counts[column])


def watermarks_table(frame: pd.DataFrame) -> pd.DataFrame:
    """The text twin of `watermarks`: where every task of every stage is after the last batch, in task order.

    Columns: `stage`, `task`, `state`, `watermark` (UTC, NaT where the state has no time), `behind` (how far behind the
    furthest task of its stage; NaT without a watermark), `since_batch` (the first batch of which it is there).
    """
    columns: dict[str, list[Any]] = {
        name: [] for name in ("stage", "task", "state", "watermark", "behind", "since_batch")
    }
    for stage in stages(frame):
        newest = stage.watermark[-1][~np.isnat(stage.watermark[-1])]
        for column, task in enumerate(stage.tasks):
            watermark, state = stage.watermark[:, column], stage.state[:, column]
            same = (state == state[-1]) & ((watermark == watermark[-1]) | np.isnat(watermark[-1]))
            changes = np.flatnonzero(~same)
            columns["stage"].append(stage.name)
            columns["task"].append(task)
            columns["state"].append(NAMES[state[-1]])
            columns["watermark"].append(watermark[-1])
            columns["behind"].append(newest.max() - watermark[-1] if len(newest) else np.timedelta64("NaT", "ms"))
            columns["since_batch"].append(int(stage.batch[changes[-1] + 1 if len(changes) else 0]))
    return pd.DataFrame(
        {
            **{name: pd.Series(columns[name], dtype="object") for name in ("stage", "task", "state")},
            "watermark": pd.Series(np.array(columns["watermark"], dtype="datetime64[ms]")).dt.tz_localize("UTC"),
            "behind": np.array(columns["behind"], dtype="timedelta64[ms]"),
            "since_batch": pd.Series(columns["since_batch"], dtype="int64"),
        }
    )
