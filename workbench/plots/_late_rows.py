"""How many rows came too late?"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from workbench.plots._axes import x_axis
from workbench.plots._batches import FEW_BARS, grouped, spans
from workbench.plots._labels import dates, drawable, instants
from workbench.plots._theme import INK, LATE, count_axis, dress, facet_title, nothing, require

QUESTION = "How many rows came too late?"
_MOST_BINS = 120
_COLUMNS = ("batch", "input_messages", "late_messages", "lowest_watermark")
_HEIGHTS, _GAP = (190, 110), 46


def late_rows(frame: pd.DataFrame, by: Literal["batch", "event time"] = "batch") -> go.Figure:
    """Draw the late rows of every batch and their growing share of the input, from `run.batches()`.

    By `event time` they stand at the lowest watermark after their batch: they are older than that. Late rows of batches
    without a watermark have no place there; the subtitle counts them. Raises `UnknownColumn` if the frame is not one of
    batches.
    """
    if frame.empty:
        return nothing(QUESTION)
    require(frame, _COLUMNS, "the frame of batches")
    late, messages = int(frame["late_messages"].sum()), int(frame["input_messages"].sum())
    if not late:
        return nothing(QUESTION, f"none of {messages:,} input messages was late")
    plot_height = sum(_HEIGHTS) + _GAP
    figure = make_subplots(rows=2, shared_xaxes=True, row_heights=list(_HEIGHTS), vertical_spacing=_GAP / plot_height)
    subtitle = (
        f"{late:,} late rows, {late / messages:.2%} of {messages:,} input messages."
        if messages
        else f"{late:,} late rows."
    )
    if by == "batch":
        rows = grouped(frame)
        x, said = rows["batch"].tolist(), spans(rows)
        counts, inputs = rows["late_messages"].to_numpy(), rows["input_messages"].to_numpy()
        figure.update_xaxes(**x_axis("batch", rows["batch"].to_numpy()))
        figure.update_xaxes(title_text="batch", row=2, col=1)
    else:
        ordered = frame.sort_values("batch", kind="stable")
        watermark = instants(ordered["lowest_watermark"])
        known = drawable(watermark)
        if not known.any():
            return nothing(QUESTION, f"{late:,} late rows, none of them in a batch with a known watermark")
        homeless = int(ordered["late_messages"].to_numpy()[~known].sum())
        if homeless:
            subtitle += f" {homeless:,} of them came in batches without a watermark and are not drawn."
        numbers = watermark[known].astype(np.int64)
        edges = np.unique(np.linspace(numbers.min(), numbers.max(), _MOST_BINS + 1).astype(np.int64))
        where = np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, max(len(edges) - 2, 0))
        bins = max(len(edges) - 1, 1)
        counts = np.bincount(where, weights=ordered["late_messages"].to_numpy()[known], minlength=bins)
        inputs = np.bincount(where, weights=ordered["input_messages"].to_numpy()[known], minlength=bins)
        x = dates(edges[:bins].astype("datetime64[ms]"))
        said = [f"watermark from {start}" for start in x]
        figure.update_xaxes(title_text="lowest watermark after the batch, event time (UTC)", row=2, col=1)
        figure.update_xaxes(type="date")
    share = 100 * np.cumsum(counts) / np.maximum(np.cumsum(inputs), 1)
    figure.add_bar(
        x=x, y=counts, customdata=said, showlegend=False,
        marker={"color": LATE, "line": {"width": 0}, "pattern": {"shape": "/" if len(x) <= FEW_BARS else "", "solidity": 0.25, "size": 6, "fillmode": "overlay", "fgcolor": "#ffffff"}},
        hovertemplate="<b>%{customdata}</b><br>%{y:,} late rows<extra></extra>", row=1, col=1,
    )  # fmt: skip
    figure.add_scatter(
        x=x, y=share, mode="lines+markers", line={"color": INK, "width": 2, "shape": "hv"}, showlegend=False, customdata=said,
        marker={"size": 5, "color": INK, "maxdisplayed": 10},
        hovertemplate="<b>up to %{customdata}</b><br>%{y:.3f} % of the input was late<extra></extra>", row=2, col=1,
    )  # fmt: skip
    facet_title(figure, "late rows", "x", "y")
    facet_title(figure, "share of all input messages so far", "x2", "y2")
    figure.update_yaxes(**count_axis(counts.max()), row=1, col=1)
    figure.update_yaxes(rangemode="tozero", ticksuffix=" %", row=2, col=1)
    figure.update_layout(bargap=0.15 if len(x) <= FEW_BARS else 0)
    return dress(figure, QUESTION, subtitle, plot_height)


def late_rows_table(frame: pd.DataFrame) -> pd.DataFrame:
    """The text twin of `late_rows`: the batches with late rows, in order.

    Columns: `batch`, `late_messages`, `input_messages`, `share` (of this batch's input, 0 to 1; NaN without input),
    `total` (late rows up to here), `lowest_watermark` (UTC, after the batch).
    """
    if frame.empty:
        frame = pd.DataFrame({name: pd.Series(dtype="int64") for name in _COLUMNS})
    require(frame, _COLUMNS, "the frame of batches")
    ordered = frame.sort_values("batch", kind="stable")
    late, inputs = ordered["late_messages"].astype("int64"), ordered["input_messages"].astype("int64")
    table = pd.DataFrame(
        {
            "batch": ordered["batch"].astype("int64"),
            "late_messages": late,
            "input_messages": inputs,
            "share": late / inputs.where(inputs > 0),
            "total": late.cumsum(),
            "lowest_watermark": pd.Series(instants(ordered["lowest_watermark"]), index=ordered.index).dt.tz_localize(
                "UTC"
            ),
        }
    )
    return table[table["late_messages"] > 0].reset_index(drop=True)
