"""Who holds the watermark back, and since when?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plots._axes import Axis, axis_title, x_axis
from workbench.plots._labels import dates, duration, escaped, in_order, label, moment, task_number
from workbench.plots._stages import stages
from workbench.plots._stretches import MOST_STRETCHES, Stretch, bounded, stretches
from workbench.plots._theme import OTHERS, QUIET, STATES, dress, nothing, task_colour

QUESTION = "Who holds the watermark back?"
_MOST_TASKS = 11
_STRIP = 54
_WIDTH = 480
"""About how many pixels a strip has in a notebook; decides which names fit."""
_LEVEL, _OTHERS = "several tasks, level", "other tasks"
_STATES_ALONE = ("unknown", "finished")
"""States that are told without their tasks."""


def _group(stretch: Stretch, named: list[str]) -> str:
    """What stands for a stretch in the legend."""
    if stretch.state in _STATES_ALONE:
        return stretch.state
    if len(stretch.tasks) > 1:
        return _LEVEL
    return stretch.tasks[0] if stretch.tasks[0] in named else _OTHERS


def who_holds_back(frame: pd.DataFrame, by: Axis = "batch") -> go.Figure:
    """Draw a strip per stage, each stretch coloured by the task that is the minimum, from `run.watermarks()`.

    Dark grey is a stretch in which several tasks were level: they hold the stage back together, as when all wait for the
    same upstream task. Hatched is one whose task was idle or held; dotted grey is one in which a task had not yet
    reported, so that the stage had no watermark. Where a stage has several inputs, the one that is behind is named.

    Raises `UnknownColumn` if the frame is not one of watermarks.
    """
    found = stages(frame)
    if not found:
        return nothing(QUESTION)
    all_stretches = [stretches(stage) for stage in found]
    drawn = [bounded(strip) for strip in all_stretches]
    thinned = any(len(few) < len(many) for few, many in zip(drawn, all_stretches, strict=True))
    figure = go.Figure()
    batches: dict[str, int] = {}
    for stretch in (stretch for strip in drawn for stretch in strip):
        if stretch.state not in _STATES_ALONE and len(stretch.tasks) == 1:
            batches[stretch.tasks[0]] = batches.get(stretch.tasks[0], 0) + stretch.last - stretch.first + 1
    named = in_order(sorted(batches, key=lambda task: -batches[task])[:_MOST_TASKS])
    groups: dict[str, list[tuple[int, Stretch]]] = {}
    for row, strip in enumerate(drawn):
        for stretch in strip:
            groups.setdefault(_group(stretch, named), []).append((row, stretch))
    order = [*named, _OTHERS, _LEVEL, *_STATES_ALONE]
    for rank, key in enumerate(order):
        if key in groups:
            _bars(figure, key, rank, groups[key], by)
    states = {stretch.state for strip in drawn for stretch in strip}
    for state in ("idle", "held"):
        if state in states:
            figure.add_bar(
                x=[None], y=[None], name=STATES[state].words, legendrank=2000, hoverinfo="skip",
                marker={"color": OTHERS, "pattern": {"shape": STATES[state].pattern, "fillmode": "overlay", "fgcolor": "#ffffff"}},
            )  # fmt: skip
    figure.update_xaxes(title_text=axis_title(by), **x_axis(by, found[0].batch))
    figure.update_yaxes(
        tickvals=list(range(len(found))),
        ticktext=[label(stage.name, 34) for stage in found],
        range=[len(found) - 0.5, -0.5],
        showgrid=False,
        ticks="",
        tickfont={"size": 12},
    )
    figure.update_layout(bargap=0.25, barmode="overlay", showlegend=True)
    subtitle = "Each stretch is coloured by the task with the lowest watermark of its stage."
    if thinned:
        subtitle += f" Shortened to {MOST_STRETCHES} steps, each shown as its most frequent task."
    return dress(figure, QUESTION, subtitle, max(len(found) * _STRIP, 22 * (len(groups) + 2)))


def _bars(figure: go.Figure, key: str, rank: int, group: list[tuple[int, Stretch]], by: Axis) -> None:
    base: list[Any] = []
    width: list[float] = []
    text: list[str] = []
    hover: list[str] = []
    # The legend takes its pattern from the first bar.
    group = sorted(group, key=lambda member: member[1].state != "active")
    for _, stretch in group:
        stage = stretch.stage
        following = min(stretch.last + 1, len(stage.batch) - 1)
        if by == "batch":
            # A stretch reaches to where the next begins, also over batches that left no row.
            end = int(stage.batch[following]) if following > stretch.last else int(stage.batch[stretch.last]) + 1
            base.append(int(stage.batch[stretch.first]) - 0.5)
            width.append(end - int(stage.batch[stretch.first]))
        else:
            base += dates(stage.time[stretch.first : stretch.first + 1])
            width.append(float((stage.time[following] - stage.time[stretch.first]) / np.timedelta64(1, "ms")))
        words = STATES[stretch.state].words
        text.append(_fitting(stretch, words if key in STATES else None))
        hover.append(_words(stretch))
    state_only = key in STATES
    greys = {_OTHERS: OTHERS, _LEVEL: QUIET}
    colour = STATES[key].colour if state_only else greys[key] if key in greys else task_colour(key)
    figure.add_bar(
        orientation="h", base=base, x=width, y=[row for row, _ in group], text=text, customdata=hover,
        name=STATES[key].words if state_only else label(key), legendrank=rank,
        textposition="inside", insidetextanchor="middle", textangle=0, constraintext="none",
        textfont={"size": 11},
        marker={
            "color": colour,
            "line": {"width": 0.5, "color": "#ffffff"},
            "pattern": {
                "shape": [STATES[stretch.state].pattern if stretch.state != "finished" else "" for _, stretch in group],
                "fillmode": "overlay",
                "fgcolor": "#8b95a3" if key == "unknown" else "#ffffff",
                "size": 7,
                "solidity": 0.25,
            },
        },
        hovertemplate="%{customdata}<extra></extra>",
    )  # fmt: skip


def _fitting(stretch: Stretch, words: str | None) -> str:
    """What fits into the bar: the names of its tasks (or `words`) and of their input if there are several, else less."""
    pixels = _WIDTH * (stretch.last - stretch.first + 1) / len(stretch.stage.batch)
    names = [stretch.who if words is None else words]
    if words is None and len(stretch.stage.streams) > 1:
        names.insert(0, f"{names[0]}: {stretch.inputs}")
    if words is None and len(stretch.tasks) > 1:
        names.append(f"{len(stretch.tasks)} tasks")
    elif words is None and task_number(stretch.tasks[0]) is not None:
        names.append(str(task_number(stretch.tasks[0])))
    return next((escaped(name) for name in names if pixels >= 7 * len(name) + 8), "")


def _words(stretch: Stretch) -> str:
    """A stretch in words, for hovering."""
    stage = stretch.stage
    first, last = int(stage.batch[stretch.first]), int(stage.batch[stretch.last])
    when = f"batch {first:,}" if first == last else f"batches {first:,} to {last:,}"
    lines = [f"<b>{label(stretch.who, 60)}</b>: {STATES[stretch.state].words}", f"{label(stage.name, 60)}, {when}"]
    if stretch.inputs:
        lines.append(f"input {label(stretch.inputs, 60)}")
    if not np.isnat(stage.lowest[stretch.last]):
        lines.append(f"watermark {moment(stage.lowest[stretch.last])}")
    if np.isfinite(stretch.behind):
        lines.append(f"{duration(stretch.behind)} behind the next")
    return "<br>".join(lines)


def who_holds_back_table(frame: pd.DataFrame) -> pd.DataFrame:
    """The text twin of `who_holds_back`: every stretch in which the same tasks were the minimum, in order.

    Columns: `stage`, `task` (or `Partition 0, Partition 2`, `5 tasks`, `all tasks` where several are level), `stream` (the
    input, or inputs, in which they are behind; empty once all have finished), `state`, `from_batch`, `to_batch`, `since`
    (UTC, commit of the first of these batches), `watermark` (UTC, at the end of the stretch), `behind_next` (by how much
    it then was behind the next task; NaT where there is none).
    """
    found = [stretch for stage in stages(frame) for stretch in stretches(stage)]
    behind = [
        np.timedelta64(round(stretch.behind), "ms") if np.isfinite(stretch.behind) else np.timedelta64("NaT", "ms")
        for stretch in found
    ]
    since = np.array([stretch.stage.time[stretch.first] for stretch in found], dtype="datetime64[ms]")
    watermark = np.array([stretch.stage.lowest[stretch.last] for stretch in found], dtype="datetime64[ms]")
    return pd.DataFrame(
        {
            "stage": pd.Series([stretch.stage.name for stretch in found], dtype="object"),
            "task": pd.Series([stretch.who for stretch in found], dtype="object"),
            "stream": pd.Series([stretch.inputs for stretch in found], dtype="object"),
            "state": pd.Series([stretch.state for stretch in found], dtype="object"),
            "from_batch": pd.Series([int(s.stage.batch[s.first]) for s in found], dtype="int64"),
            "to_batch": pd.Series([int(s.stage.batch[s.last]) for s in found], dtype="int64"),
            "since": pd.Series(since).dt.tz_localize("UTC"),
            "watermark": pd.Series(watermark).dt.tz_localize("UTC"),
            "behind_next": np.array(behind, dtype="timedelta64[ms]"),
        }
    )
