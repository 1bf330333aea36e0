"""Windows with aggregates: rows go in, panes come out when the watermark has passed their end."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from workbench.errors import InvalidTime, WrongType
from workbench.times import NO_TIME, event_times
from workbench.windows.assigners import Aligned, Session
from workbench.windows.grouping import Numbers, canonical
from workbench.windows.panes import empty, finish
from workbench.windows.partials import PartialAggregation, Partials, concatenate
from workbench.windows.spec import WindowSpec
from workbench.windows.store import EARLIEST, Chunk, WindowStore

_FARTHEST = 2**63 // 1000 - 2**50
"""Panes show times in microseconds; this much is left for the window itself."""

_BLOCK = 4_000_000
"""About so many rows at a time are spread to sliding windows."""


class WindowAggregation:
    """Aggregates rows in the windows of `spec`. It holds no state: that is all in the `WindowStore` it is given."""

    def __init__(self, spec: WindowSpec) -> None:
        self.spec = spec
        self._partial = PartialAggregation(spec)

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """Columns of the panes for rows of `schema`. Raises `UnknownColumn`, `WrongType`."""
        return self.spec.output_schema(schema)

    def add(self, store: WindowStore, table: pa.Table, watermark: int | None) -> tuple[pa.Table, int]:
        """Adds the rows of one batch; returns the late rows, unchanged, and the number of rows that were accepted.

        A row is late if all its windows are closed: their end is at or before the `watermark` (None: there is none yet)
        or the store has closed them before. Of sliding windows it counts in those that are still open. For sessions a
        row is late if its event time is less than the watermark, since a session that was closed can not be reopened;
        so the panes always equal those of a batch query over the accepted rows. A row without an event time belongs to
        no window and is returned among the late rows too. Reads no state, except when runs are due to be merged.

        Raises `UnknownColumn`, `WrongType`, `InvalidTime`, `SumOverflow`.
        """
        self._learn(store, table.schema)
        times = event_times(table[self.spec.time_column], self.spec.time_column)
        reached = max(store.closed, EARLIEST if watermark is None else watermark)
        accepted, spans = self._assign(times, reached)
        count = int(np.count_nonzero(accepted))
        if count == 0:
            return table, 0
        late = table.slice(0, 0)
        if count < len(accepted):
            mask = pa.array(accepted)
            table, late = table.filter(mask), table.filter(pa.array(~accepted))
            times, spans = times[accepted], _pair(spans, accepted)
        first = store.arrive(count)
        partials = self._partial.start(
            [canonical(table[key]) for key in self.spec.keys],
            [canonical(table[column]) for column in self.spec.columns],
            spans,
            times,
            np.arange(first, first + count),
        )
        store.append(partials, self._partial.combine)
        return late, count

    def close(self, store: WindowStore, watermark: int, *, drained: bool = False) -> pa.Table:
        """Every window that the `watermark` closes, each once, sorted by window start and keys (nulls last).

        `drained` says that a drain raised the watermark and not time: panes tell so in their column of that name, since
        rows that would still have come are missing in them.

        Tumbling and sliding windows close when their end is at or before the watermark. A session closes when its end
        is before it, because a row at its end would still belong to it. `MAX_TIMESTAMP` closes all. A watermark that is
        not higher than before closes nothing.
        """
        before, store.closed = store.closed, max(store.closed, watermark)
        if watermark <= before or store.schema is None:
            return self._empty(store)
        if isinstance(self.spec.assigner, Session):
            ready = self._close_sessions(store, self.spec.assigner, watermark)
        else:
            ready = self._close_aligned(store, self.spec.assigner, before, watermark)
        schema = self.spec.panes(store.schema)
        panes = [finish(self.spec, self._partial, part, schema, drained) for part in ready if part.rows]
        return pa.concat_tables(panes) if panes else self._empty(store)

    def start_generation(self, store: WindowStore, *, reset: bool) -> None:
        """No window counts as closed any more, so that none of the rows to come is late by what was before.

        What is held for windows that are still open is kept, or dropped with `reset`. A window that was emitted before
        is emitted again if rows come for it: with these rows only.
        """
        if reset or isinstance(self.spec.assigner, Session):
            # Of a session that was emitted nothing is held, so there is nothing to tell apart.
            if reset:
                store.clear()
            store.closed = EARLIEST
            return
        windows, before = self.spec.assigner, store.closed
        store.closed = EARLIEST
        if before == EARLIEST or not store.chunks:
            return
        fresh = max(windows.last_closed_start(before) + windows.slide, EARLIEST)
        remains = concatenate([store.read(chunk) for chunk in store.chunks])
        remains = _from_window(remains.where(remains.numbers("last") >= fresh), fresh)
        store.replace(store.chunks, self._partial.combine(remains) if remains.rows else None, self._partial.combine)

    def earliest_open_start(self, store: WindowStore, watermark: int) -> int:
        """A time before which no window starts that is still to be emitted after `close(store, watermark)`, whatever
        rows are yet to come: the watermark of the panes, whose event time is their window's start."""
        if isinstance(self.spec.assigner, Session):
            return min([watermark, *(chunk.first for chunk in store.chunks)])
        return max(self.spec.assigner.last_closed_start(watermark) + self.spec.assigner.slide, EARLIEST)

    def _empty(self, store: WindowStore) -> pa.Table:
        return empty(self.spec, None if store.schema is None else self.spec.panes(store.schema))

    def _learn(self, store: WindowStore, schema: pa.Schema) -> None:
        used = self.spec.used(schema)
        if store.schema is None:
            self.spec.panes(used)
            store.schema = used
        elif used != store.schema:
            try:
                widened = pa.unify_schemas([store.schema, used], promote_options="permissive")
            except pa.ArrowException as error:
                raise WrongType.changed(_types(store.schema), _types(used)) from error
            self.spec.panes(widened)
            store.schema = widened

    def _assign(self, times: Numbers, reached: int) -> tuple[npt.NDArray[np.bool_], tuple[Numbers, Numbers]]:
        """Which rows are accepted, and first and last open window of each row (sessions: its time)."""
        there = times != NO_TIME
        known = times if there.all() else np.where(there, times, 0)
        for time in (int(known.min()), int(known.max())) if len(known) else ():
            if abs(time) > _FARTHEST:
                raise InvalidTime.out_of_windows(self.spec.time_column, time)
        if isinstance(self.spec.assigner, Session):
            return there & (known >= reached), (known, known)
        first, last = self.spec.assigner.starts(known)
        closed = max(self.spec.assigner.last_closed_start(reached), EARLIEST)
        if not self.spec.assigner.is_tumbling and closed > EARLIEST:
            first = np.maximum(first, closed + self.spec.assigner.slide)
        return there & (last > closed), (first, last)

    def _close_aligned(self, store: WindowStore, windows: Aligned, before: int, watermark: int) -> Iterator[Partials]:
        closed = windows.last_closed_start(watermark)
        fresh = max(windows.last_closed_start(before) + windows.slide, EARLIEST)
        if closed < fresh:
            return iter(())
        ready: list[Partials] = []
        rewritten: list[_Read] = []
        small: list[_Read] = []
        for chunk in [chunk for chunk in store.chunks if chunk.first <= closed]:
            partials = store.read(chunk)
            first, last = partials.numbers("first"), partials.numbers("last")
            needed = (first <= closed) & (last >= fresh)
            ready.append(partials.where(needed))
            read = _Read(chunk, partials, last > closed)
            if read.remaining == 0:
                store.replace([chunk], None, self._partial.combine)
            elif 2 * read.remaining <= chunk.rows:
                rewritten.append(read)  # the rows that are gone have paid for rewriting the others
            elif chunk.rows <= store.small_rows:
                small.append(read)
            elif 2 * np.count_nonzero(needed) < chunk.rows:
                rewritten.append(read)  # most was read for nothing; cut by time it will not be again
            else:
                self._keep(store, read, closed + windows.slide)
        # Small ones are read at every close from now on: as one they cost one call, as long as that one is small too.
        small.sort(key=lambda read: read.remaining)
        fits = [total <= store.small_rows for total in accumulate(read.remaining for read in small)].count(True)
        if fits == 1 and not rewritten:
            fits = 0
        rewritten += small[:fits]
        for read in small[fits:]:
            self._keep(store, read, closed + windows.slide)
        self._rewrite(store, rewritten)
        return self._in_windows(ready, windows, fresh, closed)

    def _in_windows(self, ready: list[Partials], windows: Aligned, fresh: int, closed: int) -> Iterator[Partials]:
        """The partials of the windows from `fresh` to `closed`, one row for each window, in blocks of bounded size."""
        if not ready:
            return
        joined = concatenate(ready)
        if windows.is_tumbling or not joined.rows:
            yield joined
            return
        joined = self._partial.combine(joined)
        fresh = max(fresh, int(joined.numbers("first").min()))
        closed = min(closed, int(joined.numbers("last").max()))
        expected = joined.rows * (windows.size // windows.slide + 1)
        step = max(1, ((closed - fresh) // windows.slide + 1) * _BLOCK // max(expected, 1)) * windows.slide
        for start in range(fresh, closed + 1, step):
            yield _spread(joined, start, min(start + step - windows.slide, closed), windows.slide)

    def _close_sessions(self, store: WindowStore, windows: Session, watermark: int) -> Iterator[Partials]:
        ended = watermark - windows.gap  # a session whose last event time is before this has ended
        if not any(chunk.last < ended for chunk in store.chunks):
            return
        # A span that seems to have ended may be continued by another, which then begins before the watermark.
        chunks = [chunk for chunk in store.chunks if chunk.first < watermark]
        parts = [store.read(chunk) for chunk in chunks]
        joined = concatenate(parts)
        ids, _, last_of = self._partial.identify(joined)
        open_row = (last_of >= ended)[ids]
        seems_ended = np.zeros(len(last_of), np.bool_)
        seems_ended[ids[joined.numbers("last") < ended]] = True
        # Rows are numbered by section and within it by chunk.
        origin = np.concatenate([
            np.repeat(np.arange(len(parts)), [part.sections[i].num_rows for part in parts])
            for i in range(len(joined.sections))
        ])  # fmt: skip
        touched = np.zeros(len(chunks), np.bool_)
        touched[origin[seems_ended[ids]]] = True
        remains = joined.where(open_row & touched[origin])
        done = [chunk for chunk, is_touched in zip(chunks, touched, strict=True) if is_touched]
        store.replace(done, self._partial.combine(remains) if remains.rows else None, self._partial.combine)
        yield joined.where(~open_row)

    def _keep(self, store: WindowStore, read: _Read, next_start: int) -> None:
        first = int(read.partials.numbers("first")[read.still_open].min())
        last = int(read.partials.numbers("last")[read.still_open].min())
        store.narrow(read.chunk, max(first, next_start), last)

    def _rewrite(self, store: WindowStore, reads: list[_Read]) -> None:
        if reads:
            remains = concatenate([read.partials.where(read.still_open) for read in reads])
            if len(reads) > 1:
                remains = self._partial.combine(remains)
            store.replace([read.chunk for read in reads], remains, self._partial.combine)


class _Read:
    """A chunk that was read, and which of its rows belong to windows that are still open."""

    def __init__(self, chunk: Chunk, partials: Partials, still_open: npt.NDArray[np.bool_]) -> None:
        self.chunk = chunk
        self.partials = partials
        self.still_open = still_open
        self.remaining = int(np.count_nonzero(still_open))


def _spread(partials: Partials, fresh: int, closed: int, slide: int) -> Partials:
    """One row for each window from `fresh` to `closed` that a row belongs to."""
    sections = []
    for section in partials.sections:
        first = np.maximum(np.asarray(section["first"]), fresh)
        last = np.minimum(np.asarray(section["last"]), closed)
        times = np.maximum((last - first) // slide + 1, 0)
        rows = np.repeat(np.arange(len(times)), times)
        nth = np.arange(len(rows)) - np.repeat(np.cumsum(times) - times, times)
        start = pa.chunked_array([pa.array(first[rows] + nth * slide)])
        spread = section.take(pa.array(rows))
        for field in ("first", "last"):
            spread = spread.set_column(spread.schema.get_field_index(field), field, start)
        sections.append(spread)
    return Partials(tuple(sections))


def _from_window(partials: Partials, fresh: int) -> Partials:
    """The same rows, without the windows before `fresh`."""
    sections = []
    for section in partials.sections:
        first = pa.chunked_array([pa.array(np.maximum(np.asarray(section["first"]), fresh))])
        sections.append(section.set_column(section.schema.get_field_index("first"), "first", first))
    return Partials(tuple(sections))


def _pair(spans: tuple[Numbers, Numbers], chosen: npt.NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
    """Both spans of the chosen rows; one array stays one array, which tells that all windows of a row are one."""
    first, last = spans
    if first is last:
        first = first[chosen]
        return first, first
    return first[chosen], last[chosen]


def _types(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
