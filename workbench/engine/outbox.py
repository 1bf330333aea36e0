"""What a task has to write at the end of a batch: rows per stream and partition, and its control messages."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from workbench.messages import ControlMessage
from workbench.partitioning import partition_of_keys


class Outbox:
    """Collects a batch's output. Within the commit all rows come before all control messages of the same batch."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], list[pa.Table]] = {}
        self._time_columns: dict[str, str | None] = {}
        self.controls: list[tuple[str, int | None, ControlMessage]] = []
        """(stream, partition or None for all, message), in the order sent."""

    def write(self, stream: str, partition: int, rows: pa.Table, time_column: str | None) -> None:
        if len(rows):
            self._rows.setdefault((stream, partition), []).append(rows)
            self._time_columns[stream] = time_column

    def write_by_key(
        self, stream: str, partitions: int, keys: tuple[str, ...], rows: pa.Table, time_column: str | None
    ) -> None:
        """Spread rows over the partitions by a stable hash of their key columns."""
        if partitions == 1:
            return self.write(stream, 0, rows, time_column)
        chosen = partition_of_keys([rows.column(key) for key in keys], partitions, keys)
        order = np.argsort(chosen, kind="stable")
        bounds = np.searchsorted(chosen[order], np.arange(partitions + 1))
        ordered = rows.take(pa.array(order))
        for partition in range(partitions):
            first, last = bounds[partition], bounds[partition + 1]
            self.write(stream, partition, ordered.slice(first, last - first), time_column)

    def send(self, stream: str, partition: int | None, message: ControlMessage) -> None:
        self.controls.append((stream, partition, message))

    def rows(self) -> list[tuple[str, int, pa.Table, str | None]]:
        """(stream, partition, rows, time column), one table for each partition written to."""
        return [
            (stream, partition, pa.concat_tables(tables, promote_options="permissive"), self._time_columns[stream])
            for (stream, partition), tables in sorted(self._rows.items())
        ]
