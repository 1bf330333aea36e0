"""The log-structured window store: what a batch adds is written once, and read when it is needed.

Partials are kept in chunks of Arrow IPC bytes. Chunks that are written together form a run, in which rows are sorted by
their last window, so that each chunk covers a range of time. Runs of similar size are merged when there are `fan_in` of
them: a row is rewritten a logarithmic number of times, and the number of chunks stays bounded. The manifest, a small
dict, says which chunks there are and which times they cover; everything else stays where it is.

Nothing is written before `manifest()`, so that what is added and closed within a batch never leaves the process.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from workbench.windows.partials import Partials, concatenate

EARLIEST = -(2**63)
"""Lower than every watermark."""

Combine = Callable[[Partials], Partials]


class ChunkStore(Protocol):
    """Where chunks are kept, for example Spark's state store. Each call costs about a millisecond there."""

    def get(self, id: str) -> bytes: ...

    def put(self, id: str, data: bytes) -> None: ...

    def delete(self, id: str) -> None: ...


@dataclass(frozen=True)
class Chunk:
    """A chunk of a run, with its number of rows and the least `first` and `last` of those that are still open."""

    id: str
    run: int
    rows: int
    first: int
    last: int


class WindowStore:
    """Partials in chunks, through `chunks`; `manifest` is what `manifest()` returned before, or None for an empty one.

    `fan_in` runs of similar size are merged into one; a chunk has at most `chunk_rows` rows; up to `small_rows` rows
    cost so little beside the call itself that they are rewritten without much ado.
    """

    def __init__(
        self,
        chunks: ChunkStore,
        manifest: dict[str, Any] | None = None,
        *,
        fan_in: int = 8,
        chunk_rows: int = 65_536,
        small_rows: int = 8_192,
    ) -> None:
        if fan_in < 2 or chunk_rows < 1 or small_rows < 1:
            raise ValueError("fan_in must be at least 2, chunk_rows and small_rows at least 1")
        self._store = chunks
        self._fan_in, self._chunk_rows, self.small_rows = fan_in, chunk_rows, min(small_rows, chunk_rows)
        self._unwritten: dict[str, Partials] = {}
        self._condemned: list[str] = []
        self._combine: Combine | None = None
        manifest = manifest or {"next": 0, "arrived": 0, "closed": None, "schema": None, "chunks": []}
        self._next: int = manifest["next"]
        self._arrived: int = manifest["arrived"]
        self.closed: int = EARLIEST if manifest["closed"] is None else manifest["closed"]
        """The highest watermark up to which windows were closed."""
        self.schema: pa.Schema | None = None
        """Columns of the input that matter, as of the batches so far."""
        if manifest["schema"] is not None:
            self.schema = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(manifest["schema"])))
        self._chunks = {entry[0]: Chunk(*entry) for entry in manifest["chunks"]}

    @property
    def open_rows(self) -> int:
        """Partial rows that are held, merged or not."""
        return sum(chunk.rows for chunk in self._chunks.values())

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """All chunks, also those that the next `manifest()` will write."""
        return tuple(self._chunks.values())

    def arrive(self, rows: int) -> int:
        """Numbers for `rows` rows in the order of their arrival; returns the first."""
        self._arrived += rows
        return self._arrived - rows

    def append(self, partials: Partials, combine: Combine) -> None:
        """Holds `partials` as a new run; `combine` will merge runs."""
        self._combine = combine
        self._add_run([partials])
        self._compact()

    def read(self, chunk: Chunk) -> Partials:
        if chunk.id in self._unwritten:
            return self._unwritten[chunk.id]
        return _decoded(self._store.get(chunk.id))

    def narrow(self, chunk: Chunk, first: int, last: int) -> None:
        """Notes that the rows of `chunk` before these times are of no more use, without rewriting it."""
        self._chunks[chunk.id] = Chunk(chunk.id, chunk.run, chunk.rows, first, last)

    def replace(self, chunks: Sequence[Chunk], remains: Partials | None, combine: Combine) -> None:
        """Drops `chunks`, and holds what remains of them as a run in chunks that are close in time."""
        self._combine = combine
        for chunk in chunks:
            self._drop(chunk)
        if remains is not None and remains.rows:
            finer = min(self._fan_in, math.ceil(remains.rows / self.small_rows))
            self._add_run(split(remains, max(finer, math.ceil(remains.rows / self._chunk_rows))))

    def clear(self) -> None:
        """Forgets all rows, what was closed, and the types of the columns."""
        self.closed = EARLIEST
        self.schema = None
        for chunk in self.chunks:
            self._drop(chunk)

    def manifest(self) -> dict[str, Any]:
        """Writes what is held, deletes what was dropped, and returns what `WindowStore` needs to go on from here, as a
        dict that JSON can hold. Keep it together with the chunks."""
        fresh = self._runs(self._unwritten)
        small = [chunk for run in fresh if _rows(run) <= self.small_rows for chunk in run]
        if len({chunk.run for chunk in small}) > 1:
            self._merge(small)
        self._compact()
        for chunk in [self._chunks[id] for id in self._unwritten if self._chunks[id].rows > self._chunk_rows]:
            partials = self._unwritten[chunk.id]
            self._drop(chunk)
            self._add_run(split(partials, math.ceil(chunk.rows / self._chunk_rows)))
        for id, partials in self._unwritten.items():
            self._store.put(id, _encoded(partials))
        for id in self._condemned:
            self._store.delete(id)
        self._unwritten, self._condemned = {}, []
        return {
            "next": self._next,
            "arrived": self._arrived,
            "closed": None if self.closed == EARLIEST else self.closed,
            "schema": None if self.schema is None else base64.b64encode(self.schema.serialize()).decode(),
            "chunks": [[c.id, c.run, c.rows, c.first, c.last] for c in self._chunks.values()],
        }

    def _add_run(self, parts: Sequence[Partials]) -> None:
        run = self._next
        for part in parts:
            if not part.rows:
                continue
            id = str(self._next)
            self._next += 1
            self._unwritten[id] = part
            first, last = int(part.numbers("first").min()), int(part.numbers("last").min())
            self._chunks[id] = Chunk(id, run, part.rows, first, last)

    def _drop(self, chunk: Chunk) -> None:
        del self._chunks[chunk.id]
        if self._unwritten.pop(chunk.id, None) is None:
            self._condemned.append(chunk.id)

    def _runs(self, among: Sequence[str] | dict[str, Any]) -> list[list[Chunk]]:
        runs: dict[int, list[Chunk]] = {}
        for id in among:
            runs.setdefault(self._chunks[id].run, []).append(self._chunks[id])
        return list(runs.values())

    def _compact(self) -> None:
        """Merges runs while `fan_in` of them have a similar size, together with all that are smaller."""
        while True:
            tiers: dict[int, list[Chunk]] = {}
            counts: dict[int, int] = {}
            for run in self._runs(self._chunks):
                tier = self._tier(_rows(run))
                tiers.setdefault(tier, []).extend(run)
                counts[tier] = counts.get(tier, 0) + 1
            full = [tier for tier, count in counts.items() if count >= self._fan_in]
            if not full:
                return
            self._merge([chunk for tier in tiers if tier <= min(full) for chunk in tiers[tier]])

    def _tier(self, rows: int) -> int:
        return max(0, math.ceil(math.log(rows / self.small_rows, self._fan_in))) if rows > self.small_rows else 0

    def _merge(self, chunks: Sequence[Chunk]) -> None:
        assert self._combine is not None, "runs are only merged after an append or a replace"
        merged = self._combine(concatenate([self.read(chunk) for chunk in chunks]))
        for chunk in chunks:
            self._drop(chunk)
        self._add_run(split(merged, math.ceil(merged.rows / self._chunk_rows)))


def split(partials: Partials, parts: int) -> list[Partials]:
    """`parts` parts of about the same number of rows, each a range of `last`."""
    if parts <= 1:
        return [partials]
    order = np.argsort(partials.numbers("last"), kind="stable")
    return [partials.take(rows) for rows in np.array_split(order, parts)]


def _rows(run: Sequence[Chunk]) -> int:
    return sum(chunk.rows for chunk in run)


_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


def _encoded(partials: Partials) -> bytes:
    sink = pa.BufferOutputStream()
    for section in partials.sections:
        with pa.ipc.new_stream(sink, section.schema, options=_OPTIONS) as writer:
            writer.write_table(section.combine_chunks())
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _decoded(data: bytes) -> Partials:
    source = pa.BufferReader(data)
    sections = []
    while source.tell() < source.size():
        sections.append(pa.ipc.open_stream(source).read_all())
    return Partials(tuple(sections))
