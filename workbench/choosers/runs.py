"""The order in which a task takes what waits: runs of messages of one SSP, and their compact text.

Each run becomes one processing step of a task, about a millisecond. With a batch size of 1 and inputs that alternate,
each message is a step; a larger `batch_size` makes runs longer and the order coarser.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from workbench.errors import InvalidRuns

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Run:
    """The next `count` messages of the lane with this index, and why they go before what else waits."""

    lane: int
    count: int
    why: str


@dataclass(frozen=True, eq=False)
class Runs(Sequence[Run]):
    """Runs in columns: a batch may have a million. `words[why]` is the reason of a run."""

    lanes: Integers
    counts: Integers
    whys: Integers
    words: tuple[str, ...]

    @classmethod
    def of(cls, runs: Iterable[Run]) -> Runs:
        words: dict[str, int] = {}
        columns = [(run.lane, run.count, words.setdefault(run.why, len(words))) for run in runs]
        lanes, counts, whys = np.array(columns, dtype=np.int64).reshape(-1, 3).T
        return cls(lanes, counts, whys, tuple(words))

    @classmethod
    def joined(cls, parts: Sequence[Runs]) -> Runs:
        """The runs of all parts, one part after the other. Lanes are the same in all."""
        words = {word: None for part in parts for word in part.words}
        index = {word: at for at, word in enumerate(words)}
        whys = [np.array([index[word] for word in part.words], dtype=np.int64)[part.whys] for part in parts]
        none = np.empty(0, dtype=np.int64)
        return cls(
            np.concatenate([none, *(part.lanes for part in parts)]),
            np.concatenate([none, *(part.counts for part in parts)]),
            np.concatenate([none, *whys]),
            tuple(words),
        )

    def on_lanes(self, indexes: Sequence[int]) -> Runs:
        """The same runs where lane *i* is `indexes[i]`, as when only some of a task's lanes were planned."""
        return Runs(np.array(indexes, dtype=np.int64)[self.lanes], self.counts, self.whys, self.words)

    @property
    def messages(self) -> int:
        return int(self.counts.sum())

    def taken(self, lanes: int) -> list[int]:
        """How many messages of each of `lanes` lanes: by this much its position moves."""
        sums: list[float] = np.bincount(self.lanes, weights=self.counts, minlength=lanes).tolist()
        return [int(count) for count in sums]

    def order(self) -> Integers:
        """The lane of each message, in the order taken."""
        return np.repeat(self.lanes, self.counts)

    def __len__(self) -> int:
        return len(self.lanes)

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> Runs: ...
    def __getitem__(self, index: int | slice) -> Run | Runs:
        if isinstance(index, slice):
            return Runs(self.lanes[index], self.counts[index], self.whys[index], self.words)
        return Run(int(self.lanes[index]), int(self.counts[index]), self.words[self.whys[index]])

    def __iter__(self) -> Iterator[Run]:
        for lane, count, why in zip(self.lanes.tolist(), self.counts.tolist(), self.whys.tolist(), strict=True):
            yield Run(lane, count, self.words[why])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Runs):
            return NotImplemented
        same_order = np.array_equal(self.lanes, other.lanes) and np.array_equal(self.counts, other.counts)
        return same_order and bool((self._whys_in_words() == other._whys_in_words()).all())

    def _whys_in_words(self) -> npt.NDArray[np.object_]:
        return np.array([*self.words, None], dtype=object)[self.whys]

    def __repr__(self) -> str:
        shown = ", ".join(f"{run.count} of lane {run.lane} ({run.why})" for run in self[:8])
        return f"Runs({shown}{f', and {len(self) - 8} more' if len(self) > 8 else ''})"


@dataclass(frozen=True)
class BatchChoice:
    """The order of one batch of one task, and what the next one goes on from: plain JSON types."""

    runs: Runs
    state: dict[str, Any]


_LARGEST = 2**31
"""More runs than this are no batch but damage; checked before memory is asked for."""


def encode_runs(runs: Runs) -> str:
    """Text (base64 of zlib) of runs: under 100 bytes for a few, 4 kB for a million that alternate, and some 360 kB for a
    million messages of three lanes in an order of chance."""
    columns = [_narrow(column) for column in (runs.lanes, runs.counts, runs.whys)]
    header = json.dumps([1, len(runs), *(column.dtype.itemsize for column in columns), list(runs.words)])
    # The bytes of one significance lie together: most of the higher ones are 0.
    planes = b"".join(column.view(np.uint8).reshape(len(runs), column.itemsize).T.tobytes() for column in columns)
    return base64.b64encode(zlib.compress(header.encode() + b"\n" + planes)).decode()


def decode_runs(text: str) -> Runs:
    """The inverse of `encode_runs`. Raises `InvalidRuns` for text that it can not have written."""
    try:
        header, _, planes = zlib.decompress(base64.b64decode(text, validate=True)).partition(b"\n")
        version, length, *sizes, words = json.loads(header)
        if version != 1:
            raise InvalidRuns.unknown_version(version)
        if not 0 <= length <= _LARGEST or len(sizes) != 3 or len(planes) != length * sum(sizes):
            raise InvalidRuns.unreadable("its columns have other lengths than it says")
        columns, start = [], 0
        for size in sizes:
            stop = start + size * length
            plane = np.frombuffer(planes[start:stop], dtype=np.uint8).reshape(size, length)
            columns.append(np.ascontiguousarray(plane.T).reshape(-1).view(f"<u{size}").astype(np.int64))
            start = stop
        if length and not (columns[2].max() < len(words) and columns[1].min() > 0):
            raise InvalidRuns.unreadable("a run without messages or without a reason")
        lanes, counts, whys = columns
        return Runs(lanes, counts, whys, tuple(map(str, words)))
    except (ValueError, TypeError, zlib.error) as error:
        if isinstance(error, InvalidRuns):
            raise
        raise InvalidRuns.unreadable(repr(error)) from error


def _narrow(column: Integers) -> npt.NDArray[Any]:
    largest = int(column.max()) if len(column) else 0
    size = next(size for size in (1, 2, 4, 8) if largest < 256**size)
    return column.astype(f"<u{size}")
