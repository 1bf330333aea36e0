from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import LongType, StructType

from workbench.engine.connector import register
from workbench.engine.connector_options import WriteOptions
from workbench.engine.connector_write import BatchWriter
from workbench.messages import DrainMessage, EndOfStreamMessage, WatermarkMessage
from workbench.systems.log import StreamLog


@pytest.fixture(scope="module")
def spark(spark: SparkSession) -> SparkSession:
    register(spark)
    register(spark)
    return spark


@pytest.fixture
def log(log_dir: Path) -> StreamLog:
    return StreamLog(log_dir)


def rows(log: StreamLog, stream: str = "s") -> list[int]:
    return sorted(log.stream(stream).to_pandas()["id"].tolist())


def numbered(first: int, count: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64())})


def read(spark: SparkSession, log: StreamLog, stream: str = "s", **options: Any) -> DataFrame:
    return spark.read.format("tidemark").options(path=str(log.directory), stream=stream, **options).load()


def write(frame: DataFrame, log: StreamLog, stream: str = "s", **options: Any) -> None:
    frame.write.format("tidemark").mode("append").options(path=str(log.directory), stream=stream, **options).save()


def copy(
    spark: SparkSession, log: StreamLog, checkpoint: Path, source: dict[str, Any], **target: Any
) -> StreamingQuery:
    """Copy stream s to stream t as far as it goes now."""
    frame = spark.readStream.format("tidemark").options(path=str(log.directory), stream="s", **source).load()
    return start(frame, log, checkpoint, **target)


def start(frame: DataFrame, log: StreamLog, checkpoint: Path, **target: Any) -> StreamingQuery:
    options = {
        "path": str(log.directory),
        "stream": "t",
        "partitions": 2,
        "checkpointLocation": str(checkpoint),
        **target,
    }
    return frame.writeStream.format("tidemark").options(**options).trigger(availableNow=True).start()


TYPES: dict[str, tuple[pa.Array, list[Any]]] = {
    "int8": (pa.array([1, None], pa.int8()), [1, None]),
    "uint8": (pa.array([255, None], pa.uint8()), [255, None]),
    "uint64": (pa.array([2**64 - 1, 0], pa.uint64()), [2**64 - 1, 0]),
    "float16": (pa.array([0.5, None], pa.float16()), [0.5, None]),
    "text": (pa.array(["grün", None]), ["grün", None]),
    "dictionary": (pa.array(["a", "b"]).dictionary_encode(), ["a", "b"]),
    "bytes": (pa.array([b"\x00", None], pa.binary(1)), [b"\x00", None]),
    "boolean": (pa.array([True, None]), [True, None]),
    "list": (pa.array([[1, None], []], pa.list_(pa.uint8())), [[1, None], []]),
    "struct": (pa.array([{"a": 1, "b": "x"}, None]), [Row(a=1, b="x"), None]),
    "nulls": (pa.nulls(2), [None, None]),
}


def test_every_type_of_a_stream_is_read_as_spark_knows_it(spark: SparkSession, log: StreamLog) -> None:
    log.create("s", 1).append(pa.table({name: column for name, (column, _) in TYPES.items()}))
    found = read(spark, log).collect()
    for name, (_, expected) in TYPES.items():
        assert [bytes(v) if isinstance(v, bytearray) else v for v in (row[name] for row in found)] == expected, name


def test_times_are_instants_in_spark_whatever_their_unit_and_zone(spark: SparkSession, log: StreamLog) -> None:
    units = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
    columns = {
        f"{unit} {zone}": pa.array([-86_400 * per_second, None], pa.timestamp(unit, zone))
        for unit, per_second in units.items()
        for zone in (None, "Asia/Tokyo")
    }
    log.create("s", 1).append(pa.table(columns))
    frame = read(spark, log)
    assert {field.dataType.simpleString() for field in frame.schema} == {"timestamp"}
    seconds = frame.selectExpr(*(f"unix_seconds(`{name}`)" for name in columns)).collect()
    assert [set(row) for row in seconds] == [{-86_400}, {None}]


def test_a_data_frame_goes_into_a_stream_by_key_and_comes_back(spark: SparkSession, log: StreamLog) -> None:
    frame = spark.range(0, 10_000, 1, 3).selectExpr("id", "concat('k', id % 50) AS key", "timestamp_millis(id) AS at")
    write(frame, log, partitions=4, key="key", time="at", end="true")
    stream = log.stream("s")
    assert stream.partitions == 4 and stream.ended() == [True] * 4
    back = read(spark, log)
    assert back.schema.simpleString() == "struct<id:bigint,key:string,at:timestamp>"
    assert back.exceptAll(frame).isEmpty() and back.count() == 10_000
    held: dict[str, set[int]] = {}
    for row in (
        read(spark, log, control="true").where("key IS NOT NULL").select("key", "_partition").distinct().collect()
    ):
        held.setdefault(row["key"], set()).add(row["_partition"])
    assert len(held) == 50 and all(len(partitions) == 1 for partitions in held.values())
    assert min(stream.offset_at(p, 5_000) for p in range(4)) < min(h for h in stream.heads())


def test_the_same_key_lands_where_append_would_put_it(spark: SparkSession, log: StreamLog) -> None:
    table = pa.table({"key": [f"k{i}" for i in range(40)]})
    log.create("s", 5).append(table, key="key")
    write(spark.createDataFrame(table.to_pandas()), log, "t", partitions=5, key="key")
    for partition in range(5):
        ours, theirs = (log.stream(name).to_pandas(partition)["key"].tolist() for name in ("s", "t"))
        assert sorted(ours) == sorted(theirs)


def test_a_column_can_name_the_partition_and_is_not_stored(spark: SparkSession, log: StreamLog) -> None:
    write(spark.range(0, 30).selectExpr("id", "id % 3 AS place"), log, partitions=3, partition="place")
    assert log.stream("s").schema == pa.schema({"id": pa.int64()})
    assert [sorted(log.stream("s").to_pandas(p)["id"].tolist()) for p in range(3)] == [
        list(range(p, 30, 3)) for p in range(3)
    ]


def test_rows_without_key_are_spread_over_all_partitions(spark: SparkSession, log: StreamLog) -> None:
    write(spark.range(0, 1000), log, partitions=4)
    assert sum(log.stream("s").heads()) == 1000 and min(log.stream("s").heads()) > 200


def test_control_messages_are_read_where_they_are(spark: SparkSession, log: StreamLog) -> None:
    stream = log.create("s", 2)
    stream.append(numbered(0, 2), 0)
    stream.inject(WatermarkMessage(-7, "Partition 1", 3))
    stream.append(numbered(2, 1), 0)
    stream.inject(DrainMessage("run-1"), [1])
    stream.inject(EndOfStreamMessage("s"), [0])
    found = [tuple(row) for row in read(spark, log, control="true").orderBy("_partition", "_offset").collect()]
    assert found == [
        (0, "user", None, None, None, None, None, 0, 0),
        (1, "user", None, None, None, None, None, 0, 1),
        (None, "watermark", "Partition 1", 3, -7, None, None, 0, 2),
        (2, "user", None, None, None, None, None, 0, 3),
        (None, "end_of_stream", None, 0, None, "s", None, 0, 4),
        (None, "watermark", "Partition 1", 3, -7, None, None, 1, 0),
        (None, "drain", None, 0, None, None, "run-1", 1, 1),
    ]
    assert sorted(row["id"] for row in read(spark, log).collect()) == [0, 1, 2]


def test_a_stream_of_control_messages_only_can_be_read(spark: SparkSession, log: StreamLog) -> None:
    log.create("s", 2).end()
    assert read(spark, log, control="true").count() == 2
    given = spark.read.schema("id long").format("tidemark").options(path=str(log.directory), stream="s").load()
    assert given.count() == 0 and given.columns == ["id"]


@pytest.mark.parametrize(
    ("starting", "expected"),
    [
        ("oldest", [2, 3, 10, 11, 12]),
        ("upcoming", []),
        ("[3, 1]", [3, 11, 12]),
        ('{"1": "upcoming"}', [2, 3]),
        ('["upcoming", 3]', []),
    ],
)
def test_a_read_starts_where_it_is_told(
    spark: SparkSession, log: StreamLog, starting: str, expected: list[int]
) -> None:
    stream = log.create("s", 2)
    stream.append(numbered(0, 4), 0)
    stream.append(numbered(10, 3), 1)
    stream.trim(0, 2)
    assert sorted(row["id"] for row in read(spark, log, startingOffsets=starting).collect()) == expected


def test_a_streaming_copy_is_exact_over_restarts(spark: SparkSession, log: StreamLog, tmp_path: Path) -> None:
    source = log.create("s", 3)
    for partition in range(3):
        source.append(numbered(1000 * partition, 100), partition)
    checkpoint = tmp_path / "checkpoint"
    query = copy(spark, log, checkpoint, {"maxMessagesPerTrigger": 60})
    query.awaitTermination()
    assert [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]] == [60] * 5
    assert rows(log, "t") == rows(log, "s") and len(rows(log, "t")) == 300
    copy(spark, log, checkpoint, {}).awaitTermination()
    assert len(rows(log, "t")) == 300
    source.append(numbered(300, 50), 1)
    copy(spark, log, checkpoint, {}).awaitTermination()
    assert rows(log, "t") == rows(log, "s")


def test_a_batch_that_spark_repeats_after_its_commit_changes_nothing(
    spark: SparkSession, log: StreamLog, tmp_path: Path
) -> None:
    log.create("s", 2).append(numbered(0, 100), 0)
    checkpoint = tmp_path / "checkpoint"
    copy(spark, log, checkpoint, {"maxMessagesPerTrigger": 40}).awaitTermination()
    # As if the process had died between the log's commit and Spark's note of it.
    for name in ("2", ".2.crc"):
        (checkpoint / "commits" / name).unlink()
    log.stream("s").append(numbered(100, 10), 1)
    before = log.stream("t").heads()
    files = len(list(log.segments_directory.rglob("*.arrow")))
    copy(spark, log, checkpoint, {}).awaitTermination()
    assert rows(log, "t") == list(range(110)) and before != log.stream("t").heads()
    assert len(list(log.segments_directory.rglob("*.arrow"))) <= files + 3


def test_a_query_that_died_before_its_commit_repeats_the_very_same_first_batch(
    spark: SparkSession, log: StreamLog, tmp_path: Path
) -> None:
    source = log.create("s", 1)
    source.append(numbered(0, 5))
    checkpoint = tmp_path / "checkpoint"
    copy(spark, log, checkpoint, {"startingOffsets": "[2]"}).awaitTermination()
    assert rows(log, "t") == [2, 3, 4]
    # Planned, but nothing written: the log as it was before, and Spark with its plan only.
    with log.transaction() as connection:
        connection.execute("DELETE FROM committed")
    shutil.rmtree(checkpoint / "commits")
    source.append(numbered(5, 5))
    # Asked again where to start, "upcoming" would now be 10, behind the planned end.
    copy(spark, log, checkpoint, {"startingOffsets": "upcoming"}).awaitTermination()
    assert Counter(rows(log, "t")) == Counter([2, 3, 4, 2, 3, 4, 5, 6, 7, 8, 9])


def test_a_query_with_a_new_checkpoint_in_the_same_place_is_another_writer(
    spark: SparkSession, log: StreamLog, tmp_path: Path
) -> None:
    log.create("s", 1).append(numbered(0, 5))
    checkpoint = tmp_path / "checkpoint"
    for _ in range(2):
        copy(spark, log, checkpoint, {}).awaitTermination()
        shutil.rmtree(checkpoint)
    assert rows(log, "t") == sorted([*range(5)] * 2)


def test_a_named_writer_is_who_it_says(spark: SparkSession, log: StreamLog, tmp_path: Path) -> None:
    log.create("s", 1).append(numbered(0, 5))
    for checkpoint in ("one", "two"):
        copy(spark, log, tmp_path / checkpoint, {}, writer="it's me").awaitTermination()
    assert rows(log, "t") == [*range(5)]


def test_a_running_query_sees_what_is_appended(spark: SparkSession, log: StreamLog, tmp_path: Path) -> None:
    source = log.create("s", 1)
    source.append(numbered(0, 1))
    frame = spark.readStream.format("tidemark").options(path=str(log.directory), stream="s", control="true").load()
    query = (
        frame.selectExpr("coalesce(id, -1) AS id")
        .writeStream.format("tidemark")
        .options(path=str(log.directory), stream="t", partitions=1, checkpointLocation=str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        source.append(numbered(1, 2))
        source.end()
        deadline = time.monotonic() + 30
        while len(rows(log, "t")) < 4 and time.monotonic() < deadline:
            query.processAllAvailable()
    finally:
        query.stop()
    assert rows(log, "t") == [-1, 0, 1, 2]


def test_a_write_that_fails_in_one_task_leaves_nothing_of_the_others(spark: SparkSession, log: StreamLog) -> None:
    def fail_in_the_end(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 1:
            raise RuntimeError("after its rows were handed over")

    with pytest.raises(PySparkException, match="after its rows were handed over"):
        write(spark.range(0, 1000, 1, 2).mapInArrow(fail_in_the_end, "id long"), log, partitions=2)
    assert log.stream("s").heads() == [0, 0] and log.stream("s").schema is None
    # Spark may end the failed task's worker before it can tidy up; that is what the sweep is for.
    log.sweep(older_than=-1)
    assert not list(log.segments_directory.rglob("*.arrow"))


def test_rows_behind_an_end_are_refused_in_a_sentence_and_leave_nothing(spark: SparkSession, log: StreamLog) -> None:
    write(spark.range(10), log, partitions=2, end="true")
    held = sorted(log.segments_directory.rglob("*.arrow"))
    for again in ({}, {"end": "true"}):
        with pytest.raises(
            PySparkException, match=r"'s' has ended already: .* Use another name or a new log"
        ) as caught:
            write(spark.range(10), log, **again)
        assert len(str(caught.value).splitlines()) < 5
    assert rows(log) == list(range(10)) and sorted(log.segments_directory.rglob("*.arrow")) == held
    write(spark.range(0), log)


def test_a_streaming_batch_is_refused_behind_an_end_but_may_be_repeated_if_it_was_written_before(
    spark: SparkSession, log: StreamLog, tmp_path: Path
) -> None:
    source, checkpoint = log.create("s", 1), tmp_path / "checkpoint"
    source.append(numbered(0, 5))
    copy(spark, log, checkpoint, {}).awaitTermination()
    log.stream("t").end()
    # As if the process had died between the log's commit and Spark's note of it.
    for name in ("0", ".0.crc"):
        (checkpoint / "commits" / name).unlink()
    copy(spark, log, checkpoint, {}).awaitTermination()
    source.append(numbered(5, 5))
    with pytest.raises(StreamingQueryException, match="'t' has ended already"):
        copy(spark, log, checkpoint, {}).awaitTermination()
    assert rows(log, "t") == list(range(5))


def test_first_event_times_that_look_like_seconds_are_refused_before_anything_is_written(
    spark: SparkSession, log: StreamLog
) -> None:
    seconds = spark.range(1_357_034_400, 1_357_034_410).withColumnRenamed("id", "at")
    with pytest.raises(PySparkException, match=r"'at' has whole numbers such as 13570344\d\d\..*unit='s'"):
        write(seconds, log, partitions=1, time="at")
    assert log.stream("s").heads() == [0]


def test_of_several_attempts_of_a_task_only_the_one_that_spark_names_counts(log: StreamLog) -> None:
    options = WriteOptions.parsed({"path": str(log.directory), "stream": "s", "partitions": "2"})
    writer = BatchWriter(options, StructType().add("id", LongType()), overwrite=False)
    other_task, slow, repeated = (writer.write(iter(numbered(first, 10).to_batches())) for first in (0, 10, 10))
    writer.commit([other_task, repeated])
    assert rows(log) == list(range(20))
    assert log.sweep(older_than=-1) == 1, "what the slow attempt staged"
    writer.commit([other_task, slow])
    assert rows(log) == list(range(20)), "a commit that is repeated changes nothing"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"stream": "flighs"}, "There is no stream 'flighs' in the log .* Did you mean 'flights'"),
        ({"streem": "flights"}, "has no option 'streem'.* Did you mean 'stream'"),
        ({"stream": "empty"}, "The stream 'empty' has no rows yet, so its columns are not known"),
        ({"stream": "flights", "path": "/nowhere"}, "There is no log at /nowhere"),
        ({"stream": "flights", "control": "yes"}, "control must be one of 'true', 'false', not 'yes'"),
        ({"stream": "flights", "maxMessagesPerTrigger": "0"}, "must be a whole number of at least 1, not '0'"),
        ({}, "needs the option 'stream': the name of the stream"),
    ],
)
def test_a_typo_in_a_read_is_one_short_sentence(
    spark: SparkSession, log: StreamLog, options: dict[str, str], sentence: str
) -> None:
    log.create("flights", 1).append(numbered(0, 1))
    log.create("empty", 1)
    with pytest.raises(PySparkException, match=sentence) as caught:
        spark.read.format("tidemark").options(**{"path": str(log.directory), **options}).load()
    assert len(str(caught.value).splitlines()) <= 3


@pytest.mark.parametrize("starting", ["latest", "[1]", "[0, 9]", '{"2": 0}', '{"x": 0}', "[true, 0]"])
def test_starting_offsets_that_can_not_be_are_refused(spark: SparkSession, log: StreamLog, starting: str) -> None:
    log.create("s", 2).append(numbered(0, 3))
    with pytest.raises(PySparkException, match="'startingOffsets' must be"):
        read(spark, log, startingOffsets=starting).collect()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"stream": "new"}, "no stream 'new' .* give the option partitions"),
        ({"partitions": 3}, "The stream 's' has 2 partition.*, not 3"),
        ({"key": "idd"}, "no column 'idd' in the DataFrame.* Did you mean 'id'"),
        ({"key": "id", "partition": "id"}, "'partition' must be left out where key is given"),
        ({"partition": "id"}, "has no partition 2"),
        ({"stream": "t", "partitions": 2, "time": "name"}, "Column 'name' is of type string, which is not a time"),
        ({}, "'name': the stream has no such column, the rows have string"),
    ],
)
def test_a_typo_in_a_write_is_told_shortly_and_writes_nothing(
    spark: SparkSession, log: StreamLog, options: dict[str, Any], sentence: str
) -> None:
    stream = log.create("s", 2)
    stream.append(numbered(0, 3))
    frame = spark.range(0, 5, 1, 1).selectExpr("id", "'x' AS name")
    with pytest.raises(PySparkException, match=sentence) as caught:
        write(frame, log, **{"stream": "s", **options})
    assert len(str(caught.value).splitlines()) <= 25
    assert stream.heads() == [3, 0] and log.sweep(older_than=-1) == 0


def test_a_stream_is_never_overwritten(spark: SparkSession, log: StreamLog) -> None:
    log.create("s", 1)
    with pytest.raises(PySparkException, match="never overwritten"):
        spark.range(1).write.format("tidemark").mode("overwrite").options(path=str(log.directory), stream="s").save()


def test_a_damaged_segment_ends_a_query_with_its_place_and_loses_nothing(
    spark: SparkSession, log: StreamLog, tmp_path: Path
) -> None:
    source = log.create("s", 1)
    source.append(numbered(0, 3))
    path = log.segments_directory / log.resolve("s", 0)[0]["f"]
    intact = path.read_bytes()
    path.write_bytes(intact[:-30] + bytes(30))
    with pytest.raises(StreamingQueryException, match="holds partition 0 of 's' at offset 0, but is damaged"):
        copy(spark, log, tmp_path / "checkpoint", {}).awaitTermination()
    path.write_bytes(intact)
    copy(spark, log, tmp_path / "checkpoint", {}).awaitTermination()
    assert rows(log, "t") == [0, 1, 2]


def test_sql_before_and_after_a_stream(spark: SparkSession, log: StreamLog) -> None:
    write(spark.sql("SELECT id, id % 3 AS g FROM range(300)"), log, partitions=2, key="g")
    read(spark, log).createOrReplaceTempView("s_view")
    found = spark.sql("SELECT g, count(*) AS n FROM s_view GROUP BY g ORDER BY g").collect()
    assert json.dumps([list(row) for row in found]) == "[[0, 100], [1, 100], [2, 100]]"
