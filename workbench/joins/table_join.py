"""Stream–table join: each row of a stream with the latest row that a table has for its key.

A table is the latest row of each key in order of arrival, without any time: what comes later in the table's stream does
not change what was joined before.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pyarrow as pa

from workbench.errors import InvalidJoin
from workbench.joins.held import Held
from workbench.joins.keys import Mask, canonical_rows, common_codes, latest, without_nulls
from workbench.joins.spec import LookupSpec
from workbench.joins.store import SIZES, HeldLog, Sizes
from workbench.partitioning import partition_of_keys
from workbench.windows import ChunkStore
from workbench.windows.grouping import Numbers, group

_HASHES = 2**31 - 1


class KeyedTable:
    """The latest row for each combination of `keys`, in `chunks`; `manifest` is what `manifest()` returned before.

    A batch writes its own rows. Chunks are ranges of the keys' hashes, and a look-up reads those that it needs. A row
    with a null among its keys is not kept: nobody can ask for it.
    """

    def __init__(
        self, keys: tuple[str, ...], chunks: ChunkStore, manifest: dict[str, Any] | None = None, sizes: Sizes = SIZES
    ) -> None:
        self.keys = keys
        known: dict[str, Any] = manifest or {}
        self._log = HeldLog(chunks, "table ", known.get("rows"), combine=self._latest, sizes=sizes)
        self._arrived: int = known.get("arrived", 0)
        self.schema: pa.Schema | None = None
        """Its columns, as far as known."""
        if known.get("schema") is not None:
            self.schema = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(known["schema"])))

    @property
    def held_rows(self) -> int:
        """Rows that are held, superseded ones included as long as they are not merged away."""
        return self._log.rows

    @property
    def chunk_count(self) -> int:
        return len(self._log.chunks)

    def update(self, table: pa.Table) -> None:
        """Takes rows in order of arrival: each replaces what was known of its key. Raises `InvalidJoin`."""
        table = canonical_rows(table)
        self.learn(table.schema)
        keyed = without_nulls(table, self.keys)
        if not keyed.all():
            table = table.filter(pa.array(keyed))
        if not len(table):
            return
        numbers = np.arange(self._arrived, self._arrived + len(table))
        self._arrived += len(table)
        self._log.append(self._latest(Held(self._hashes(table, self.keys), numbers, table)))

    def look_up(self, table: pa.Table, columns: tuple[str, ...]) -> tuple[pa.Table, Numbers]:
        """Some of the table's rows, and which of them is the latest for each row of `table`, whose `columns` are the
        keys in the same order; -1 where there is none. Raises `InvalidJoin` for keys of other types."""
        found = np.full(len(table), -1)
        keyed = without_nulls(table, columns)
        if self.schema is None:
            return pa.table({}), found
        asked = table.select(list(dict.fromkeys(columns))).filter(pa.array(keyed))
        # An empty table too: keys of other types are told before there are rows that would never be found.
        common_codes(asked.slice(0, 0), columns, self.schema.empty_table(), self.keys)
        held = self._log.near(np.unique(self._hashes(asked, columns)))
        if not len(held):
            return self.schema.empty_table(), found
        asked_codes, held_codes = common_codes(asked, columns, held.rows, self.keys)
        newest = latest(held_codes, held.numbers)
        row_of = np.full(max(int(held_codes.max()), int(asked_codes.max(initial=0))) + 1, -1)
        row_of[held_codes[newest]] = newest
        found[keyed] = row_of[asked_codes]
        return held.rows, found

    def clear(self) -> None:
        """Forgets all rows and what is known of them."""
        self._log.clear()
        self.schema = None

    def manifest(self) -> dict[str, Any]:
        """Writes what changed; returns what `KeyedTable` needs to go on from here, as a dict that JSON can hold."""
        schema = None if self.schema is None else base64.b64encode(self.schema.serialize()).decode()
        return {"rows": self._log.manifest(), "arrived": self._arrived, "schema": schema}

    def _latest(self, held: Held) -> Held:
        ids = group([held.rows[key] for key in self.keys], len(held)).ids
        return held.take(np.sort(latest(ids, held.numbers)))

    def _hashes(self, table: pa.Table, columns: tuple[str, ...]) -> Numbers:
        return partition_of_keys([table[key] for key in columns], _HASHES, columns).astype(np.int64)

    def learn(self, schema: pa.Schema) -> None:
        """Notes the columns of the table. Raises `InvalidJoin` if they do not go with those it has."""
        if self.schema is None or self.schema == schema:
            self.schema = schema
            return
        try:
            self.schema = pa.unify_schemas([self.schema, schema], promote_options="permissive")
        except pa.ArrowException as error:
            before, now = (", ".join(f"{f.name}: {f.type}" for f in known) for known in (self.schema, schema))
            raise InvalidJoin.types_changed("table's", before, now) from error


def join_table(spec: LookupSpec, table: pa.Table, keyed: KeyedTable) -> pa.Table:
    """The rows of `table`, in their order, with what `keyed` has for them. Raises `InvalidJoin`."""
    table = canonical_rows(table)
    right, rows = keyed.look_up(table, spec.left_on)
    if spec.how == "inner":
        there: Mask = rows >= 0
        table, rows = table.filter(pa.array(there)), rows[there]
    return spec.combine(table, right, rows)
