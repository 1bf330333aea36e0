"""Writing a DataFrame to a stream. Executors stage segments; the driver makes them part of the stream, once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from workbench.engine.connector_options import WriteOptions, short_errors
from workbench.engine.connector_types import from_spark
from workbench.errors import InvalidKey, InvalidOption, UnknownColumn, UnknownPartition, UnknownStream
from workbench.messages import ControlRun, EndOfStreamMessage
from workbench.partitioning import partition_of
from workbench.systems.log import ControlAppend, SegmentWriter, StagedRows, Stream, StreamLog
from workbench.systems.log.stream import partitioned
from workbench.times import check_unit

_BYTES_AT_ONCE = 16 << 20
"""Spark hands over 10,000 rows at a time; so much is gathered before it is spread over the partitions."""


@dataclass
class Staged(WriterCommitMessage):
    """What one task wrote."""

    rows: list[StagedRows]


class _Writes:
    """What batch and streaming writers share. Made on the driver, a copy of it writes on executors."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        self.options = options
        with short_errors():
            if overwrite:
                raise InvalidOption.malformed("mode", "overwrite", "'append' (a stream is never overwritten)")
            for name in (options.key, options.partition, options.time):
                if name is not None and name not in schema.names:
                    raise UnknownColumn.from_known(name, schema.names, "the DataFrame")
            stream = _target(options)
        self.count = stream.partitions
        self.schema = stream.schema
        self.segments = str(StreamLog(options.path, create=False).segments_directory)

    def stage(self, batches: Iterator[pa.RecordBatch]) -> Staged:
        with short_errors(), SegmentWriter(self.segments) as writer:
            for table in _gathered(batches):
                if self.schema is None and self.options.time is not None:
                    check_unit(table.column(self.options.time), self.options.time)
                for partition, rows in self._spread(table):
                    writer.add(self.options.stream, partition, rows, self.options.time, self.schema)
            return Staged(writer.close())

    def _spread(self, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        chosen = self._chosen(table)
        if self.options.partition is not None:
            table = table.drop_columns([self.options.partition])
        if self.count == 1:
            yield 0, table
        else:
            yield from partitioned(table, chosen)

    def _chosen(self, table: pa.Table) -> npt.NDArray[np.int32]:
        options = self.options
        if options.key is not None:
            return partition_of(table.column(options.key), self.count, options.key)
        if options.partition is None:
            return np.arange(table.num_rows, dtype=np.int32) % self.count
        column = table.column(options.partition)
        if not pa.types.is_integer(column.type):
            raise InvalidKey.no_number(options.partition, str(column.type))
        if column.null_count:
            raise UnknownPartition.from_count(options.stream, None, self.count)
        numbers: npt.NDArray[np.int64] = np.asarray(column).astype(np.int64)
        wrong = np.flatnonzero((numbers < 0) | (numbers >= self.count))
        if len(wrong):
            raise UnknownPartition.from_count(options.stream, int(numbers[wrong[0]]), self.count)
        return numbers.astype(np.int32)


class BatchWriter(DataSourceArrowWriter):
    """One commit for the whole DataFrame; attempts of a task that was repeated leave nothing behind. Rows for a
    partition that has ended are refused as by `Stream.append`."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        self._writes = _Writes(options, schema, overwrite)
        self._key = f"batch:{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._writes.stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        options = self._writes.options
        with short_errors():
            appends: list[StagedRows | ControlAppend] = [*_staged(messages)]
            if options.end:
                run = ControlRun.from_messages([EndOfStreamMessage(options.stream)])
                appends.append(ControlAppend(options.stream, None, run))
            StreamLog(options.path, create=False).commit(self._key, 0, appends, behind_ends=False)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        StreamLog(self._writes.options.path, create=False).discard(_staged(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """One commit for each batch of a query, keyed by the query and the batch: a batch that Spark repeats after a crash
    changes nothing if it was committed before. Rows for a partition that has ended are refused."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        with short_errors():
            if options.end:
                raise InvalidOption.malformed("end", "true", "left out of a streaming write")
        self._writes = _Writes(options, schema, overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._writes.stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        options = self._writes.options
        with short_errors():
            log = StreamLog(options.path, create=False)
            log.commit(options.writer_key(), batchId, _staged(messages), behind_ends=False)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        StreamLog(self._writes.options.path, create=False).discard(_staged(messages))


def _target(options: WriteOptions) -> Stream:
    """The stream to write to, created if `partitions` says how."""
    if options.partitions is not None:
        log = StreamLog(options.path, create=True)
        return log.create(options.stream, options.partitions, exist_ok=True)
    log = StreamLog(options.path, create=False)
    if options.stream not in log:
        raise UnknownStream.to_write(options.stream, log.streams(), str(log.directory))
    return log.stream(options.stream)


def _staged(messages: list[WriterCommitMessage | None]) -> list[StagedRows]:
    return [rows for message in messages if isinstance(message, Staged) for rows in message.rows]


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.Table] = []
    for batch in batches:
        waiting.append(from_spark(batch))
        if sum(table.nbytes for table in waiting) >= _BYTES_AT_ONCE:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)
