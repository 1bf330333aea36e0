"""Reading a stream as a DataFrame. The driver asks the index where messages are; executors map the segments."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from workbench.engine.connector_options import ReadOptions, short_errors
from workbench.engine.connector_types import spark_schema, to_spark
from workbench.errors import SchemaMismatch, UnknownColumn
from workbench.messages import ControlRun
from workbench.systems.base import Controls, Entry, Rows
from workbench.systems.log import Stream, StreamLog, frames, read_ref
from workbench.systems.log.index import Ref

_ROWS_AT_ONCE = 32_768
"""Small entries are joined up to this many rows before Spark gets them."""


def schema_of(options: ReadOptions) -> StructType:
    """Raises `UnknownStream`, `LogUnavailable`, or `SchemaMismatch` while the stream has no columns."""
    schema = _stream(options).schema
    if schema is None and not options.control:
        raise SchemaMismatch.unknown_yet(options.stream)
    return spark_schema(frames.frame_schema(options.stream, schema, control=options.control))


class Part(InputPartition):
    """What one Spark task reads: ranges of one partition of the stream."""

    def __init__(self, partition: int, refs: list[Ref]) -> None:
        super().__init__(partition)
        self.partition = partition
        self.refs = refs


class _Reads:
    """What batch and streaming readers share. Lives on the driver to plan, and as a copy on executors to read."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        with short_errors():
            stream = _stream(options)
            if stream.schema is not None:
                known = frames.frame_schema(options.stream, stream.schema, control=options.control).names
                for name in schema.names:
                    if name not in known:
                        raise UnknownColumn.from_known(name, known, f"the stream {options.stream!r}")

    def parts(self, starts: Iterable[int], ends: Iterable[int]) -> list[InputPartition]:
        with short_errors():
            log = StreamLog(self.options.path, create=False)
            parts: list[InputPartition] = []
            for partition, (start, end) in enumerate(zip(starts, ends, strict=True)):
                if end > start:
                    refs = log.resolve(self.options.stream, partition, start, end)
                    wanted = refs if self.options.control else [ref for ref in refs if "ctl" not in ref]
                    parts.append(Part(partition, wanted))
            return parts

    def batches(self, part: Part, segments: str) -> Iterator[pa.RecordBatch]:
        with short_errors():
            entries = (_entry(ref, self.options.stream, part.partition, segments) for ref in part.refs)
            for tables in _gathered(self._frame(entry, part.partition) for entry in entries):
                yield from to_spark(pa.concat_tables(tables), self.schema).combine_chunks().to_batches()

    def _frame(self, entry: Entry, partition: int) -> pa.Table:
        own = entry.table.schema if isinstance(entry, Rows) else None
        fields = {
            field.name: field for field in frames.frame_schema(self.options.stream, own, control=self.options.control)
        }
        # A stream's control messages have no user columns, so their types come from the schema Spark was told.
        target = pa.schema([fields.get(field.name, pa.field(field.name, pa.null())) for field in self.schema])
        return to_spark(frames.frame(entry, partition, target), self.schema)


class BatchReader(DataSourceReader):
    """All messages from the starting offsets up to the heads at planning."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._reads = _Reads(options, schema)
        self._segments = str(StreamLog(options.path, create=False).segments_directory)

    def partitions(self) -> list[InputPartition]:
        options = self._reads.options
        with short_errors():
            stream = _stream(options)
            heads = stream.heads()
            starts = options.starting_offsets(stream.oldest(), heads)
        return self._reads.parts(starts, heads) or [Part(0, [])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        return self._reads.batches(partition, self._segments)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Every message once, in the order of its partition.

    An offset is {"from": […], "to": […]}: it names the whole range of its batch. Spark replays a batch from the two
    offsets around it, but does not log the very first one; with this, a replayed first batch starts where it started.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._reads = _Reads(options, schema)
        self._segments = str(StreamLog(options.path, create=False).segments_directory)
        self._target: list[int] | None = None

    def initialOffset(self) -> dict[str, Any]:
        options = self._reads.options
        with short_errors():
            stream = _stream(options)
            starts = options.starting_offsets(stream.oldest(), stream.heads())
        return {"from": starts, "to": starts}

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._reads.options.limit
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        with short_errors():
            heads = self._target or _stream(self._reads.options).heads()
        starts: list[int] = start["to"]
        ends = advanced(starts, heads, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        return start if ends == starts else {"from": starts, "to": ends}

    def prepareForTriggerAvailableNow(self) -> None:
        with short_errors():
            self._target = _stream(self._reads.options).heads()

    def reportLatestOffset(self) -> dict[str, Any]:
        with short_errors():
            heads = _stream(self._reads.options).heads()
        return {"from": heads, "to": heads}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return self._reads.parts(end["from"], end["to"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        return self._reads.batches(partition, self._segments)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: what is kept is the matter of the log's retention."""


def advanced(starts: list[int], heads: list[int], limit: int | None) -> list[int]:
    """How far a batch of at most `limit` messages goes in each partition: equal shares, and what one does not need goes
    to the others. Where not everyone gets a share, the turn passes on from batch to batch."""
    ends = list(starts)
    backlog = [max(head - start, 0) for start, head in zip(starts, heads, strict=True)]
    left = sum(backlog) if limit is None else min(limit, sum(backlog))
    while left:
        waiting = [partition for partition, count in enumerate(backlog) if count]
        share, turn = left // len(waiting), sum(starts) % len(waiting)
        if not share:
            waiting, share = (waiting[turn:] + waiting[:turn])[:left], 1
        for partition in waiting:
            taken = min(share, backlog[partition])
            ends[partition] += taken
            backlog[partition] -= taken
            left -= taken
    return ends


def _stream(options: ReadOptions) -> Stream:
    return StreamLog(options.path, create=False).stream(options.stream)


def _entry(ref: Ref, stream: str, partition: int, segments: str) -> Entry:
    if "ctl" in ref:
        return Controls(ref["o"], ControlRun.from_json(ref["ctl"]))
    return Rows(ref["o"], read_ref(segments, ref, stream, partition))


def _gathered(tables: Iterator[pa.Table]) -> Iterator[list[pa.Table]]:
    waiting: list[pa.Table] = []
    for table in itertools.chain(tables):
        waiting.append(table)
        if sum(len(each) for each in waiting) >= _ROWS_AT_ONCE:
            yield waiting
            waiting = []
    if waiting:
        yield waiting
