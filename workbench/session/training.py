"""A streaming query with every kind of Python worker that a job has, and nothing else.

It is run for what it touches: to record the classes of the class-data archive, and to wake the workers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    SimpleDataSourceStreamReader,
    WriterCommitMessage,
)
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues
from pyspark.sql.types import StructType

_BATCHES = 3


class _Reader(SimpleDataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[Any, ...]], dict[str, int]]:
        batch = start["batch"]
        if batch >= _BATCHES:
            return iter(()), start
        return self.readBetweenOffsets(start, start), {"batch": batch + 1}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[Any, ...]]:
        return iter([(slot, f"order of batch {start['batch']}") for slot in range(2)])


class _Writer(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass


class TrainingSource(DataSource):
    """Two rows a batch, and a sink for what becomes of them."""

    @classmethod
    def name(cls) -> str:
        return "tidemark-training"

    def schema(self) -> str:
        return "slot int, work string"

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        return _Reader()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return _Writer()


class _Processor(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._seen = handle.getValueState("seen", "value string")
        self._chunks = handle.getMapState("chunks", "name string", "value binary")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Row]:
        before = self._seen.get()
        for row in rows:
            self._seen.update((row.work,))
        self._chunks.updateValue(("one",), (b"\0" * 1000,))
        yield Row(slot=key[0], report=str(before))

    def close(self) -> None:
        pass


def train(spark: SparkSession) -> None:
    """Run the query to its end, a few batches; takes seconds the first time in a session."""
    spark.dataSource.register(TrainingSource)
    source: DataFrame = spark.readStream.format(TrainingSource.name()).load()
    reports = source.groupBy("slot").transformWithState(_Processor(), "slot int, report string", "append", "none")
    with tempfile.TemporaryDirectory(prefix="tidemark-training-") as checkpoint:
        query = (
            reports.writeStream.format(TrainingSource.name())
            .outputMode("append")
            .option("checkpointLocation", checkpoint)
            .start()
        )
        try:
            query.processAllAvailable()
        finally:
            query.stop()
