"""Who has not said goodbye?"""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plots._labels import SOURCE, counts_as_upstream, in_order, label
from workbench.plots._matrix import Facet, Layer, draw
from workbench.plots._theme import STATES, nothing, require

QUESTION = "Who has not yet ended?"
_COLUMNS = ("task", "stage", "stream", "upstream_task", "heard", "batch")


def _prepared(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per (stream, task, upstream task): heard only if every partition of the task has heard it."""
    require(frame, _COLUMNS, "the frame of ends of streams")
    rows = pd.DataFrame(
        {
            "stream": frame["stream"].astype(str),
            "task": frame["task"].astype(str),
            "upstream_task": frame["upstream_task"].fillna(SOURCE).astype(str),
            "heard": frame["heard"].fillna(False).astype(bool),
            "batch": frame["batch"].astype("Float64"),
        }
    )
    pairs = (
        rows.groupby(["stream", "task", "upstream_task"], sort=False)
        .agg({"heard": "min", "batch": "max"})
        .reset_index()
    )
    return pairs.assign(counts=counts_as_upstream(pairs, ["stream", "task"]))


def _order(frame: pd.DataFrame) -> list[str]:
    """Streams in the order of the stages that read them."""
    stages = frame["stage"].astype(str)
    first = {stage: rank for rank, stage in enumerate(in_order(stages))}
    streams = frame["stream"].astype(str)
    rank = stages.map(first).groupby(streams).min()
    return sorted(rank.index, key=lambda stream: (rank[stream], in_order(rank.index).index(stream)))


def end_of_stream(frame: pd.DataFrame) -> go.Figure:
    """Draw which consumer has heard the end from which upstream task, a facet per stream, from `run.end_of_stream()`.

    To the right of each consumer stands of how many of its upstream tasks it has heard the end; an end that no task said,
    put into a stream between stages from outside, is drawn but not counted. Where nobody produces
    for a consumer, the cell is blank. Raises `UnknownColumn` if the frame is not one of ends of streams.
    """
    if frame.empty:
        return nothing(QUESTION)
    rows = _prepared(frame)
    facets = [_facet(stream, rows[rows["stream"] == stream]) for stream in _order(frame)]
    heard, total = int(rows.loc[rows["counts"], "heard"].sum()), int(rows["counts"].sum())
    subtitle = f"{heard:,} of {total:,} ends of stream heard. A task acts when its row is full."
    return draw(facets, QUESTION, subtitle, "consumer", "upstream task")


def _facet(stream: str, rows: pd.DataFrame) -> Facet:
    tasks, upstream = in_order(rows["task"].unique()), in_order(rows["upstream_task"].unique())
    at = pd.Index(tasks).get_indexer(rows["task"]), pd.Index(upstream).get_indexer(rows["upstream_task"])
    heard = rows["heard"].to_numpy(dtype=bool)
    ended, waiting, batch = (np.full((len(tasks), len(upstream)), np.nan) for _ in range(3))
    ended[at[0][heard], at[1][heard]] = 1
    waiting[at[0][~heard], at[1][~heard]] = 1
    batch[at] = rows["batch"].to_numpy(dtype=np.float64, na_value=np.nan)
    counts = np.zeros((len(tasks), len(upstream)), dtype=bool)
    counts[at] = rows["counts"].to_numpy(dtype=bool)
    got, due = (np.isfinite(ended) & counts).sum(axis=1), counts.sum(axis=1)
    pair = "consumer %{y}, upstream %{x}<br>"
    return Facet(
        title=f"{label(stream, 60)}",
        rows=tasks,
        columns=upstream,
        margin=[f"{k} of {n}" for k, n in zip(got.tolist(), due.tolist(), strict=True)],
        layers=[
            Layer("not yet", waiting, STATES["unknown"].colour, "·", pair + "<b>not yet ended</b>"),
            Layer(
                "ended", ended, STATES["finished"].colour, "✓", pair + "<b>ended</b> in batch %{customdata}", batch,
                glyph_colour="#ffffff",
            ),
        ],
    )  # fmt: skip


def end_of_stream_table(frame: pd.DataFrame) -> pd.DataFrame:
    """The text twin of `end_of_stream`: a row per stream and consumer, in order.

    Columns: `stream`, `task`, `heard` and `total` (how many upstream tasks have ended, of how many), `waiting_for` (the
    first five others by name), `batch` (of the last end heard, NA before the first).
    """
    columns: dict[str, list[object]] = {
        name: [] for name in ("stream", "task", "heard", "total", "waiting_for", "batch")
    }
    rows = _prepared(frame) if not frame.empty else pd.DataFrame(columns=["stream", "task"])
    by_pair = dict(iter(rows.groupby(["stream", "task"], sort=False)))
    for stream in _order(frame) if by_pair else []:
        for task in in_order(name for of, name in by_pair if of == stream):
            mine = by_pair[stream, task]
            owing = in_order(mine.loc[~mine["heard"], "upstream_task"])
            more = f" and {len(owing) - 5} more" if len(owing) > 5 else ""
            last = mine.loc[mine["heard"], "batch"].max()
            heard = int((mine["heard"] & mine["counts"]).sum())
            for name, value in zip(
                columns,
                (stream, task, heard, int(mine["counts"].sum()), ", ".join(owing[:5]) + more, last),
                strict=True,
            ):
                columns[name].append(value)
    table = pd.DataFrame(columns)
    return table.astype({"heard": "int64", "total": "int64", "batch": "Float64"}).astype({"batch": "Int64"})
