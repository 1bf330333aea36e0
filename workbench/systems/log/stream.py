"""One stream of a log: append, read, look up, trim."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from workbench.errors import InvalidOption, NoEventTime, SchemaMismatch, StreamEnded, UnknownColumn
from workbench.messages import ControlMessage, ControlRun, EndOfStreamMessage
from workbench.partitioning import partition_of
from workbench.systems.base import Controls, Entry, Rows
from workbench.systems.log import frames, index, schemas
from workbench.systems.log.commits import ControlAppend
from workbench.systems.log.segments import SegmentWriter, read_ref
from workbench.times import check_unit, event_times

if TYPE_CHECKING:
    import pandas as pd

    from workbench.systems.log.log import StreamLog


class Stream:
    """A partitioned sequence of messages. Offsets are contiguous in each partition; control messages have offsets too.

    Made by `StreamLog.stream` and `StreamLog.create`. Partitions that do not exist raise `UnknownPartition` everywhere.
    """

    def __init__(self, log: StreamLog, row: index.StreamRow) -> None:
        self._log = log
        self._row = row

    @property
    def name(self) -> str:
        return self._row.name

    @property
    def id(self) -> int:
        """Its number in the log, never given to another stream."""
        return self._row.id

    @property
    def partitions(self) -> int:
        return self._row.partitions

    @property
    def schema(self) -> pa.Schema | None:
        """The Arrow schema of its rows, fixed by the first; None before."""
        encoded = self._current().schema
        return None if encoded is None else schemas.from_bytes(encoded)

    def heads(self) -> list[int]:
        """Per partition the offset that the next message will get."""
        return self._column("head")

    def oldest(self) -> list[int]:
        """Per partition the first offset that is still kept; equal to the head where nothing is."""
        return self._column("oldest")

    def ended(self) -> list[bool]:
        """Per partition whether its last control message is an end of stream, whoever it came from."""
        with self._log.reading() as connection:
            return index.ends(connection, self._row)

    def append(
        self,
        rows: pa.Table | pa.RecordBatch | pd.DataFrame,
        partition: int = 0,
        time_column: str | None = None,
        *,
        key: str | None = None,
    ) -> None:
        """Append rows to `partition`, or, by a stable hash of the column `key`, spread over all; atomically.

        `time_column` names the event time (see `workbench.times`): timestamps, or int64 milliseconds since the epoch; the
        stream's first rows are refused if theirs look like seconds. The index of a DataFrame is not kept. No rows append
        nothing. Raises `StreamEnded` where the end has been said, as nobody would read on, `SchemaMismatch`,
        `UnknownColumn`, `InvalidTime`, `InvalidKey`, `DiskFull`, `LogUnavailable`.
        """
        table = as_table(rows)
        if len(rows) and not table.column_names:
            raise SchemaMismatch.no_columns(self.name)
        index.check_partition(self._row, partition)
        schema, ended = self.schema, self.ended()
        if schema is None and time_column in table.column_names:
            check_unit(table.column(time_column), str(time_column))
        with SegmentWriter(self._log.segments_directory) as writer:
            for chosen, part in self._parts(table, partition, key):
                if ended[chosen] and part.num_rows:
                    raise StreamEnded.already(self.name)
                writer.add(self.name, chosen, part, time_column, schema)
            self._log.commit_staged(writer.close(), behind_ends=False)

    def end(self, partition: int | None = None) -> None:
        """Append a direct end of stream (from no task) to one partition or to all."""
        self.inject(EndOfStreamMessage(self.name), None if partition is None else [partition])

    def inject(self, message: ControlMessage, partitions: Iterable[int] | None = None) -> None:
        """Append any control message to the given partitions, or to all, in one commit."""
        run = ControlRun.from_messages([message])
        targets = [None] if partitions is None else list(partitions)
        self._log.commit_staged([ControlAppend(self.name, target, run) for target in targets])

    def read(
        self, partition: int, start: int | None = None, end: int | None = None, limit: int | None = None
    ) -> Iterator[Entry]:
        """The messages from `start` (None: the oldest) up to, not including, `end` (None: the head), at most `limit`.

        Which messages is decided now; segments are mapped one by one as the iterator goes on. Raises
        `OffsetOutOfRange` at once, `CorruptSegment` when it comes to it.
        """
        with self._log.reading() as connection:
            row = self._current()
            if limit is not None:
                oldest, head = index.bounds(connection, row, partition)
                first = oldest if start is None else start
                end = min(head if end is None else end, first + max(limit, 0))
            refs = index.resolve(connection, row, partition, start, end)
        return (self._entry(ref, partition) for ref in refs)

    def to_pandas(self, partition: int | None = None, *, control: bool = False, position: bool = False) -> pd.DataFrame:
        """All that is kept, partition by partition, with Arrow-backed types.

        `position` adds `_partition` and `_offset`; `control` does too, and adds the control messages and their columns
        (see `frames.CONTROL_FIELDS`), user columns null. A stream without rows and schema has no columns of its own.
        """
        import pandas

        schema = frames.frame_schema(self.name, self.schema, control=control, position=position)
        tables = []
        for chosen in range(self.partitions) if partition is None else (partition,):
            tables += frames.frames(self.read(chosen), chosen, schema, control=control)
        table = pa.concat_tables(tables) if tables else schema.empty_table()
        frame: pandas.DataFrame = table.to_pandas(types_mapper=pandas.ArrowDtype)
        return frame

    def offset_at(self, partition: int, timestamp: int, by: str = "event") -> int:
        """The first offset at or after a time (milliseconds since the epoch, UTC), or the head if there is none.

        by="event": the first row whose event time is at least `timestamp`; rows out of order before and after it may
        be older. by="append": the first message appended then or later. Raises `NoEventTime`.
        """
        if by not in ("event", "append"):
            raise InvalidOption.of_choice("by", by, ("event", "append"))
        with self._log.reading() as connection:
            row = self._current()
            oldest, head = index.bounds(connection, row, partition)
            if by == "append":
                found = index.first_entry_at(connection, row, partition, "appended", timestamp, oldest)
                return head if found is None else max(oldest, found[0])
            if not index.has_event_times(connection, row, partition):
                raise NoEventTime.of_partition(self.name, partition)
            position = oldest
            while (
                found := index.first_entry_at(connection, row, partition, "max_time", timestamp, position)
            ) is not None:
                start, count, column = found
                for ref in index.resolve(connection, row, partition, max(position, start), start + count):
                    table = read_ref(self._log.segments_directory, ref, self.name, partition)
                    hits = np.flatnonzero(event_times(table.column(column)) >= timestamp)
                    if len(hits):
                        return int(ref["o"] + hits[0])
                # The row with the entry's latest time was trimmed; go on behind it.
                position = start + count
            return head

    def trim(self, partition: int, before: int) -> int:
        """Forget the messages before an offset; return the oldest offset kept. Segments nobody refers to are deleted."""
        return self._log.trim_partition(self._row, partition, before)

    def __repr__(self) -> str:
        return f"Stream({self.name!r}, partitions={self.partitions}, messages={sum(self.heads()) - sum(self.oldest())})"

    def _entry(self, ref: index.Ref, partition: int) -> Entry:
        if "ctl" in ref:
            return Controls(ref["o"], ControlRun.from_json(ref["ctl"]))
        return Rows(ref["o"], read_ref(self._log.segments_directory, ref, self.name, partition))

    def _parts(self, table: pa.Table, partition: int, key: str | None) -> Iterator[tuple[int, pa.Table]]:
        if key is None:
            yield partition, table
            return
        if key not in table.column_names:
            raise UnknownColumn.from_known(key, table.column_names, f"the rows for {self.name!r}")
        yield from partitioned(table, partition_of(table.column(key), self.partitions, key))

    def _current(self) -> index.StreamRow:
        with self._log.reading() as connection:
            return index.find_stream(connection, self.name, str(self._log.directory))

    def _column(self, column: str) -> list[int]:
        statement = f"SELECT {column} FROM partition WHERE stream = ? ORDER BY partition"
        with self._log.reading() as connection:
            return [value for (value,) in connection.execute(statement, (self.id,))]


def as_table(rows: pa.Table | pa.RecordBatch | pd.DataFrame) -> pa.Table:
    """Rows as an Arrow table; the index of a DataFrame is left out."""
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    return pa.Table.from_pandas(rows, preserve_index=False)


def partitioned(table: pa.Table, partitions: np.ndarray[Any, np.dtype[np.int32]]) -> Iterator[tuple[int, pa.Table]]:
    """(partition, its rows in their order) for each partition that has rows; `partitions[i]` is that of row *i*."""
    order = np.argsort(partitions, kind="stable")
    ordered = table.take(pa.array(order))
    chosen = partitions[order]
    starts = np.flatnonzero(np.diff(chosen, prepend=-1))
    for first, last in zip(starts, [*starts[1:], len(chosen)], strict=True):
        yield int(chosen[first]), ordered.slice(first, last - first)
