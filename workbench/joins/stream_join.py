"""Stream–stream join: pairs within a bound in time, each once, and rows that no match can come for any more.

A row is held as long as a match may still come: until the *other* side's watermark has passed all times that are within
the bound. A pair comes out when the later of its two rows arrives, whatever the order and the batches. Which rows are
late depends on their own side's watermark only, so what is accepted does not depend on how the sides are interleaved.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from workbench.errors import InvalidJoin
from workbench.joins.held import Held
from workbench.joins.keys import canonical_rows, common_codes, latest, without_nulls
from workbench.joins.matching import Matching
from workbench.joins.spec import JoinSpec, Side
from workbench.joins.store import SIZES, HeldLog, Sizes
from workbench.messages import MAX_TIMESTAMP
from workbench.times import NO_TIME, event_times
from workbench.windows import ChunkStore
from workbench.windows.grouping import Numbers
from workbench.windows.store import EARLIEST

FARTHEST = 2**62
"""Times beyond this, in either direction, leave no room for a bound."""
_SETTLED = -1
"""Instead of the number of a held left row: it has a match, so nobody waits for one."""
_NOTHING = pa.table({})


class JoinStore:
    """What a join holds, in `chunks`; `manifest` is what `manifest()` returned before, or None for an empty one.

    Of a left join, `matched` has the numbers of held left rows whose first match came after them.
    """

    def __init__(self, chunks: ChunkStore, manifest: dict[str, Any] | None = None, sizes: Sizes = SIZES) -> None:
        known: dict[str, Any] = manifest or {}
        self.left = HeldLog(chunks, "left ", known.get("left"), sizes=sizes)
        self.right = HeldLog(chunks, "right ", known.get("right"), sizes=sizes)
        self.matched = HeldLog(chunks, "matched ", known.get("matched"), combine=_each_once, sizes=sizes)
        self._arrived: int = known.get("arrived", 0)
        self._schemas: dict[str, pa.Schema] = {
            side: pa.ipc.read_schema(pa.BufferReader(base64.b64decode(text)))
            for side, text in known.get("schemas", {}).items()
        }
        self._empty: dict[str, pa.Table] = {}

    @property
    def open_rows(self) -> int:
        """Rows of both sides that are held."""
        return self.left.rows + self.right.rows

    def log(self, side: Side) -> HeldLog:
        return self.left if side == "left" else self.right

    def rows_of(self, side: Side) -> pa.Table:
        """No rows, with the columns that the side is known to have; none as long as nothing of it came."""
        if side not in self._empty:
            schema = self._schemas.get(side)
            self._empty[side] = _NOTHING if schema is None else schema.empty_table()
        return self._empty[side]

    def learn(self, side: Side, schema: pa.Schema) -> bool:
        """Notes the columns of a side; whether they are new. Raises `InvalidJoin` if they do not go with those of the
        rows that are held."""
        known = self._schemas.get(side)
        if known == schema:
            return False
        if known is not None:
            try:
                schema = pa.unify_schemas([known, schema], promote_options="permissive")
            except pa.ArrowException as error:
                if self.log(side).rows:
                    raise InvalidJoin.types_changed(side, _types(known), _types(schema)) from error
        self._schemas[side] = schema
        self._empty.pop(side, None)
        return True

    def arrive(self, rows: int) -> Numbers:
        """Numbers for `rows` rows, in the order of their arrival."""
        self._arrived += rows
        return np.arange(self._arrived - rows, self._arrived)

    def clear(self) -> None:
        """Forgets all rows and what is known of them."""
        for log in (self.left, self.right, self.matched):
            log.clear()
        self._schemas, self._empty = {}, {}

    def manifest(self) -> dict[str, Any]:
        """Writes what changed; returns what `JoinStore` needs to go on from here, as a dict that JSON can hold."""
        return {
            "left": self.left.manifest(),
            "right": self.right.manifest(),
            "matched": self.matched.manifest(),
            "arrived": self._arrived,
            "schemas": {side: base64.b64encode(s.serialize()).decode() for side, s in self._schemas.items()},
        }


class StreamJoin:
    """Joins the rows of two streams as `spec` says. It holds no state: that is all in the `JoinStore` it is given.

    `watermarks` are those of the left and of the right side; `EARLIEST` where there is none yet.
    """

    def __init__(self, spec: JoinSpec) -> None:
        self.spec = spec

    def accept(self, side: Side, table: pa.Table, watermark: int) -> tuple[pa.Table, pa.Table]:
        """The rows that can be joined, and those that can not: late, since their event time is less than the side's own
        `watermark`, or without an event time. Raises `InvalidTime`, `InvalidJoin`."""
        accepted = self._times(side, table) >= max(watermark, NO_TIME + 1)
        if accepted.all():
            return table, table.slice(0, 0)
        return table.filter(pa.array(accepted)), table.filter(pa.array(~accepted))

    def add(
        self, store: JoinStore, side: Side, table: pa.Table, watermarks: tuple[int, int], *, drained: bool = False
    ) -> Iterator[pa.Table]:
        """Takes accepted rows of one side; yields the pairs they make with rows that came before, in blocks.

        In a left join also the left rows that are so old that the right side's watermark has passed their bound;
        `drained` says that it was a drain that raised it to the maximum. The state has changed when this returns. Reads the chunks of the other side that are within the bound of these rows.
        Raises `InvalidJoin`.
        """
        table = canonical_rows(table)
        if store.learn(side, table.schema):
            self.spec.names(store.rows_of("left").column_names, store.rows_of("right").column_names)
        if side == "right" or self.spec.how == "inner":
            keyed = without_nulls(table, self.spec.keys(side))
            table = table if keyed.all() else table.filter(pa.array(keyed))
        if not len(table):
            return iter(())
        times = self._times(side, table)
        if side == "left":
            results = self._add_left(store, table, times, watermarks[1], drained)
        else:
            results = self._add_right(store, table, times, watermarks[0])
        return chain.from_iterable(list(results))

    def expire(self, store: JoinStore, watermarks: tuple[int, int], *, drained: bool = False) -> Iterator[pa.Table]:
        """Lets go of all rows for which no match can come any more; yields those of them that a left join emits alone.

        Reads, of a left join, the chunks that hold such rows, of an inner join nothing.
        """
        store.right.expire(self._bound("right", watermarks[0]))
        bound = self._bound("left", watermarks[1])
        if self.spec.how == "inner":
            store.left.expire(bound)
            return iter(())
        gone = store.left.withdraw(bound)
        matched = store.matched.withdraw(bound)
        lonely = gone.where((gone.numbers != _SETTLED) & ~np.isin(gone.numbers, matched.numbers))
        return self._alone(store, lonely.rows, drained=drained)

    def output_watermark(self, store: JoinStore, watermarks: tuple[int, int]) -> int:
        """A time before which no row of the result will be, after `expire`: the lesser watermark, or the earliest row
        that is held and may still be part of one."""
        first = store.log(self.spec.event_side).first
        return min(watermarks) if first is None else min(first, *watermarks)

    def start_generation(self, store: JoinStore, *, reset: bool) -> None:
        """Time starts anew. What is held is kept, unless `reset`: rows that were read before meet those that come."""
        if reset:
            store.clear()

    def _add_left(
        self, store: JoinStore, table: pa.Table, times: Numbers, watermark: int, drained: bool
    ) -> Iterator[Iterator[pa.Table]]:
        others, matching = self._match(store, "left", table, times)
        matched = matching.left_matched
        numbers = np.where(matched, _SETTLED, store.arrive(len(table)))
        waits = times >= self._bound("left", watermark)
        store.left.append(Held(times, numbers, table).where(waits))
        yield self._pairs(table, others.rows, matching)
        if self.spec.how == "left":
            yield self._alone(store, table.filter(pa.array(~waits & ~matched)), drained=drained)

    def _add_right(
        self, store: JoinStore, table: pa.Table, times: Numbers, watermark: int
    ) -> Iterator[Iterator[pa.Table]]:
        others, matching = self._match(store, "right", table, times)
        if self.spec.how == "left":
            first_match = matching.left_matched & (others.numbers != _SETTLED)
            store.matched.append(Held(others.places[first_match], others.numbers[first_match], _NOTHING))
        waits = times >= self._bound("right", watermark)
        store.right.append(Held(times, store.arrive(len(table)), table).where(waits))
        yield self._pairs(others.rows, table, matching)

    def _match(self, store: JoinStore, side: Side, table: pa.Table, times: Numbers) -> tuple[Held, Matching]:
        """The rows of the other side that may match, and how they do."""
        low, high = self.spec.reach(side)
        other: Side = "right" if side == "left" else "left"
        others = store.log(other).between(int(times.min()) + low, int(times.max()) + high)
        if not len(others):
            others = Held(others.places, others.numbers, store.rows_of(other))
        low, high = self.spec.reach("left")
        if side == "left":
            codes = self._codes(table, others.rows)
            return others, Matching(codes[0], times, codes[1], others.places, low, high)
        codes = self._codes(others.rows, table)
        return others, Matching(codes[0], others.places, codes[1], times, low, high)

    def _codes(self, left: pa.Table, right: pa.Table) -> tuple[Numbers, Numbers]:
        if not left.num_columns or not right.num_columns:
            return np.zeros(len(left), np.int64), np.zeros(len(right), np.int64)
        return common_codes(left, self.spec.left_on, right, self.spec.right_on)

    def _pairs(self, left: pa.Table, right: pa.Table, matching: Matching) -> Iterator[pa.Table]:
        for left_rows, right_rows in matching.blocks():
            yield self.spec.combine(left.take(pa.array(left_rows)), right, right_rows)

    def _alone(self, store: JoinStore, left: pa.Table, *, drained: bool) -> Iterator[pa.Table]:
        if len(left):
            # Nobody waits for a match of a null: a drain has ended nothing there.
            marks = without_nulls(left, self.spec.left_on) & drained
            yield self.spec.combine(left, store.rows_of("right"), np.full(len(left), -1), drained=marks)

    def _bound(self, side: Side, watermark: int) -> int:
        """Rows of `side` before this can have no match any more, if that is the watermark of the other side."""
        if watermark in (EARLIEST, MAX_TIMESTAMP):
            return watermark
        return max(watermark - self.spec.reach(side)[1], EARLIEST)

    def _times(self, side: Side, table: pa.Table) -> Numbers:
        column = self.spec.time_column(side)
        times = event_times(table[column], column)
        known = times[times != NO_TIME]
        for time in (int(known.min()), int(known.max())) if len(known) else ():
            if abs(time) > FARTHEST:
                raise InvalidJoin.time_out_of_reach(column, time)
        return times


def _each_once(held: Held) -> Held:
    return held.take(np.sort(latest(held.numbers, held.places)))


def _types(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
