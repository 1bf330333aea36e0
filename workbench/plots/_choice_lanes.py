"""From the runs that choosers took to strips that can be drawn: few enough to see, whatever their number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.plots._labels import in_order
from workbench.plots._theme import require

MOST_PIECES = 4_000
"""So many bars all strips may have together. Beyond, they are drawn in equal steps of the order."""
_FEWEST_STEPS, _MOST_STEPS = 60, 240
_COLUMNS = ("batch", "task", "position", "stream", "partition", "offset", "messages", "why")


@dataclass(frozen=True)
class TaskOrder:
    """What one task took, in order. A piece is messages of one SSP that go for one reason: bar by bar.

    `start` and `length` are in messages of the task, counted over all batches shown; `share` is how many of them are the
    SSP's own: 1 where the piece is drawn as it was. `taken` counts its own messages, `offset` is that of the first (-1
    where pieces are steps), `batch_from` and `batch_to` are the batches it spans.
    """

    name: str
    ssps: list[str]
    lane: NDArray[np.int64]
    why: NDArray[np.int64]
    start: NDArray[np.float64]
    length: NDArray[np.float64]
    share: NDArray[np.float64]
    taken: NDArray[np.float64]
    offset: NDArray[np.int64]
    batch_from: NDArray[np.int64]
    batch_to: NDArray[np.int64]
    batches: NDArray[np.int64]
    batch_starts: NDArray[np.int64]
    messages: int
    runs: int

    @property
    def in_steps(self) -> bool:
        return bool((self.offset < 0).any())


def ordered(frame: pd.DataFrame) -> pd.DataFrame:
    """The runs in the order taken, with the column `ssp`. Raises `UnknownColumn` if it is not a frame of choices."""
    require(frame, _COLUMNS, "the frame of choices")
    rows = pd.DataFrame({name: frame[name].to_numpy() for name in _COLUMNS})
    rows = rows.assign(
        task=frame["task"].astype(str).to_numpy(),
        why=frame["why"].astype(str).to_numpy(),
        ssp=[f"{s}[{p}]" for s, p in zip(frame["stream"].tolist(), frame["partition"].tolist(), strict=True)],
    )
    return rows.sort_values(["batch", "position"], kind="stable", ignore_index=True)


def task_orders(rows: pd.DataFrame, tasks: list[str], words: list[str]) -> list[TaskOrder]:
    """The strips of some tasks, from `ordered` rows. `why` is an index of `words`."""
    by_task = dict(iter(rows.groupby("task", sort=False)))
    lanes = sum(by_task[task]["ssp"].nunique() for task in tasks)
    steps = min(_MOST_STEPS, max(_FEWEST_STEPS, MOST_PIECES // max(1, lanes)))
    return [_of_task(task, by_task[task], words, steps, MOST_PIECES // len(tasks)) for task in tasks]


def _of_task(name: str, rows: pd.DataFrame, words: list[str], steps: int, most: int) -> TaskOrder:
    ssps = in_order(rows["ssp"])
    lane = pd.Index(ssps).get_indexer(rows["ssp"]).astype(np.int64)
    why = pd.Index(words).get_indexer(rows["why"]).astype(np.int64)
    counts = rows["messages"].to_numpy(dtype=np.int64)
    batch = rows["batch"].to_numpy(dtype=np.int64)
    ends = np.cumsum(counts)
    batches, first_of_batch = np.unique(batch, return_index=True)
    batch_starts = (ends - counts)[first_of_batch]
    new = np.ones(len(rows), dtype=bool)
    new[1:] = (np.diff(lane) != 0) | (np.diff(why) != 0)
    begins = np.flatnonzero(new)
    if len(begins) <= min(most, steps):
        last = np.append(begins[1:], len(rows)) - 1
        start = (ends - counts)[begins].astype(np.float64)
        length = ends[last] - start
        pieces = (lane[begins], why[begins], start, length, np.ones(len(begins)), length)
        offset = rows["offset"].to_numpy(dtype=np.int64)[begins]
    else:
        pieces = _steps(lane, why, ends, counts, len(ssps), steps)
        offset = np.full(len(pieces[0]), -1)
    begin, end = pieces[2], pieces[2] + pieces[3]
    return TaskOrder(
        name,
        ssps,
        *pieces,
        offset,
        batches[np.searchsorted(batch_starts, begin + 0.5, side="right") - 1],
        batches[np.maximum(np.searchsorted(batch_starts, end - 0.5, side="right") - 1, 0)],
        batches,
        batch_starts,
        int(ends[-1]),
        len(rows),
    )


_Pieces = tuple[
    NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]
]  # fmt: skip


def _steps(
    lane: NDArray[np.int64], why: NDArray[np.int64], ends: NDArray[np.int64], counts: NDArray[np.int64], lanes: int, steps: int
) -> _Pieces:  # fmt: skip
    """Equal steps of the order: of each SSP how much of each step is its own, and for which reason most of that went."""
    edges = np.linspace(0, int(ends[-1]), steps + 1)
    at = np.concatenate([[0], ends])
    found: list[_Pieces] = []
    for index in range(lanes):
        mine = lane == index
        reasons = np.unique(why[mine])
        taken = np.stack(
            [
                np.diff(np.interp(edges, at, np.concatenate([[0], np.cumsum(counts * (mine & (why == reason)))])))
                for reason in reasons.tolist()
            ]
        )
        total, main = taken.sum(axis=0), reasons[taken.argmax(axis=0)]
        # Steps that look alike become one bar: tenths of a share are what an eye can tell apart.
        tenths = np.where(total > 1e-9, np.maximum(np.round(10 * total / (edges[1] - edges[0])), 1), 0)
        new = np.ones(steps, dtype=bool)
        new[1:] = (np.diff(tenths) != 0) | ((np.diff(main) != 0) & (tenths[1:] > 0))
        begins = np.flatnonzero(new)
        sums, lengths = np.add.reduceat(total, begins), np.diff(np.append(edges[begins], edges[-1]))
        kept = tenths[begins] > 0
        found.append(
            (
                np.full(int(kept.sum()), index),
                main[begins][kept],
                edges[begins][kept],
                lengths[kept],
                (sums / lengths)[kept],
                sums[kept],
            )
        )
    columns = [np.concatenate(column) for column in zip(*found, strict=True)]
    return columns[0], columns[1], columns[2], columns[3], columns[4], columns[5]
