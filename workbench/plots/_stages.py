"""From rows of telemetry to the watermark of every task of a stage, batch by batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.plots._labels import in_order, instants
from workbench.plots._theme import STATES, require

NAMES = tuple(STATES)
UNKNOWN, ACTIVE, IDLE, HELD, FINISHED = range(5)
_NAT = np.datetime64("NaT", "ms")
_MOST_BITS = 63
_COLUMNS = ("batch", "time", "task", "stage", "stream", "watermark", "state")


@dataclass(frozen=True)
class Stage:
    """What the tasks of one stage knew after each of its batches.

    `watermark`, `state` (an index into `NAMES`), `inputs` (bit *i* is set if `streams[i]` is the input, or one of those, that
    is furthest behind in this task) and `minimal` (whether the task is a minimum) have one row per batch and one column
    per task; a watermark is NaT where the state has no time. `holder`, `lowest` and `lowest_state` say for each batch which task (its column) is the minimum, at
    what watermark, and in which state: the stage is unknown while any of its tasks is, and finished when all of them are.
    Among several minima the holder is the one that was it before.
    """

    name: str
    tasks: list[str]
    batch: NDArray[np.int64]
    time: NDArray[np.datetime64]
    watermark: NDArray[np.datetime64]
    state: NDArray[np.int8]
    streams: list[str]
    inputs: NDArray[np.int64]
    minimal: NDArray[np.bool_]
    holder: NDArray[np.int64]
    lowest: NDArray[np.datetime64]
    lowest_state: NDArray[np.int8]


def stages(frame: pd.DataFrame) -> list[Stage]:
    """The stages of a frame of watermarks, in their order.

    A task that reads several streams is where its furthest-behind stream is: unknown if one of them is unknown, and
    finished only when all are. Raises `UnknownColumn` for a frame that is not one of watermarks.
    """
    if frame.empty:
        return []
    require(frame, _COLUMNS, "the frame of watermarks")
    code = frame["state"].map({name: index for index, name in enumerate(NAMES)})
    watermark = instants(frame["watermark"])
    rows = pd.DataFrame(
        {
            "stage": frame["stage"].astype(str).to_numpy(),
            "task": frame["task"].astype(str).to_numpy(),
            "stream": frame["stream"].astype(str).to_numpy(),
            "batch": frame["batch"].to_numpy(dtype=np.int64),
            "time": instants(frame["time"]),
            "watermark": watermark,
            "state": code.fillna(UNKNOWN).to_numpy(dtype=np.int8),
        }
    )
    # Which of a task's streams speaks for it: first an unknown one, then those with a time, then silent, then ended.
    known = ~np.isnat(watermark)
    rows["rank"] = np.select([rows["state"] == UNKNOWN, rows["state"] == FINISHED, known], [0, 3, 1], default=2)
    place = ["stage", "batch", "task"]
    rows = rows.sort_values([*place, "rank", "watermark", "state"], kind="stable", na_position="last")
    rows["first"] = ~rows.duplicated(place)
    spokesman = rows["first"].cumsum().to_numpy() - 1
    for name in ("rank", "watermark"):
        of_first = rows.loc[rows["first"], name].to_numpy()[spokesman]
        level = (rows[name] == of_first) | (rows[name].isna() & pd.isna(of_first))
        rows, spokesman = rows[level], spokesman[level]
    by_stage = dict(iter(rows.groupby("stage", sort=False)))
    return [_stage(name, by_stage[name]) for name in in_order(by_stage)]


def _stage(name: str, every: pd.DataFrame) -> Stage:
    rows = every[every["first"]]
    tasks = in_order(rows["task"].unique())
    batch, row = np.unique(rows["batch"].to_numpy(), return_inverse=True)
    column = pd.Index(tasks).get_indexer(rows["task"])
    time = np.full(len(batch), _NAT)
    time[row] = rows["time"].to_numpy(dtype="datetime64[ms]")
    # A task without a row in a batch is where it was before; before its first row it is unknown.
    seen = np.zeros((len(batch), len(tasks)), dtype=bool)
    seen[row, column] = True
    latest = np.maximum.accumulate(np.where(seen, np.arange(len(batch))[:, None], 0), axis=0)
    watermark = np.full(seen.shape, _NAT)
    watermark[row, column] = np.where(
        rows["state"].isin([UNKNOWN, FINISHED]), _NAT, rows["watermark"].to_numpy(dtype="datetime64[ms]")
    )
    state = np.full(seen.shape, UNKNOWN, dtype=np.int8)
    state[row, column] = rows["state"].to_numpy()
    streams = in_order(every["stream"].unique())
    bit = np.minimum(pd.Index(streams).get_indexer(every["stream"]), _MOST_BITS - 1)
    inputs = np.zeros(seen.shape, dtype=np.int64)
    place = np.searchsorted(batch, every["batch"]), pd.Index(tasks).get_indexer(every["task"])
    np.bitwise_or.at(inputs, place, np.int64(1) << bit)
    if len(streams) > _MOST_BITS:
        streams = [*streams[: _MOST_BITS - 1], f"{len(streams) - _MOST_BITS + 1} other streams"]
    watermark = np.take_along_axis(watermark, latest, axis=0)
    state = np.take_along_axis(state, latest, axis=0)
    inputs = np.take_along_axis(inputs, latest, axis=0)
    minimal, holder, lowest, lowest_state = _minimum(watermark, state)
    return Stage(name, tasks, batch, time, watermark, state, streams, inputs, minimal, holder, lowest, lowest_state)


def _minimum(
    watermark: NDArray[np.datetime64], state: NDArray[np.int8]
) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.datetime64], NDArray[np.int8]]:
    """Per batch: the columns that hold the stage back, one of them, its watermark, its state."""
    value = watermark.astype(np.int64)
    order = np.where(np.isnat(watermark), np.iinfo(np.int64).max, value)
    # Ahead of all times: unknown. Behind all times: idle without a time, then finished.
    tier = np.select([state == UNKNOWN, state == FINISHED, np.isnat(watermark)], [0, 3, 2], default=1).astype(np.int8)
    best = tier.min(axis=1)
    candidates = tier == best[:, None]
    least = np.where(candidates, order, np.iinfo(np.int64).max).min(axis=1)
    minimal = candidates & (order == least[:, None])
    holder = minimal.argmax(axis=1)
    # Of equals, the one that held it back before: no flicker.
    for index in range(1, len(holder)):
        if minimal[index, holder[index - 1]]:
            holder[index] = holder[index - 1]
    rows = np.arange(len(holder))
    return minimal, holder, watermark[rows, holder], state[rows, holder]
