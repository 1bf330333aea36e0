"""Rows that are held, each with a place (a time, or the hash of a key) and a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from workbench.joins.keys import Mask
from workbench.windows.grouping import Numbers


@dataclass(frozen=True)
class Held:
    """`rows` with their `places` and `numbers`; a table without columns where only these are held."""

    places: Numbers
    numbers: Numbers
    rows: pa.Table

    def __len__(self) -> int:
        return len(self.places)

    def take(self, chosen: Numbers) -> Held:
        rows = self.rows.take(pa.array(chosen)) if self.rows.num_columns else self.rows
        return Held(self.places[chosen], self.numbers[chosen], rows)

    def where(self, chosen: Mask) -> Held:
        return self if chosen.all() else self.take(np.flatnonzero(chosen))

    def split(self, parts: int) -> list[Held]:
        """`parts` parts of about the same number of rows, each a range of places."""
        if parts <= 1:
            return [self]
        order = np.argsort(self.places, kind="stable")
        return [self.take(part) for part in np.array_split(order, parts)]

    def encode(self) -> bytes:
        """As Arrow IPC bytes."""
        sink = pa.BufferOutputStream()
        for table in (pa.table({"place": self.places, "number": self.numbers}), self.rows.combine_chunks()):
            if table.num_columns:
                with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as writer:
                    writer.write_table(table)
        data: bytes = sink.getvalue().to_pybytes()
        return data

    @classmethod
    def decode(cls, data: bytes) -> Held:
        source = pa.BufferReader(data)
        index = pa.ipc.open_stream(source).read_all()
        rows = pa.ipc.open_stream(source).read_all() if source.tell() < source.size() else pa.table({})
        return cls(np.asarray(index["place"]), np.asarray(index["number"]), rows)


def together(parts: Sequence[Held]) -> Held:
    """All rows of all `parts`; a column that some do not have is null there."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Held(np.zeros(0, np.int64), np.zeros(0, np.int64), pa.table({}))
    return Held(
        np.concatenate([part.places for part in parts]),
        np.concatenate([part.numbers for part in parts]),
        pa.concat_tables([part.rows for part in parts], promote_options="permissive"),
    )


_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
