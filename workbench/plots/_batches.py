"""What did each batch carry, and how fast?"""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from workbench.plots._axes import Axis, axis_title, x_axis
from workbench.plots._labels import dates, drawable, instants
from workbench.plots._stairs import corners, stretch
from workbench.plots._theme import (
    CONTROL,
    INK,
    LATE,
    QUIET,
    RATE,
    count_axis,
    dress,
    facet_title,
    in_facet,
    nothing,
    require,
)

QUESTION = "How fast is each batch, and what does it carry?"
MOST_BARS = 500
"""More batches than these are drawn in groups of neighbours: rates as their mean, counts as their sum."""
FEW_BARS = 100
"""More than these stand without gaps and hatching, which would blur."""
_COUNTS = ("input_messages", "control_messages", "output_messages", "late_messages")
_COLUMNS = ("batch", "time", "seconds", *_COUNTS, "messages_per_second", "lowest_watermark")
_HEIGHTS, _GAP = (150, 84, 84, 130), 46


def grouped(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame in order of batches, at most `MOST_BARS` rows: neighbours are added up (column `batches` says how many).

    Raises `UnknownColumn` if it is not a frame of batches.
    """
    require(frame, _COLUMNS, "the frame of batches")
    ordered = frame.sort_values("batch", kind="stable")
    seconds = ordered["seconds"].to_numpy(dtype=np.float64)
    rate = ordered["messages_per_second"].to_numpy(dtype=np.float64)
    rows = pd.DataFrame(
        {
            "batch": ordered["batch"].to_numpy(dtype=np.int64),
            "time": instants(ordered["time"]),
            "seconds": seconds,
            # A batch of no length has no rate; it weighs nothing in a mean either.
            "weighted": np.where(np.isfinite(rate) & (seconds > 0), rate, 0) * seconds,
            **{name: ordered[name].to_numpy(dtype=np.int64) for name in _COUNTS},
            "watermark": instants(ordered["lowest_watermark"]),
        }
    )
    size = -(-len(rows) // MOST_BARS)
    group = np.arange(len(rows)) // size
    first = rows.groupby(group)[["batch", "time"]].first()
    sums = rows.groupby(group)[["seconds", "weighted", *_COUNTS]].sum()
    last = rows.groupby(group)[["watermark"]].nth(-1).set_axis(first.index)
    together = pd.concat([first, sums, last], axis=1)
    return together.assign(
        batches=np.bincount(group),
        messages_per_second=np.where(together["seconds"] > 0, together["weighted"] / together["seconds"], np.nan),
        through=rows.groupby(group)["batch"].last(),
    )


def spans(rows: pd.DataFrame) -> list[str]:
    """What each bar stands for, for hovering: `batch 7` or `batches 7 to 12`."""
    return [
        f"batch {first:,}" if first == through else f"batches {first:,} to {through:,}"
        for first, through in zip(rows["batch"].tolist(), rows["through"].tolist(), strict=True)
    ]


def batches(frame: pd.DataFrame, by: Axis = "batch") -> go.Figure:
    """Draw messages per second, late rows, control messages and the lowest watermark of every batch.

    `frame` is `run.batches()`. Raises `UnknownColumn` if it is not a frame of batches.
    """
    if frame.empty:
        return nothing(QUESTION)
    rows = grouped(frame)
    plot_height = sum(_HEIGHTS) + _GAP * 3
    figure = make_subplots(rows=4, shared_xaxes=True, row_heights=list(_HEIGHTS), vertical_spacing=_GAP / plot_height)
    x = rows["batch"].tolist() if by == "batch" else dates(rows["time"].to_numpy(dtype="datetime64[ms]"))
    said, size = spans(rows), int(rows["batches"].iloc[0])
    per = "per batch" if size == 1 else f"per {size:,} batches"
    late, control = rows["late_messages"], rows["control_messages"]
    for row, values, colour, pattern, title, unit in (
        (1, rows["messages_per_second"].round(1), RATE, "", "input messages per second", "messages/s"),
        (2, late, LATE, "/" if len(rows) <= FEW_BARS else "", f"late rows {per}: {late.sum():,} in all", "late rows"),
        (3, control, CONTROL, "", f"control messages {per}: {control.sum():,} in all", "control messages"),
    ):
        axis = str(row) if row > 1 else ""
        figure.add_bar(
            x=x, y=values, customdata=said, name=unit, showlegend=False,
            marker={"color": colour, "pattern": {"shape": pattern, "solidity": 0.25, "size": 6, "fillmode": "overlay", "fgcolor": "#ffffff"}, "line": {"width": 0}},
            hovertemplate=f"<b>%{{customdata}}</b><br>%{{y:,}} {unit}<extra></extra>", row=row, col=1,
        )  # fmt: skip
        facet_title(figure, title, f"x{axis}", f"y{axis}")
        figure.update_yaxes(**count_axis(values.max()), row=row, col=1)
        if not (values > 0).any():
            figure.update_yaxes(range=[0, 1], showticklabels=False, row=row, col=1)
            in_facet(figure, "none", f"x{axis}", f"y{axis}")
    _watermark(figure, rows["watermark"].to_numpy(dtype="datetime64[ms]"), x, said)
    figure.update_xaxes(**x_axis(by, rows["batch"].to_numpy()))
    figure.update_xaxes(title_text=axis_title(by), row=4, col=1)
    figure.update_layout(bargap=0.15 if len(rows) <= FEW_BARS else 0)
    return dress(figure, QUESTION, _subtitle(frame), plot_height)


def _subtitle(frame: pd.DataFrame) -> str:
    count, seconds = len(frame), float(frame["seconds"].sum())
    messages = int(frame["input_messages"].sum())
    rate = f", {messages / seconds:,.0f} per second" if seconds > 0 else ""
    return f"{count:,} batch{'es' if count != 1 else ''}, {messages:,} input messages in {seconds:,.1f} s{rate}."


def _watermark(
    figure: go.Figure, watermark: NDArray[np.datetime64], x: list[int] | list[str | None], said: list[str]
) -> None:
    # Plotly draws no axis without a trace.
    figure.add_scatter(x=x[:1], y=[None], showlegend=False, row=4, col=1)
    facet_title(figure, "lowest watermark, event time (UTC)", "x4", "y4")
    known = drawable(watermark)
    if not known.any():
        in_facet(figure, "no watermark after any batch: not yet known, or finished", "x4", "y4")
        figure.update_yaxes(showticklabels=False, showgrid=False, row=4, col=1)
        return
    positions = corners(watermark, np.zeros(len(watermark), dtype=np.int8), len(watermark))
    xs, ys = stretch([x[i] for i in positions.tolist()], dates(watermark[positions]), known[positions])
    figure.add_scatter(
        x=xs, y=ys, mode="lines+markers", line={"shape": "hv", "width": 2, "color": INK}, showlegend=False,
        marker={"size": 5, "color": INK, "maxdisplayed": 12},
        hovertemplate="watermark %{y|%Y-%m-%d %H:%M:%S} UTC<extra></extra>", row=4, col=1,
    )  # fmt: skip
    figure.update_yaxes(type="date", nticks=5, row=4, col=1)
    without = int((~known).sum())
    if without:
        figure.layout.annotations[
            -1
        ].text += f"   <span style='color:{QUIET}'>no line: not yet known, or finished</span>"


def batches_table(frame: pd.DataFrame) -> pd.DataFrame:
    """The text twin of `batches`: one row per measure, with its total, median, largest and last value per batch.

    The total of a rate is that of the whole run: all input messages by all seconds.
    """
    measures = ("seconds", *_COUNTS, "messages_per_second")
    rows = []
    if not frame.empty:
        require(frame, _COLUMNS, "the frame of batches")
        ordered = frame.sort_values("batch", kind="stable")
        for measure in measures:
            values = ordered[measure].astype("float64").replace([np.inf, -np.inf], np.nan)
            rows.append((values.sum(), values.median(), values.max(), values.iloc[-1]))
        seconds = rows[0][0]
        rate = rows[1][0] / seconds if seconds > 0 else float("nan")
        rows[-1] = (rate, *rows[-1][1:])
    names = list(measures) if rows else []
    return pd.DataFrame(rows, columns=["total", "median", "largest", "last"], index=pd.Index(names, name="measure"))
