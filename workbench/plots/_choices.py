"""Which input went first, and why?"""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from workbench.plots._choice_lanes import TaskOrder, ordered, task_orders
from workbench.plots._labels import in_order, label
from workbench.plots._theme import BOTTOM, CONTROL, INK, QUIET, TOP, StateLook, dress, facet_title, nothing

QUESTION = "Which input went first, and why?"
MOST_TASKS = 8
"""So many tasks have a strip; a frame of others shows those."""
_LANE, _GAP, _LEGEND = 26, 54, 44
"""Pixels of an SSP's lane, between tasks, and of the legend below all."""
_MOST_MARKS = 60
_THICK, _THIN = 0.8, 0.12
"""How much of its lane a bar fills that is all of one SSP, and at least."""
_COLOURS = ("#4477AA", "#CCBB44", "#228833", "#66CCEE", "#882255", "#EE8866")
_PATTERNS = ("", "/", "\\", "x", "-", "|")


def choices(frame: pd.DataFrame) -> go.Figure:
    """Draw the order in which tasks took the messages of their inputs, from `run.choices()`: a strip for each task.

    To the right runs the order, batch after batch; each SSP has a lane, and a bar in it where its messages were taken,
    coloured and hatched by why they went before what else waited. Where more runs than can be seen alternate, bars stand
    for equal steps of the order, and their thickness is the SSP's share. Thin lines are beginnings of batches. Of more
    than `MOST_TASKS` tasks the first are shown. Raises `UnknownColumn` if the frame is not one of choices.
    """
    if frame.empty:
        return nothing(QUESTION, "nothing was to be chosen" if "why" in frame.columns else "nothing recorded yet")
    rows = ordered(frame)
    words = list(dict.fromkeys(rows["why"]))
    every = in_order(rows["task"])
    orders = task_orders(rows, every[:MOST_TASKS], words)
    heights = [len(order.ssps) * _LANE for order in orders]
    plot_height = sum(heights) + _GAP * (len(heights) - 1)
    figure = make_subplots(
        rows=len(orders), row_heights=heights, vertical_spacing=_GAP / plot_height if len(heights) > 1 else 0
    )
    looks = _looks(words)
    for row, order in enumerate(orders, start=1):
        _strip(figure, order, words, looks, row)
    used = {words[index] for order in orders for index in np.unique(order.why).tolist()}
    for word in (word for word in words if word in used):
        figure.add_bar(
            x=[None], y=[None], name=label(word, 40), marker=_marker(looks[word]), hoverinfo="skip", row=1, col=1
        )
    figure.update_xaxes(title_text="messages of the task, in the order taken", row=len(orders), col=1)
    dress(figure, QUESTION, _subtitle(orders, len(every)), plot_height)
    return figure.update_layout(
        height=plot_height + TOP + BOTTOM + _LEGEND,
        margin={"b": BOTTOM + _LEGEND},
        barmode="overlay",
        legend={
            "orientation": "h", "x": 0, "xanchor": "left", "yref": "container", "y": 0, "yanchor": "bottom",
            "itemclick": False, "itemdoubleclick": False,
        },
    )  # fmt: skip


def _looks(words: list[str]) -> dict[str, StateLook]:
    """Colour and pattern of each reason: fixed for "bootstrap" and "alone", the others in the order they occur."""
    looks = {
        "alone": StateLook("#c3c9d2", "square", "solid", "", "alone"),
        "bootstrap": StateLook(CONTROL, "square", "solid", ".", "bootstrap"),
    }
    for index, word in enumerate(word for word in words if word not in looks):
        turn, colour = divmod(index, len(_COLOURS))
        looks[word] = StateLook(_COLOURS[colour], "square", "solid", _PATTERNS[(colour + turn) % len(_PATTERNS)], word)
    return looks


def _marker(look: StateLook) -> dict[str, object]:
    pattern = {"shape": look.pattern, "solidity": 0.25, "size": 6, "fillmode": "overlay", "fgcolor": "#ffffff"}
    return {"color": look.colour, "pattern": pattern, "line": {"width": 0}}


def _strip(figure: go.Figure, order: TaskOrder, words: list[str], looks: dict[str, StateLook], row: int) -> None:
    axis = str(row) if row > 1 else ""
    marks, every = _marks(order)
    figure.add_scatter(
        x=[x for mark in marks for x in (mark, mark, None)], y=[-0.5, len(order.ssps) - 0.5, None] * len(marks),
        mode="lines", hoverinfo="skip", showlegend=False, line={"width": 1, "color": "#b8c0cc"}, row=row, col=1,
    )  # fmt: skip
    thick = np.maximum(order.share * _THICK, _THIN)
    for why in np.unique(order.why).tolist():
        some = np.flatnonzero(order.why == why)
        figure.add_bar(
            orientation="h", base=order.start[some].tolist(), x=order.length[some].tolist(), y=order.lane[some].tolist(),
            width=thick[some].tolist(), marker=_marker(looks[words[why]]), showlegend=False,
            customdata=[_hover(order, index, words[why]) for index in some.tolist()],
            hovertemplate="%{customdata}<extra></extra>", row=row, col=1,
        )  # fmt: skip
    lanes = len(order.ssps)
    figure.update_yaxes(
        range=[lanes - 0.5, -0.5], showgrid=False, tickmode="array", tickvals=list(range(lanes)),
        ticktext=[label(ssp, 30) for ssp in order.ssps], row=row, col=1,
    )  # fmt: skip
    figure.update_xaxes(range=[0, order.messages], tickformat=",d", nticks=8, row=row, col=1)
    said = f"{_counted(order.messages, 'message')} in {_counted(order.runs, 'run')}, {_counted(len(order.batches), 'batch', 'es')}"
    if every > 1:
        said += f", a line at every {every}th"
    if order.in_steps:
        said += "; thickness is the share in a step"
    facet_title(figure, f"{label(order.name, 40)}   <span style='color:{QUIET}'>{said}</span>", f"x{axis}", f"y{axis}")
    if every == 1 and len(marks) <= _MOST_MARKS // 4:
        for batch, x in zip(order.batches.tolist(), order.batch_starts.tolist(), strict=True):
            figure.add_annotation(
                text=f"{batch}", xref=f"x{axis}", yref=f"y{axis} domain", x=x, y=0, xanchor="left", yanchor="bottom",
                xshift=2, showarrow=False, font={"size": 9, "color": INK}, bgcolor="rgba(255,255,255,0.7)", borderpad=0,
            )  # fmt: skip


def _marks(order: TaskOrder) -> tuple[list[int], int]:
    """Where lines of batches are, and at every how manieth batch."""
    every = -(-len(order.batches) // _MOST_MARKS)
    return order.batch_starts[::every].tolist(), every


def _hover(order: TaskOrder, index: int, why: str) -> str:
    first, last = int(order.start[index]), int(np.ceil(order.start[index] + order.length[index])) - 1
    span, own = last - first + 1, round(float(order.taken[index]))
    lines = [f"<b>{label(order.ssps[order.lane[index]], 60)}</b>"]
    if order.offset[index] < 0 and order.share[index] < 0.995:
        lines.append(f"about {own:,} of {span:,} messages, most of them because: <b>{label(why, 60)}</b>")
    else:
        lines.append(f"{_counted(own, 'message')}, because: <b>{label(why, 60)}</b>")
    if order.offset[index] >= 0:
        lines.append(f"from offset {order.offset[index]:,}")
    batch, to = int(order.batch_from[index]), int(order.batch_to[index])
    lines.append(f"batch {batch:,}" if batch == to else f"batches {batch:,} to {to:,}")
    lines.append(f"at {first:,} to {last:,} of the task's order")
    return "<br>".join(lines)


def _counted(count: int, what: str, plural: str = "s") -> str:
    return f"{count:,} {what}{plural if count != 1 else ''}"


def _subtitle(orders: list[TaskOrder], tasks: int) -> str:
    shown = f"The first {len(orders)} of {tasks} tasks." if tasks > len(orders) else _counted(tasks, "task") + "."
    return f"{shown} To the right: what a task took, one after the other. Thin lines begin a batch, by number."


def choices_table(frame: pd.DataFrame) -> pd.DataFrame:
    """The text twin of `choices`: a row for each task, SSP and reason, by task and in the order they first occur.

    Columns: `task`, `stream`, `partition`, `why`, `messages`, `share` (of the task's messages), `runs` (turns one after
    the other within a batch), `longest` (messages of the longest), `first_batch`, `last_batch`.
    """
    kinds = {
        "task": "str", "stream": "str", "partition": "int64", "why": "str", "messages": "int64", "share": "float64",
        "runs": "int64", "longest": "int64", "first_batch": "int64", "last_batch": "int64",
    }  # fmt: skip
    if frame.empty:
        return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in kinds.items()})
    rows = ordered(frame)
    groups = rows.groupby(["task", "stream", "partition", "why"], sort=False)
    table = groups.agg(
        messages=("messages", "sum"), runs=("messages", "size"), longest=("messages", "max"),
        first_batch=("batch", "min"), last_batch=("batch", "max"),
    ).reset_index()  # fmt: skip
    table["share"] = table["messages"] / table.groupby("task")["messages"].transform("sum")
    rank = {task: index for index, task in enumerate(in_order(table["task"]))}
    table = table.sort_values("task", key=lambda tasks: tasks.map(rank), kind="stable", ignore_index=True)
    return table[list(kinds)].astype(kinds)
