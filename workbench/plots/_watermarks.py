"""Watermark stairs: who is ahead, who is behind?"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from workbench.plots._labels import dates, drawable, label
from workbench.plots._stages import ACTIVE, FINISHED, HELD, IDLE, NAMES, UNKNOWN, Stage, stages
from workbench.plots._stairs import band, corners, points_per_line, stretch
from workbench.plots._theme import (
    OTHERS,
    QUIET,
    STATES,
    dress,
    facet_title,
    in_facet,
    nothing,
    task_colour,
    task_symbol,
)

Axis = Literal["batch", "time"]
"""What runs to the right: the number of the batch, or the wall-clock time of its commit."""

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
    shown: set[str] = set()
    for row, stage in enumerate(found, start=1):
        _facet(figure, stage, row, chosen[stage.name], points_per_line(lines), by, shown)
    _legend(figure, found, shown)
    anything = any(drawable(stage.watermark).any() for stage in found)
    figure.update_yaxes(matches="y", title_text="event time (UTC)" if anything else None, showticklabels=anything)
    for row in range(1, len(found) + 1):
        figure.update_yaxes(
            range=[0, 1], visible=False, fixedrange=True, matches=f"y{2 * row}", secondary_y=True, row=row, col=1
        )
    figure.update_yaxes(type="date", secondary_y=False)
    figure.update_xaxes(title_text="batch" if by == "batch" else "time of commit (UTC)", row=len(found), col=1)
    figure.update_xaxes(type="linear" if by == "batch" else "date")
    subtitle = "The watermark of every task after each batch; the broad grey line is the lowest of the stage."
    if beyond:
        subtitle += f" {beyond:,} beyond the year 9999 not drawn."
    return dress(figure, QUESTION, subtitle, plot_height)


def _slowest(stage: Stage) -> list[int]:
    """The columns to draw as lines: all, or of too many those that were the minimum in most batches."""
    if len(stage.tasks) <= MOST_LINES:
        return list(range(len(stage.tasks)))
    counts = np.bincount(stage.holder, minlength=len(stage.tasks))
    by_count = np.argsort(-counts, kind="stable")[:_SLOWEST]
    return sorted(int(column) for column in by_count if counts[column])


def _axis(stage: Stage, positions: NDArray[np.int64], by: Axis) -> list[Any]:
    return stage.batch[positions].tolist() if by == "batch" else dates(stage.time[positions])


def _facet(figure: go.Figure, stage: Stage, row: int, columns: list[int], most: int, by: Axis, shown: set[str]) -> None:
    # Each row has two y axes, the second for the stars; plotly counts them through.
    xaxis, yaxis = (f"x{row}" if row > 1 else "x"), (f"y{2 * row - 1}" if row > 1 else "y")
    if len(columns) < len(stage.tasks):
        _band(figure, stage, row, most, by, shown)
    _lowest(figure, stage, row, most, by, shown)
    for column in columns:
        _task(figure, stage, row, column, most, by, shown)
    _ends(figure, stage, row, by)
    figure.add_scatter(
        x=_axis(stage, np.array([0, len(stage.batch) - 1]), by), y=[None, None], showlegend=False, row=row, col=1
    )
    facet_title(figure, f"{label(stage.name, 60)}   <span style='color:{QUIET}'>{_summary(stage)}</span>", xaxis, yaxis)
    if not drawable(stage.watermark).any():
        ended = bool((stage.state[-1] == FINISHED).all())
        in_facet(figure, "finished without a watermark" if ended else "no watermark is known yet", xaxis, yaxis)


def _summary(stage: Stage) -> str:
    counts = np.bincount(stage.state[-1], minlength=len(NAMES))
    present = [f"{count} {STATES[name].words}" for name, count in zip(NAMES, counts.tolist(), strict=True) if count]
    return f"{len(stage.tasks)} task{'s' if len(stage.tasks) != 1 else ''}: {', '.join(present)}"


def _time_format(by: Axis) -> str:
    return "batch %{x}" if by == "batch" else "%{x|%Y-%m-%d %H:%M:%S}"


def _hover(what: str, by: Axis, note: str = "") -> str:
    return f"<b>{what}</b> · {_time_format(by)}<br>watermark %{{y|%Y-%m-%d %H:%M:%S}} UTC{note}<extra></extra>"


def _band(figure: go.Figure, stage: Stage, row: int, most: int, by: Axis, shown: set[str]) -> None:
    known = drawable(stage.watermark)
    numbers = stage.watermark.astype(np.int64)
    some = np.asarray(known.any(axis=1))
    low = np.where(known, numbers, np.iinfo(np.int64).max).min(axis=1)
    high = np.where(known, numbers, np.iinfo(np.int64).min).max(axis=1)
    parts = (
        np.array_split(np.arange(len(some)), most) if len(some) > most else [np.array([i]) for i in range(len(some))]
    )
    first = np.array([part[0] for part in parts])
    nat = np.iinfo(np.int64).min
    lows = np.array([low[part][some[part]].min() if some[part].any() else nat for part in parts])
    highs = np.array([high[part][some[part]].max() if some[part].any() else nat for part in parts])
    first[-1] = len(some) - 1
    x, y = band(_axis(stage, first, by), dates(lows.astype("datetime64[ms]")), dates(highs.astype("datetime64[ms]")))
    figure.add_scatter(
        x=x, y=y, mode="lines", fill="toself", fillcolor="rgba(68,119,170,0.16)", line={"width": 0}, hoverinfo="skip",
        name="from lowest to highest of all tasks", legendgroup="band", legendrank=2, showlegend="band" not in shown,
        row=row, col=1,
    )  # fmt: skip
    shown.add("band")


def _lowest(figure: go.Figure, stage: Stage, row: int, most: int, by: Axis, shown: set[str]) -> None:
    known = np.isin(stage.lowest_state, (ACTIVE, IDLE, HELD))
    positions = corners(stage.lowest, stage.lowest_state, most)
    x, y = stretch(_axis(stage, positions, by), dates(stage.lowest[positions]), known[positions])
    figure.add_scatter(
        x=x, y=y, mode="lines", line={"width": 8, "color": "rgba(31,41,51,0.22)", "shape": "hv"},
        hovertemplate=_hover("minimum over the tasks", by), name="minimum over the tasks", legendgroup="minimum",
        legendrank=1, showlegend="minimum" not in shown, row=row, col=1,
    )  # fmt: skip
    shown.add("minimum")


def _task(figure: go.Figure, stage: Stage, row: int, column: int, most: int, by: Axis, shown: set[str]) -> None:
    task, state = stage.tasks[column], stage.state[:, column]
    colour = task_colour(task)
    positions = corners(stage.watermark[:, column], state, most)
    x, y = _axis(stage, positions, by), dates(stage.watermark[positions, column])
    for code in (ACTIVE, IDLE, HELD):
        drawn = state[positions] == code
        if not drawn.any():
            continue
        look = STATES[NAMES[code]]
        xs, ys = stretch(x, y, drawn)
        figure.add_scatter(
            x=xs, y=ys, mode="lines+markers",
            line={"width": 1.8, "color": colour, "shape": "hv", "dash": look.dash},
            marker={"symbol": task_symbol(task), "size": 6, "color": colour, "maxdisplayed": 9},
            hovertemplate=_hover(label(task), by, "" if code == ACTIVE else f", {look.words}"),
            name=label(task), legendgroup=f"task {task}", showlegend=task not in shown, row=row, col=1,
        )  # fmt: skip
        shown.add(task)


def _ends(figure: go.Figure, stage: Stage, row: int, by: Axis) -> None:
    """Stars at the top edge, one for each batch in which tasks finished."""
    finished = np.asarray(stage.state == FINISHED)
    new: NDArray[np.bool_] = finished & ~np.vstack([np.zeros((1, finished.shape[1]), dtype=bool), finished[:-1]])
    positions = np.flatnonzero(new.any(axis=1))
    if not len(positions):
        return
    texts = []
    for position in positions.tolist():
        names = [label(stage.tasks[column]) for column in np.flatnonzero(new[position]).tolist()]
        more = f" and {len(names) - 6} more" if len(names) > 6 else ""
        total = int(finished[position].sum())
        texts.append(f"{', '.join(names[:6])}{more}<br>{total} of {len(stage.tasks)} tasks have finished")
    look = STATES["finished"]
    figure.add_scatter(
        x=_axis(stage, positions, by), y=[1.0] * len(positions), mode="markers", cliponaxis=False, customdata=texts,
        marker={"symbol": look.symbol, "size": 11, "color": look.colour, "line": {"width": 1, "color": "#ffffff"}},
        hovertemplate=f"<b>finished</b> · {_time_format(by)}<br>%{{customdata}}<extra></extra>", showlegend=False,
        row=row, col=1, secondary_y=True,
    )  # fmt: skip


def _legend(figure: go.Figure, found: list[Stage], shown: set[str]) -> None:
    """Say in the legend what dashes and stars mean, as far as they occur."""
    present = {int(code) for stage in found for code in np.unique(stage.state)}
    for code in (UNKNOWN, IDLE, HELD, FINISHED):
        if code not in present:
            continue
        look = STATES[NAMES[code]]
        words = f"{look.words} (no line)" if code == UNKNOWN else look.words
        lines = code in (IDLE, HELD)
        figure.add_scatter(
            x=[None], y=[None], mode="lines" if lines else "markers", hoverinfo="skip", name=words, legendrank=2000,
            line={"width": 1.8, "color": OTHERS, "dash": look.dash} if lines else None,
            marker=None if lines else {"symbol": look.symbol, "size": 10, "color": look.colour},
            row=1, col=1,
        )  # fmt: skip


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
