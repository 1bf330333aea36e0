"""How far has the drain come?"""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from workbench.plots._drain_rows import ALL_HEARD, BEFORE, DRAINED, PARTLY, WAITING, WORDS, Drain, DrainStage, drain_of
from workbench.plots._labels import duration, label, moment
from workbench.plots._theme import (
    BOTTOM,
    CONTROL,
    INK,
    QUIET,
    STATES,
    TOP,
    StateLook,
    dress,
    facet_title,
    nothing,
)

QUESTION = "How far has the drain come?"
_GAP, _LEGEND, _MARGIN = 56, 44, 96
"""Pixels between stages, for the legend below all, and for what stands to the right of each row."""
_FEW = 16
"""Up to so many tasks, each row is named and counted; beyond, as many as fit."""
_LONG_WAIT = 4.0
"""A request that waited so many times longer than all the rest took is not drawn to scale."""
_LOOKS = {
    BEFORE: StateLook(QUIET, "line-ns-open", "solid", "", WORDS[BEFORE]),
    DRAINED: STATES["finished"],
    WAITING: StateLook("#D55E00", "circle", "solid", "/", WORDS[WAITING]),
    PARTLY: StateLook("#D55E00", "diamond", "solid", "/", WORDS[PARTLY]),
    ALL_HEARD: StateLook("#D55E00", "circle", "solid", "/", WORDS[ALL_HEARD]),
}
_HOLLOW = (WAITING, PARTLY)
_THICK = 0.72
"""How much of its row a bar fills."""
_UNITS = ((1_000.0, "seconds"), (60_000.0, "minutes"), (3_600_000.0, "hours"), (86_400_000.0, "days"))


class _Scale:
    """The time axis: in which unit, since when, from where to where."""

    def __init__(self, drain: Drain) -> None:
        took = drain.last_ms - drain.seen_ms
        self.from_seen = drain.seen_ms > _LONG_WAIT * max(took, 1_000.0)
        self.zero = drain.seen_ms if self.from_seen else 0.0
        span = max(drain.last_ms - self.zero, self.zero - drain.seen_ms, 1_000.0)
        self.unit, self.words = next((pair for pair in reversed(_UNITS) if span >= 2 * pair[0]), _UNITS[0])
        # Pending rows go on beyond all that is known: up to the edge, where their symbols stand.
        self.edge = self.at(drain.last_ms) + span / self.unit * (0.12 if drain.pending else 0.04)
        self.left = min(self.at(drain.seen_ms), 0.0) - (self.edge - min(self.at(drain.seen_ms), 0.0)) * 0.03

    def at(self, milliseconds: float) -> float:
        return (milliseconds - self.zero) / self.unit

    @property
    def title(self) -> str:
        return f"{self.words} since the drain was {'seen' if self.from_seen else 'requested'}"


def drains(frame: pd.DataFrame) -> go.Figure:
    """Draw the newest drain passing through stages and tasks, from `run.drains()`: a row for each task of each stage.

    A solid bar runs from when the drain was seen to when the task had drained (a star); a hatched one is still pending,
    and its symbol tells whether none, some or all of the markers have been heard. To the right of each row stands of how
    many upstream tasks the marker (or the end) was heard; "told" is a task to which another one passed that on. A tick is
    a task that had ended before. Raises `UnknownColumn` if the frame is not one of drains.
    """
    if frame.empty:
        return nothing(QUESTION, "no drain recorded yet" if "owed_by" in frame.columns else "nothing recorded yet")
    drain = drain_of(frame)
    scale = _Scale(drain)
    heights = [_height(len(stage.tasks)) for stage in drain.stages]
    plot_height = sum(heights) + _GAP * (len(heights) - 1)
    figure = make_subplots(
        rows=len(heights), row_heights=heights, shared_xaxes=True,
        vertical_spacing=_GAP / plot_height if len(heights) > 1 else 0,
    )  # fmt: skip
    for row, (stage, height) in enumerate(zip(drain.stages, heights, strict=True), start=1):
        _stage(figure, drain, stage, scale, row, height)
    _legend(figure, drain, scale)
    figure.update_xaxes(range=[scale.left, scale.edge], showgrid=True)
    figure.update_xaxes(title_text=scale.title, row=len(heights), col=1)
    dress(figure, QUESTION, _subtitle(drain, scale), plot_height)
    return figure.update_layout(
        height=plot_height + TOP + BOTTOM + _LEGEND,
        margin={"r": _MARGIN, "b": BOTTOM + _LEGEND},
        barmode="overlay",
        legend={
            "orientation": "h", "x": 0, "xanchor": "left", "yref": "container", "y": 0, "yanchor": "bottom",
            "itemclick": False, "itemdoubleclick": False,
        },
    )  # fmt: skip


def _height(tasks: int) -> int:
    return round(min(max(tasks * 24, 40), max(_FEW * 24, tasks * 6.5)))


def _stage(figure: go.Figure, drain: Drain, stage: DrainStage, scale: _Scale, row: int, height: int) -> None:
    axis = str(row) if row > 1 else ""
    every = np.arange(len(stage.tasks))
    pixels = height / len(stage.tasks)
    for state in np.unique(stage.state).tolist():
        _tasks(figure, drain, stage, scale, row, every[stage.state == state], state, pixels)
    # Above the bars, which are traces: shapes would be drawn below, or above the symbols too.
    for x, width, dash in _lines(drain, scale):
        figure.add_scatter(
            x=[x, x], y=[-0.5, len(stage.tasks) - 0.5], mode="lines", hoverinfo="skip", showlegend=False,
            line={"width": width, "color": CONTROL, "dash": dash}, row=row, col=1,
        )  # fmt: skip
    step = max(1, int(np.ceil(len(stage.tasks) * 13 / height)))
    figure.update_yaxes(
        range=[len(stage.tasks) - 0.5, -0.5], showgrid=False, tickmode="array", tickvals=every[::step].tolist(),
        ticktext=[label(stage.tasks[index], 24) for index in every[::step].tolist()], row=row, col=1,
    )  # fmt: skip
    for index in every[::step].tolist():
        pending, heard = stage.state[index] > DRAINED, _heard(stage, index)
        figure.add_annotation(
            text=f"<b>{heard}</b>" if pending else heard,
            xref=f"x{axis} domain", yref=f"y{axis}", x=1, y=index, xanchor="left", xshift=8, showarrow=False,
            font={"size": 11, "color": INK if pending else QUIET},
        )  # fmt: skip
    facet_title(
        figure,
        f"{label(stage.name, 60)}   <span style='color:{QUIET}'>{_summary(stage)}</span>",
        f"x{axis}",
        f"y{axis}",
    )
    if row == 1:
        figure.add_annotation(
            text="heard", xref=f"x{axis} domain", yref=f"y{axis} domain", x=1, y=1, xanchor="left", yanchor="bottom",
            xshift=8, yshift=8, showarrow=False, font={"size": 11, "color": QUIET},
        )  # fmt: skip


def _tasks(
    figure: go.Figure, drain: Drain, stage: DrainStage, scale: _Scale, row: int, some: NDArray[np.int64], state: int, pixels: float
) -> None:  # fmt: skip
    """The rows of one stage that are in the same state: their bars, and the symbols where they end."""
    look = _LOOKS[state]
    seen = scale.at(drain.seen_ms)
    pending = state > DRAINED
    ends = [scale.edge if pending else scale.at(ms) for ms in stage.done_ms[some].tolist()]
    hover = [_hover(drain, stage, index) for index in some.tolist()]
    template = "%{customdata}<extra></extra>"
    if state != BEFORE:
        figure.add_bar(
            orientation="h", base=seen, x=[end - seen for end in ends], y=some.tolist(), customdata=hover,
            hovertemplate=template, showlegend=False, row=row, col=1,
            width=_THICK, marker={"color": "#bfe3d6", "line": {"width": 0}, **(_hatched(look) if pending else {})},
        )  # fmt: skip
    else:
        # However long ago that was: at the left edge of what is shown.
        ends = [max(end, scale.left * 0.5) for end in ends]
    size = max(6, min(13, round(pixels * 0.75)))
    figure.add_scatter(
        x=ends, y=some.tolist(), mode="markers", cliponaxis=False, customdata=hover, hovertemplate=template,
        marker=_symbol(state, size), name=WORDS[state], showlegend=False, row=row, col=1,
    )  # fmt: skip


def _hatched(look: StateLook) -> dict[str, object]:
    return {"pattern": {"shape": look.pattern, "fgcolor": "#e8a27c", "bgcolor": "#fdf3ec", "size": 6, "solidity": 0.2}}


def _symbol(state: int, size: int) -> dict[str, object]:
    """Hollow ones are white inside, not see-through: the hatching goes on below them."""
    look = _LOOKS[state]
    colour = "#ffffff" if state in _HOLLOW else look.colour
    return {"symbol": look.symbol, "size": size, "color": colour, "line": {"width": 1.5, "color": look.colour}}


def _lines(drain: Drain, scale: _Scale) -> list[tuple[float, float, str]]:
    """(where, how wide, dash) of the request and of the moment in which it was seen."""
    seen = (scale.at(drain.seen_ms), 2.0, "solid")
    return [seen] if scale.from_seen else [(0.0, 2.0, "dot"), seen]


def _legend(figure: go.Figure, drain: Drain, scale: _Scale) -> None:
    """What lines and symbols mean, as far as they occur."""
    names = ["seen"] if scale.from_seen else ["requested", "seen by the job"]
    for (_, width, dash), name in zip(_lines(drain, scale), names, strict=True):
        figure.add_scatter(
            x=[None], y=[None], mode="lines", name=name, hoverinfo="skip",
            line={"width": width, "color": CONTROL, "dash": dash}, row=1, col=1,
        )  # fmt: skip
    present = {state for stage in drain.stages for state in stage.state.tolist()}
    for state in (DRAINED, WAITING, PARTLY, ALL_HEARD, BEFORE):
        if state in present:
            figure.add_scatter(
                x=[None], y=[None], mode="markers", name=WORDS[state], hoverinfo="skip",
                marker=_symbol(state, 11), row=1, col=1,
            )  # fmt: skip


def _subtitle(drain: Drain, scale: _Scale) -> str:
    waited = f", {duration(drain.seen_ms)} before it was seen" if scale.from_seen else ""
    asked = f"requested at {moment(drain.requested)}{waited}"
    if drain.pending:
        verb = "is" if drain.pending == 1 else "are"
        return f"{drain.pending:,} of {drain.tasks:,} {verb} pending; {asked}."
    return f"Everything has drained, {_took(drain.last_ms)} after it was {asked}."


def _took(milliseconds: float) -> str:
    """As `duration`, but to a tenth where a second makes a difference."""
    return f"{milliseconds / 1000:.1f} s" if 1_000 <= milliseconds < 10_000 else duration(milliseconds)


def _summary(stage: DrainStage) -> str:
    count = len(stage.tasks)
    counts = [(int((stage.state == state).sum()), WORDS[state]) for state in (DRAINED, BEFORE)]
    parts = [f"{number} {words}" for number, words in counts if number]
    if stage.pending:
        parts.append(
            f"{stage.pending} pending, {int(stage.heard.sum()):,} of {int(stage.expected.sum()):,} markers heard"
        )
    return f"{count} task{'s' if count != 1 else ''}: {', '.join(parts)}"


def _was_told(stage: DrainStage, index: int) -> bool:
    """Done without having heard everybody: with aggregate routing, one task hears all and tells the others."""
    return bool(stage.state[index] <= DRAINED and stage.heard[index] < stage.expected[index])


def _heard(stage: DrainStage, index: int) -> str:
    return "told" if _was_told(stage, index) else f"{stage.heard[index]} of {stage.expected[index]}"


def _hover(drain: Drain, stage: DrainStage, index: int) -> str:
    state = int(stage.state[index])
    lines = [f"<b>{label(stage.tasks[index], 40)}</b> · {label(stage.name, 60)}"]
    if state > DRAINED:
        lines.append("<b>still pending</b>")
    elif state == DRAINED:
        took = _took(float(stage.done_ms[index]))
        lines.append(f"<b>drained</b> in batch {stage.batch[index]}, {took} after the request")
    else:
        lines.append(f"<b>had ended before</b>, in batch {stage.batch[index]}")
    if _was_told(stage, index):
        lines.append("told by the task that hears all upstream tasks for the others")
    else:
        lines.append(f"heard {_heard(stage, index)} upstream tasks")
    if stage.owed_by[index]:
        lines.append(f"owed by {label(stage.owed_by[index], 120)}")
    rows = int(stage.open_rows[index])
    lines.append(f"holds {rows:,} row{'s' if rows != 1 else ''}")
    return "<br>".join(lines)


def drains_table(frame: pd.DataFrame) -> pd.DataFrame:
    """The text twin of `drains`: a row per stage and task, in order.

    Columns: `stage`, `task`, `state` ("drained", "pending: …" or "had ended before"), `heard` of `expected` (markers or
    ends, over all SSPs of the task), `owed_by`, `open_rows`, `seconds` (from the request; NA while pending), `batch`.
    """
    stages = [] if frame.empty else drain_of(frame).stages
    rows = [
        (
            stage.name, task, WORDS[stage.state[index]], stage.heard[index], stage.expected[index], stage.owed_by[index],
            stage.open_rows[index], stage.done_ms[index] / 1000, None if stage.batch[index] < 0 else stage.batch[index],
        )
        for stage in stages
        for index, task in enumerate(stage.tasks)
    ]  # fmt: skip
    names = ["stage", "task", "state", "heard", "expected", "owed_by", "open_rows", "seconds", "batch"]
    kinds = {"heard": "int64", "expected": "int64", "open_rows": "int64", "seconds": "float64", "batch": "Int64"}
    return pd.DataFrame(rows, columns=names).astype(kinds)
