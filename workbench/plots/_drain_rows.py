"""From rows of a drain, one for each SSP, to what each task of each stage owes, has heard, and when it was done."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.plots._labels import in_order, instants
from workbench.plots._theme import require

BEFORE, DRAINED, WAITING, PARTLY, ALL_HEARD = range(5)
"""Where a task is: done before the drain was seen; drained; or pending, with markers of none, some or all heard."""
WORDS = ("had ended before", "drained", "pending: no marker heard", "pending: some markers heard", "pending: all heard")
_COLUMNS = (
    "task", "stage", "stream", "partition", "pending", "heard", "expected", "owed_by", "open_rows", "requested", "seen",
    "drained_at", "batch",
)  # fmt: skip
_NAMES = 4


@dataclass(frozen=True)
class DrainStage:
    """One stage: an entry per task, in order. `done_ms` are milliseconds since the request, nan while pending.

    `heard` of `expected` counts markers (or ends) over all SSPs of the task in this stage, `batch` is -1 while pending.
    `owed_by` names who is still to be heard, by stream where the task reads several.
    """

    name: str
    tasks: list[str]
    state: NDArray[np.int64]
    heard: NDArray[np.int64]
    expected: NDArray[np.int64]
    open_rows: NDArray[np.int64]
    done_ms: NDArray[np.float64]
    batch: NDArray[np.int64]
    owed_by: list[str]

    @property
    def pending(self) -> int:
        return int((self.state > DRAINED).sum())


@dataclass(frozen=True)
class Drain:
    """The stages in order, the moment of the request, and when the drain was seen, in milliseconds since then."""

    stages: list[DrainStage]
    requested: np.datetime64
    seen_ms: float

    @property
    def last_ms(self) -> float:
        """The latest moment that is known of."""
        done = np.concatenate([stage.done_ms for stage in self.stages])
        return float(np.nanmax(np.append(done, [self.seen_ms, 0.0])))

    @property
    def tasks(self) -> int:
        """Rows: a task counts once in each stage."""
        return sum(len(stage.tasks) for stage in self.stages)

    @property
    def pending(self) -> int:
        return sum(stage.pending for stage in self.stages)


def drain_of(frame: pd.DataFrame) -> Drain:
    """The drain of a frame with at least one row. Raises `UnknownColumn` for a frame that is not one of drains."""
    require(frame, _COLUMNS, "the frame of drains")
    requested = instants(frame["requested"]).min()
    seen_ms = float((instants(frame["seen"]).min() - requested) / np.timedelta64(1, "ms"))
    done = (instants(frame["drained_at"]) - requested) / np.timedelta64(1, "ms")
    rows = pd.DataFrame(
        {
            "stage": frame["stage"].astype(str),
            "task": frame["task"].astype(str),
            "stream": frame["stream"].astype(str),
            "partition": frame["partition"].astype("int64"),
            "pending": frame["pending"].fillna(True).astype(bool),
            "heard": frame["heard"].astype("int64"),
            "expected": frame["expected"].astype("int64"),
            "owed_by": frame["owed_by"].fillna("").astype(str),
            "open_rows": frame["open_rows"].astype("int64"),
            "done_ms": np.where(frame["pending"].fillna(True).astype(bool), np.nan, done),
            "batch": frame["batch"].astype("Float64").fillna(-1).astype("int64"),
        }
    ).sort_values(["stream", "partition"])
    by_stage = dict(iter(rows.groupby("stage", sort=False)))
    return Drain([_stage(name, by_stage[name], seen_ms) for name in in_order(by_stage)], requested, seen_ms)


def _stage(name: str, rows: pd.DataFrame, seen_ms: float) -> DrainStage:
    by_task = rows.groupby("task", sort=False)
    tasks = in_order(rows["task"])
    sums = by_task[["heard", "expected"]].sum().loc[tasks]
    # A task is done when the last of its SSPs is; rows it holds are the task's, said again for each SSP.
    ends = by_task[["done_ms", "batch", "open_rows"]].max().loc[tasks]
    pending = by_task["pending"].any().loc[tasks].to_numpy(dtype=bool)
    heard, expected = (sums[column].to_numpy(dtype=np.int64) for column in ("heard", "expected"))
    done_ms = np.where(pending, np.nan, ends["done_ms"].to_numpy(dtype=np.float64))
    state = np.select(
        [~pending & (done_ms < seen_ms), ~pending, heard == 0, heard < expected], [BEFORE, DRAINED, WAITING, PARTLY], ALL_HEARD
    )  # fmt: skip
    several = rows["stream"].nunique() > 1
    parts = dict(iter(by_task))
    return DrainStage(
        name=name,
        tasks=tasks,
        state=np.asarray(state, dtype=np.int64),
        heard=heard,
        expected=expected,
        open_rows=ends["open_rows"].to_numpy(dtype=np.int64),
        done_ms=done_ms,
        batch=np.where(pending, -1, ends["batch"].to_numpy(dtype=np.int64)),
        owed_by=[_owed(parts[task], several) for task in tasks],
    )


def _owed(rows: pd.DataFrame, several: bool) -> str:
    """`Partition 0, Partition 3`; for a task that reads several streams `Partition 0 (orders), …`."""
    by_stream: dict[str, set[str]] = {}
    for stream, names in zip(rows["stream"], rows["owed_by"], strict=True):
        by_stream.setdefault(stream, set()).update(name for name in names.split(", ") if name)
    parts = []
    for stream, owing in by_stream.items():
        names = in_order(owing)
        more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
        if names:
            parts.append(", ".join(names[:_NAMES]) + more + (f" ({stream})" if several else ""))
    return "; ".join(parts)
