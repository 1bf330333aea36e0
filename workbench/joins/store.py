"""Where joins keep rows: a log-structured store, like that of windows (`workbench.windows.store`).

A batch writes what it adds as one new chunk. Every chunk covers a range of places (times, or hashes of keys); the
manifest, a small dict, tells which, so that a batch reads only chunks in which there can be something for it, and what
has expired goes without being read. Chunks that are written together form a run; runs of similar size are merged when
there are `fan_in` of them, and cut into narrow ranges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from workbench.joins.held import Held, together
from workbench.windows import ChunkStore
from workbench.windows.grouping import Numbers

Combine = Callable[[Held], Held]


@dataclass(frozen=True)
class Chunk:
    """A chunk of a run: its number of rows, the least place that is still of use in it, and the greatest."""

    id: str
    run: int
    rows: int
    first: int
    last: int


@dataclass(frozen=True)
class Sizes:
    """A chunk has at most `chunk_rows` rows; up to `small_rows` cost so little beside the call itself that they are
    rewritten without much ado; `fan_in` runs of similar size are merged into one."""

    fan_in: int = 8
    chunk_rows: int = 16_384
    small_rows: int = 4_096

    def __post_init__(self) -> None:
        if self.fan_in < 2 or not 1 <= self.small_rows <= self.chunk_rows:
            raise ValueError("fan_in must be at least 2, small_rows at least 1 and at most chunk_rows")


SIZES = Sizes()


class HeldLog:
    """Rows in chunks, through `chunks`, under ids that begin with `name`; `manifest` is what `manifest()` returned before.

    `combine` drops what is superseded when runs are merged. Nothing is written before `manifest()`, and a chunk is read at
    most once in the life of this object, which is a batch.
    """

    def __init__(
        self,
        chunks: ChunkStore,
        name: str,
        manifest: list[Any] | None = None,
        *,
        combine: Combine | None = None,
        sizes: Sizes = SIZES,
    ) -> None:
        self._store, self._name, self._combine, self._sizes = chunks, name, combine, sizes
        self._next: int = manifest[0] if manifest else 0
        self._chunks = {entry[0]: Chunk(*entry) for entry in (manifest[1] if manifest else [])}
        self._known: dict[str, Held] = {}
        self._unwritten: set[str] = set()
        self._condemned: list[str] = []

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """All chunks, also those that the next `manifest()` will write."""
        return tuple(self._chunks.values())

    @property
    def rows(self) -> int:
        """Rows that are held. Some may be of no more use: a chunk goes when all of it is."""
        return sum(chunk.rows for chunk in self._chunks.values())

    @property
    def first(self) -> int | None:
        """No row that is held has a lesser place; None if none is held."""
        return min((chunk.first for chunk in self._chunks.values()), default=None)

    def append(self, held: Held) -> None:
        if len(held):
            self._add_run([held])

    def between(self, first: int, last: int) -> Held:
        """The rows with a place from `first` to `last`, and their neighbours in the same chunks."""
        return together([self._read(c) for c in self.chunks if c.first <= last and c.last >= first])

    def near(self, places: Numbers) -> Held:
        """The rows with one of these `places`, which are sorted, and their neighbours in the same chunks."""
        firsts = np.searchsorted(places, np.array([chunk.first for chunk in self.chunks], np.int64), side="left")
        lasts = np.searchsorted(places, np.array([chunk.last for chunk in self.chunks], np.int64), side="right")
        return together([self._read(c) for c, hit in zip(self.chunks, lasts > firsts, strict=True) if hit])

    def expire(self, bound: int) -> None:
        """Rows whose place is less than `bound` are of no more use. Reads nothing."""
        for chunk in [chunk for chunk in self.chunks if chunk.first < bound]:
            if chunk.last < bound:
                self._drop(chunk)
            else:
                self._narrow(chunk, bound)

    def withdraw(self, bound: int) -> Held:
        """Takes out the rows whose place is less than `bound` and returns them."""
        gone: list[Held] = []
        small: list[tuple[Chunk, Held]] = []
        for chunk in [chunk for chunk in self.chunks if chunk.first < bound]:
            held = self._read(chunk)
            leaves = held.places < bound
            gone.append(held.where(leaves))
            if chunk.last < bound:
                self._drop(chunk)
                continue
            if chunk.rows <= self._sizes.small_rows:
                small.append((chunk, held.where(~leaves)))
            elif 2 * (len(held) - len(gone[-1])) <= chunk.rows or 2 * len(gone[-1]) < chunk.rows:
                # Either the rows that are gone have paid for rewriting the others, or most was read for nothing: cut
                # by place, it will not be again.
                self._replace([chunk], held.where(~leaves))
            else:
                self._narrow(chunk, bound)
        # Small ones would each be read again at every advance of the bound; as one they cost one call.
        if len(small) > 1 and sum(len(held) for _, held in small) <= self._sizes.small_rows:
            self._replace([chunk for chunk, _ in small], together([held for _, held in small]))
        else:
            for chunk, _ in small:
                self._narrow(chunk, bound)
        return together(gone)

    def clear(self) -> None:
        for chunk in self.chunks:
            self._drop(chunk)

    def manifest(self) -> list[Any]:
        """Writes what is held, deletes what was dropped, and returns what `HeldLog` needs to go on from here, as a list
        that JSON can hold. Keep it together with the chunks."""
        fresh = [self._chunks[id] for id in sorted(self._unwritten, key=int)]
        small = [chunk for chunk in fresh if chunk.rows <= self._sizes.small_rows]
        if len({chunk.run for chunk in small}) > 1:
            self._merge(small)
        self._compact()
        for chunk in [self._chunks[id] for id in sorted(self._unwritten, key=int)]:
            if chunk.rows > self._sizes.chunk_rows:
                self._replace([chunk], self._known[chunk.id])
        for id in sorted(self._unwritten, key=int):
            self._store.put(self._name + id, self._known[id].encode())
        for id in self._condemned:
            self._store.delete(self._name + id)
        self._unwritten, self._condemned = set(), []
        return [self._next, [[c.id, c.run, c.rows, c.first, c.last] for c in self.chunks]]

    def _read(self, chunk: Chunk) -> Held:
        if chunk.id not in self._known:
            self._known[chunk.id] = Held.decode(self._store.get(self._name + chunk.id))
        held = self._known[chunk.id]
        return held.where(held.places >= chunk.first)

    def _narrow(self, chunk: Chunk, first: int) -> None:
        self._chunks[chunk.id] = replace(chunk, first=first)

    def _add_run(self, parts: Iterable[Held]) -> None:
        run = self._next
        for part in parts:
            if len(part):
                id = str(self._next)
                self._next += 1
                self._known[id] = part
                self._unwritten.add(id)
                self._chunks[id] = Chunk(id, run, len(part), int(part.places.min()), int(part.places.max()))

    def _drop(self, chunk: Chunk) -> None:
        del self._chunks[chunk.id]
        self._known.pop(chunk.id, None)
        if chunk.id in self._unwritten:
            self._unwritten.remove(chunk.id)
        else:
            self._condemned.append(chunk.id)

    def _replace(self, chunks: Sequence[Chunk], held: Held) -> None:
        for chunk in chunks:
            self._drop(chunk)
        finer = min(self._sizes.fan_in, math.ceil(len(held) / self._sizes.small_rows))
        self._add_run(held.split(max(finer, math.ceil(len(held) / self._sizes.chunk_rows))))

    def _merge(self, chunks: Sequence[Chunk]) -> None:
        merged = together([self._read(chunk) for chunk in chunks])
        if self._combine is not None:
            merged = self._combine(merged)
        for chunk in chunks:
            self._drop(chunk)
        self._add_run(merged.split(math.ceil(len(merged) / self._sizes.chunk_rows)))

    def _compact(self) -> None:
        """Merges runs while `fan_in` of them have a similar size, together with all that are smaller."""
        while True:
            runs: dict[int, list[Chunk]] = {}
            for chunk in self.chunks:
                runs.setdefault(chunk.run, []).append(chunk)
            tiers: dict[int, list[list[Chunk]]] = {}
            for run in runs.values():
                tiers.setdefault(self._tier(sum(chunk.rows for chunk in run)), []).append(run)
            full = [tier for tier, members in tiers.items() if len(members) >= self._sizes.fan_in]
            if not full:
                return
            self._merge([c for tier, members in tiers.items() if tier <= min(full) for run in members for c in run])

    def _tier(self, rows: int) -> int:
        return (
            math.ceil(math.log(rows / self._sizes.small_rows, self._sizes.fan_in))
            if rows > self._sizes.small_rows
            else 0
        )
