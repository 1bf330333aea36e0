"""What has each consumer heard from whom?"""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plots._labels import SOURCE, counts_as_upstream, duration, in_order, instants, label, moment
from workbench.plots._matrix import Facet, Layer, add_colour_bar, draw
from workbench.plots._theme import STATES, nothing, require

QUESTION = "What has each consumer heard from whom?"
_COLUMNS = ("stream", "partition", "kind", "upstream_task", "value", "heard", "total", "reconciled", "state")
_UNITS = ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes"), (1_000, "seconds"), (1, "milliseconds"))
_MOST_TEXTS = 4_096
"""A matrix of more cells says on hovering only how far behind: a text for each would make megabytes."""
_BEHIND: list[list[object]] = [[0.0, "#e8f1f8"], [0.35, "#8fbadb"], [0.7, "#3f7fb5"], [1.0, "#123a66"]]


def _prepared(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with plain types, a `consumer` column that names its rows, and NaT wherever a state has no time."""
    require(frame, _COLUMNS, "the frame of bookkeeping")
    rows = pd.DataFrame(
        {
            "stream": frame["stream"].astype(str),
            "partition": frame["partition"].astype("int64"),
            "kind": frame["kind"].astype(str),
            "upstream_task": frame["upstream_task"].fillna(SOURCE).astype(str),
            "value": instants(frame["value"]),
            "heard": frame["heard"].fillna(False).astype(bool),
            "total": frame["total"].fillna(0).astype("int64"),
            "reconciled": instants(frame["reconciled"]),
            "state": frame["state"].astype(str),
        }
    )
    partition = "partition " + rows["partition"].astype(str)
    if "task" not in frame.columns:
        return _counted(rows.assign(consumer=partition))
    task = frame["task"].astype(str)
    several = rows.groupby([rows["stream"], task])["partition"].transform("nunique") > 1
    return _counted(rows.assign(consumer=task.where(~several, task + ", " + partition)))


def _counted(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(counts=counts_as_upstream(rows, ["stream", "consumer", "kind"]))


def bookkeeping(frame: pd.DataFrame) -> go.Figure:
    """Draw the last watermark that each consumer has heard from each upstream task, relative to the newest.

    `frame` is the bookkeeping of one task (rows are the partitions it consumes) or of all (rows are tasks). A facet per
    stream; the darker a cell, the further behind the newest watermark of its stream. Grey has never been heard. To the
    right: of how many upstream tasks this consumer has heard a watermark; what came from no task, as a direct message to a
    stream between stages, is drawn but not counted. Raises `UnknownColumn` if the frame is not one of bookkeeping.
    """
    if frame.empty:
        return nothing(QUESTION)
    rows = _prepared(frame)
    rows = rows[rows["kind"] == "watermark"]
    if rows.empty:
        return nothing(QUESTION, "no watermark has been heard yet")
    newest = rows.groupby("stream")["value"].transform("max")
    rows = rows.assign(behind=((newest - rows["value"]) / pd.Timedelta(milliseconds=1)).astype("float64"))
    most = rows["behind"].max()
    size, unit = next(((size, unit) for size, unit in _UNITS if most >= 2 * size), _UNITS[3])
    facets = [
        _facet(stream, rows[rows["stream"] == stream], size, unit) for stream in in_order(rows["stream"].unique())
    ]
    figure = draw(
        facets,
        QUESTION,
        "The last watermark heard, relative to the newest of the stream. Grey: never heard.",
        "consumer",
        "upstream task",
    )
    if np.isfinite(most):
        add_colour_bar(figure, f"{unit}<br>behind", _BEHIND, max(most / size, 1e-9))
    return figure


def _facet(stream: str, rows: pd.DataFrame, size: int, unit: str) -> Facet:
    consumers, upstream = in_order(rows["consumer"].unique()), in_order(rows["upstream_task"].unique())
    shape = len(consumers), len(upstream)
    at = pd.Index(consumers).get_indexer(rows["consumer"]), pd.Index(upstream).get_indexer(rows["upstream_task"])
    z, text = np.full(shape, np.nan), np.full(shape, "", dtype=object)
    finished, unheard, idle, heard, total = (np.full(shape, np.nan) for _ in range(5))
    is_heard, has_time = rows["heard"].to_numpy(), rows["value"].notna().to_numpy()
    # A watermark that was heard and is no time is that of an input which has ended.
    is_finished = is_heard & (~has_time | (rows["state"] == "finished").to_numpy())
    known = is_heard & ~is_finished
    is_idle = known & (rows["state"] == "idle").to_numpy()
    z[at] = np.where(known & ~is_idle, rows["behind"].to_numpy() / size, np.nan)
    idle[at] = np.where(is_idle, rows["behind"].to_numpy() / size, np.nan)
    finished[at] = np.where(is_finished, 1, np.nan)
    unheard[at] = np.where(~is_heard, 1, np.nan)
    counts = rows["counts"].to_numpy()
    heard[at], total[at] = np.where(counts, is_heard, np.nan), rows["total"].to_numpy()
    pair, told = "consumer %{y}, upstream %{x}<br>", f"%{{z:,.1f}} {unit} behind the newest"
    if z.size <= _MOST_TEXTS:
        told = "%{customdata}"
        text[at] = [
            f"{moment(value)}<br>{duration(behind)} behind the newest" if shown else ""
            for value, behind, shown in zip(
                rows["value"].to_numpy(dtype="datetime64[ms]"), rows["behind"].to_numpy(), known.tolist(), strict=True
            )
        ]
    texts = text if z.size <= _MOST_TEXTS else None
    listed = np.isfinite(heard).sum(axis=1)
    due = np.maximum(np.nanmax(total, axis=1), listed).astype(int)
    got = np.nansum(heard, axis=1).astype(int)
    return Facet(
        title=label(stream, 60),
        rows=consumers,
        columns=upstream,
        margin=[f"{k} of {n}" for k, n in zip(got.tolist(), due.tolist(), strict=True)],
        layers=[
            Layer("never heard", unheard, STATES["unknown"].colour, "·", pair + "<b>never heard</b>"),
            Layer(
                "finished", finished, STATES["finished"].colour, "✓", pair + "<b>finished</b>", glyph_colour="#ffffff"
            ),
            Layer("behind", z, None, "", pair + told, texts),
            Layer("idle", idle, None, "idle", pair + "<b>idle</b>, last " + told, texts),
        ],
    )


def _latest(times: pd.Series) -> np.datetime64:
    known = times.dropna()
    return known.max().to_numpy() if len(known) else np.datetime64("NaT", "ms")


def bookkeeping_table(frame: pd.DataFrame) -> pd.DataFrame:
    """The text twin of `bookkeeping`: a row per stream, consumer and kind of control message, in order.

    Columns: `stream`, `consumer`, `kind`, `heard` and `total` (upstream tasks heard, of how many expected), `reconciled`
    (UTC; NaT before they agree), `state` (the first of unknown, active, idle, held, finished that an upstream task is
    in), `slowest` (the upstream task with the lowest watermark, or the first of those never heard; None once all have ended), `spread` (from the
    lowest to the newest watermark heard).
    """
    names = ("stream", "consumer", "kind", "heard", "total", "reconciled", "state", "slowest", "spread")
    columns: dict[str, list[object]] = {name: [] for name in names}
    rows = _prepared(frame) if not frame.empty else pd.DataFrame(columns=["stream", "consumer", "kind"])
    groups = dict(iter(rows.groupby(["stream", "consumer", "kind"], sort=False)))
    place = {name: rank for rank, name in enumerate(in_order(part for key in groups for part in key[:2]))}
    kinds = {"watermark": 0, "end of stream": 1, "drain": 2}
    for key in sorted(groups, key=lambda key: (place[key[0]], place[key[1]], kinds.get(key[2], 3), key[2])):
        group = groups[key]
        values = group["value"].dropna()
        counted = group[group["counts"]]
        owing = in_order(group.loc[~group["heard"], "upstream_task"])
        slowest = owing[0] if owing else group.loc[values.idxmin(), "upstream_task"] if len(values) else None
        state = next((state for state in STATES if (group["state"] == state).any()), "unknown")
        row = (
            *key,
            int(counted["heard"].sum()),
            max(int(group["total"].max()), len(counted)),
            _latest(group["reconciled"]),
            state,
            slowest,
            values.max() - values.min() if len(values) else pd.NaT,
        )
        for name, value in zip(names, row, strict=True):
            columns[name].append(value)
    table = pd.DataFrame({name: columns[name] for name in names})
    return table.astype({"heard": "int64", "total": "int64"}).assign(
        reconciled=pd.Series(np.array(columns["reconciled"], dtype="datetime64[ms]")).dt.tz_localize("UTC"),
        spread=pd.Series(columns["spread"], dtype="timedelta64[ms]"),
    )
