from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from workbench.errors import (
    InvalidName,
    InvalidOption,
    InvalidTime,
    NoEventTime,
    OffsetOutOfRange,
    PartitionCountMismatch,
    SchemaMismatch,
    StreamExists,
    UnknownColumn,
    UnknownPartition,
    UnknownStream,
)
from workbench.messages import DrainMessage, EndOfStreamMessage, WatermarkMessage
from workbench.systems.base import StreamPartitions, StreamSystem
from workbench.systems.log import Controls, Entry, Rows, SegmentWriter, StreamLog

ODD_NAMES = ["a/b", "..", "it's", 'say "hi"', "<b>bold</b>", "🌊", "a.b.c", "'; DROP TABLE stream; --", "%s {0}"]


@pytest.fixture
def log(log_dir: Path) -> StreamLog:
    return StreamLog(log_dir)


def ids(*values: int | None) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def timed(*times: int) -> pa.Table:
    return pa.table({"id": list(range(len(times))), "time": pa.array(times, pa.timestamp("ms"))})


def contents(entries: Any) -> list[Any]:
    """(offset, id) of rows and (offset, message) of control messages."""
    found: list[Any] = []
    for entry in entries:
        parts = entry.table["id"].to_pylist() if isinstance(entry, Rows) else entry.run.messages()
        found += [(entry.offset + i, part) for i, part in enumerate(parts)]
    return found


def test_the_log_is_a_system_of_streams(log: StreamLog) -> None:
    assert isinstance(log, StreamSystem)
    assert isinstance(log.create("s", 1), StreamPartitions)


def test_a_stream_is_there_after_it_was_created_and_not_before(log: StreamLog) -> None:
    assert "s" not in log and log.streams() == []
    stream = log.create("s", 3)
    assert "s" in log and log.streams() == ["s"]
    assert (stream.name, stream.partitions, stream.schema) == ("s", 3, None)
    assert stream.heads() == stream.oldest() == [0, 0, 0]
    assert stream.ended() == [False, False, False]


def test_creating_a_stream_again_needs_exist_ok_and_the_same_number_of_partitions(log: StreamLog) -> None:
    created = log.create("s", 3)
    with pytest.raises(StreamExists, match="'s' exists already, with 3"):
        log.create("s", 3)
    assert log.create("s", 3, exist_ok=True).id == created.id
    with pytest.raises(PartitionCountMismatch, match=r"has 3 partition.*not 4"):
        log.create("s", 4, exist_ok=True)


@pytest.mark.parametrize("partitions", [0, -1, 1.5, True, "3", 65_537])
def test_a_number_of_partitions_that_can_not_be_is_refused(log: StreamLog, partitions: Any) -> None:
    with pytest.raises(PartitionCountMismatch):
        log.create("s", partitions)


def test_an_unknown_stream_is_told_with_what_there_is(log: StreamLog) -> None:
    log.create("flights", 1)
    with pytest.raises(UnknownStream, match="Did you mean 'flights'"):
        log.stream("fligths")


@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_are_data_and_never_paths_or_code(log: StreamLog, name: str) -> None:
    stream = log.create(name, 2)
    stream.append(ids(1, 2), 1)
    stream.end()
    assert log.streams() == [name]
    assert contents(log.stream(name).read(1)) == [(0, 1), (1, 2), (2, EndOfStreamMessage(name))]
    log.raise_epoch(name)
    log.lock(name).release()
    made = {path.relative_to(log.directory).parts[0] for path in log.directory.rglob("*")}
    assert made <= {"segments", "locks", ".create.lock", "log.sqlite", "log.sqlite-wal", "log.sqlite-shm"}


@pytest.mark.parametrize("name", ["", " s", "a\nb", "x" * 201])
def test_names_that_nobody_could_read_are_refused(log: StreamLog, name: str) -> None:
    with pytest.raises(InvalidName):
        log.create(name, 1)


def test_appended_rows_have_contiguous_offsets_in_their_own_partition(log: StreamLog) -> None:
    stream = log.create("s", 2)
    stream.append(ids(10, 11), 0)
    stream.append(ids(20), 1)
    stream.append(ids(12), 0)
    assert stream.heads() == [3, 1]
    assert contents(stream.read(0)) == [(0, 10), (1, 11), (2, 12)]
    assert contents(stream.read(1)) == [(0, 20)]


def test_a_data_frame_is_appended_without_its_index(log: StreamLog) -> None:
    stream = log.create("s", 1)
    stream.append(pd.DataFrame({"id": [1, 2]}, index=["x", "y"]))
    assert stream.schema == pa.schema({"id": pa.int64()})


def test_a_record_batch_is_appended_like_a_table(log: StreamLog) -> None:
    stream = log.create("s", 1)
    stream.append(ids(1, 2).to_batches()[0])
    assert contents(stream.read(0)) == [(0, 1), (1, 2)]


def test_no_rows_append_nothing_and_fix_no_schema(log: StreamLog) -> None:
    stream = log.create("s", 1)
    stream.append(ids())
    assert stream.heads() == [0] and stream.schema is None
    assert not list(log.segments_directory.rglob("*.arrow"))


def test_rows_go_to_the_partition_of_their_key_in_one_commit(log: StreamLog) -> None:
    stream = log.create("s", 4)
    stream.append(pa.table({"id": list(range(100)), "key": [f"k{i % 10}" for i in range(100)]}), key="key")
    seen = [set(table["key"].tolist()) for table in (stream.to_pandas(p) for p in range(4) if stream.heads()[p])]
    assert sum(map(len, seen)) == 10 == len(set.union(*map(set, seen)))
    assert [row for _, row in contents(stream.read(0))] == sorted(row for _, row in contents(stream.read(0)))


def test_a_large_table_becomes_entries_of_bounded_size(log: StreamLog) -> None:
    stream = log.create("s", 1)
    stream.append(pa.table({"id": pa.array(range(600_000), pa.int64())}))
    entries = list(stream.read(0))
    assert [entry.offset for entry in entries] == [0, 262_144, 524_288]
    assert stream.heads() == [600_000]


def test_reading_gives_exactly_the_asked_range(log: StreamLog) -> None:
    stream = log.create("s", 1)
    stream.append(ids(0, 1, 2))
    stream.inject(WatermarkMessage(5))
    stream.inject(DrainMessage("run"))
    stream.append(ids(5, 6))
    everything = [(0, 0), (1, 1), (2, 2), (3, WatermarkMessage(5)), (4, DrainMessage("run")), (5, 5), (6, 6)]
    for start in range(8):
        for end in range(start, 8):
            assert contents(stream.read(0, start, end)) == everything[start:end]
    assert contents(stream.read(0, 2, limit=2)) == everything[2:4]
    assert contents(stream.read(0, limit=100)) == everything
    assert contents(stream.read(0, 4, 2)) == []


@pytest.mark.parametrize(("start", "end"), [(-1, None), (0, 4), (4, None)])
def test_offsets_that_are_not_there_are_an_error_with_the_valid_range(
    log: StreamLog, start: int, end: int | None
) -> None:
    stream = log.create("s", 1)
    stream.append(ids(1, 2, 3))
    with pytest.raises(OffsetOutOfRange, match="holds offsets 0 up to, not including, 3"):
        stream.read(0, start, end)


@pytest.mark.parametrize("partition", [-1, 2, "0", True])
def test_a_partition_that_is_not_there_is_an_error_everywhere(log: StreamLog, partition: Any) -> None:
    stream = log.create("s", 2)
    for call in (
        lambda: stream.append(ids(1), partition),
        lambda: stream.end(partition),
        lambda: stream.read(partition),
        lambda: stream.trim(partition, 0),
        lambda: stream.offset_at(partition, 0),
    ):
        with pytest.raises(UnknownPartition, match="partitions are 0 to 1"):
            call()
    assert stream.heads() == [0, 0]


def test_an_end_of_stream_ends_one_partition_or_all(log: StreamLog) -> None:
    stream = log.create("s", 3)
    stream.end(1)
    assert stream.ended() == [False, True, False]
    stream.end()
    assert stream.ended() == [True, True, True]
    stream.inject(WatermarkMessage(1), [0])
    assert stream.ended() == [False, True, True]


def test_a_frame_can_show_positions_and_control_messages(log: StreamLog) -> None:
    stream = log.create("s", 2)
    stream.append(ids(7), 1)
    stream.inject(WatermarkMessage(-5, "Partition 0", 2), [1])
    stream.end(0)
    plain = stream.to_pandas()
    assert plain.columns.tolist() == ["id"] and plain["id"].tolist() == [7]
    assert stream.to_pandas(position=True).to_dict("records") == [{"id": 7, "_partition": 1, "_offset": 0}]
    shown = stream.to_pandas(control=True)
    assert shown["_type"].tolist() == ["end_of_stream", "user", "watermark"]
    assert shown["_stream_id"].tolist()[0] == "s"
    assert shown["_timestamp"].tolist()[2] == -5
    assert shown["_task_name"].tolist()[2] == "Partition 0" and shown["_task_count"].tolist()[2] == 2
    assert shown[["_partition", "_offset"]].to_numpy().tolist() == [[0, 0], [1, 0], [1, 1]]
    assert shown["id"].isna().tolist() == [True, False, True]


def test_a_frame_of_a_stream_without_rows_is_empty(log: StreamLog) -> None:
    stream = log.create("s", 1)
    assert stream.to_pandas().empty
    stream.end()
    assert stream.to_pandas().empty and len(stream.to_pandas(control=True)) == 1


def test_columns_named_as_those_of_control_messages_are_refused_only_where_they_collide(log: StreamLog) -> None:
    stream = log.create("s", 1)
    stream.append(pa.table({"_offset": [1]}))
    assert stream.to_pandas()["_offset"].tolist() == [1]
    with pytest.raises(SchemaMismatch, match="_offset"):
        stream.to_pandas(control=True)


@pytest.mark.parametrize(
    ("first", "later", "kept"),
    [
        (pa.array(["a"]), pa.array(["b"], pa.large_string()), ["a", "b"]),
        (pa.array(["a"], pa.large_string()), pa.array(["b"]), ["a", "b"]),
        (pa.array(["a"]), pa.array(["b"]).dictionary_encode(), ["a", "b"]),
        (pa.array(["a"]).dictionary_encode(), pa.array(["b"], pa.string_view()), ["a", "b"]),
        (pa.array([1]), pa.array([2], pa.int8()), [1, 2]),
        (pa.array([1]), pa.array([2.0]), [1, 2]),
        (pa.array([1], pa.int8()), pa.array([2]), [1, 2]),
        (pa.array([0.5]), pa.array([2]), [0.5, 2.0]),
        (pa.array([1]), pa.nulls(1), [1, None]),
        (pa.nulls(1), pa.array([1]), [None, 1]),
        (pa.array([1], pa.timestamp("ns")), pa.array([1], pa.timestamp("s")), [1, 10**9]),
        (pa.array([1], pa.timestamp("s")), pa.array([2000], pa.timestamp("ms")), [1, 2]),
        (pa.array([1], pa.timestamp("us")), pa.array([2], pa.timestamp("us", "Asia/Tokyo")), [1, 2]),
        (pa.array([1], pa.timestamp("us", "Asia/Tokyo")), pa.array([2], pa.timestamp("us")), [1, 2]),
    ],
    ids=lambda column: str(getattr(column, "type", "")),
)
@pytest.mark.parametrize("staged", [False, True], ids=["append", "staged without the schema"])
def test_rows_that_differ_only_in_form_are_cast(
    log: StreamLog, first: pa.Array, later: pa.Array, kept: list[Any], staged: bool
) -> None:
    stream = log.create("s", 1)
    stream.append(pa.table({"x": first, "y": ["first"]}))
    table = pa.table({"y": ["later"], "x": later})
    if staged:
        with SegmentWriter(log.segments_directory) as writer:
            writer.add("s", 0, table)
            assert log.commit("w", 0, writer.close())
    else:
        stream.append(table)
    column = pa.concat_tables([entry.table for entry in stream.read(0) if isinstance(entry, Rows)])["x"]
    assert stream.schema is not None and column.type == stream.schema.field("x").type
    numbers = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
    assert numbers.to_pylist() == kept


def test_rows_that_do_not_fit_are_refused_with_every_differing_column(log: StreamLog) -> None:
    stream = log.create("s", 1)
    stream.append(pa.table({"a": [1], "b": ["x"], "c": [1.5], "same": [True]}))
    with pytest.raises(SchemaMismatch) as caught:
        stream.append(pa.table({"a": ["1"], "c": [1.5], "same": [False], "d": [1]}))
    assert str(caught.value).splitlines()[1:] == [
        "  'a': the stream has int64, the rows have string",
        "  'b': the stream has string, the rows have no such column",
        "  'd': the stream has no such column, the rows have int64",
        "Rows of another kind need another stream.",
    ]
    assert stream.heads() == [1]


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (pa.array([1]), pa.array([1.5])),
        (pa.array([1], pa.int8()), pa.array([300])),
        (pa.array([1], pa.timestamp("s")), pa.array([1], pa.timestamp("ms"))),
        (pa.array([0.5]), pa.array([2**53 + 1])),
    ],
    ids=lambda column: str(column.type),
)
def test_rows_are_refused_where_casting_would_change_a_value(log: StreamLog, first: pa.Array, later: pa.Array) -> None:
    stream = log.create("s", 1)
    stream.append(pa.table({"x": first}))
    with pytest.raises(SchemaMismatch, match=r"'x'.*not every value fits"):
        stream.append(pa.table({"x": later}))
    assert stream.heads() == [1]


def test_columns_of_the_same_name_and_rows_without_columns_are_refused(log: StreamLog) -> None:
    stream = log.create("s", 1)
    with pytest.raises(SchemaMismatch, match="same name: 'x'"):
        stream.append(pa.table([[1], [2]], names=["x", "x"]))
    with pytest.raises(SchemaMismatch, match="no columns"):
        stream.append(pd.DataFrame(index=range(3)))


def test_a_time_column_must_be_there_and_hold_times(log: StreamLog) -> None:
    stream = log.create("s", 1)
    with pytest.raises(UnknownColumn, match=r"'tme'.*Did you mean 'time'"):
        stream.append(timed(1), time_column="tme")
    with pytest.raises(InvalidTime, match="'name' is of type string"):
        stream.append(pa.table({"name": ["x"]}), time_column="name")
    assert stream.heads() == [0] and stream.schema is None


def test_the_first_offset_at_an_event_time_is_found_in_disorder_and_behind_nulls(log: StreamLog) -> None:
    stream = log.create("s", 1)
    stream.append(timed(-50, 10, 5), time_column="time")
    stream.inject(WatermarkMessage(0))
    stream.append(pa.table({"id": [0, 1], "time": pa.array([None, 40], pa.timestamp("ms"))}), time_column="time")
    stream.append(timed(20), time_column="time")
    expected = {-100: 0, -50: 0, -49: 1, 10: 1, 11: 5, 20: 5, 40: 5, 41: 7}
    assert {time: stream.offset_at(0, time) for time in expected} == expected


def test_the_look_up_by_event_time_begins_at_the_oldest_offset(log: StreamLog) -> None:
    stream = log.create("s", 1)
    stream.append(timed(90, 10, 20), time_column="time")
    stream.append(timed(80), time_column="time")
    stream.trim(0, 1)
    assert stream.offset_at(0, 50) == 3
    assert stream.offset_at(0, 15) == 2


def test_rows_without_event_times_can_not_be_looked_up_by_them(log: StreamLog) -> None:
    stream = log.create("s", 1)
    assert stream.offset_at(0, 0) == 0
    stream.append(ids(1))
    with pytest.raises(NoEventTime, match='by="append"'):
        stream.offset_at(0, 0)
    with pytest.raises(InvalidOption, match="'event', 'append'"):
        stream.offset_at(0, 0, by="evnt")


def test_the_first_offset_appended_at_a_time_is_found(log: StreamLog, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1_000]
    monkeypatch.setattr("workbench.systems.log.commits.time.time_ns", lambda: clock[0] * 1_000_000)
    stream = log.create("s", 1)
    stream.append(ids(1, 2))
    clock[0] = 2_000
    stream.inject(WatermarkMessage(7))
    clock[0] = 500  # A clock that was set back: times of appending never go back.
    stream.append(ids(3))
    at = {time: stream.offset_at(0, time, by="append") for time in (0, 1_000, 1_001, 2_000, 2_001)}
    assert at == {0: 0, 1_000: 0, 1_001: 2, 2_000: 2, 2_001: 4}


def test_trimming_moves_the_oldest_offset_and_deletes_files_that_nobody_needs(log: StreamLog) -> None:
    stream = log.create("s", 2)
    stream.append(ids(0, 1, 2), 0)
    stream.append(ids(3), 0)
    assert stream.trim(0, 1) == 1
    assert len(list(log.segments_directory.rglob("*.arrow"))) == 2
    assert contents(stream.read(0)) == [(1, 1), (2, 2), (3, 3)]
    with pytest.raises(OffsetOutOfRange, match="holds offsets 1 up to, not including, 4: older ones were removed"):
        stream.read(0, 0)
    assert stream.trim(0, 3) == 3
    assert len(list(log.segments_directory.rglob("*.arrow"))) == 1
    assert stream.trim(0, 0) == 3
    assert stream.trim(0, 100) == 4
    assert stream.oldest() == [4, 0] and stream.heads() == [4, 0]
    assert not list(log.segments_directory.rglob("*.arrow"))
    stream.append(ids(9), 0)
    assert contents(stream.read(0)) == [(4, 9)]


def test_a_file_that_two_partitions_share_stays_until_both_are_trimmed(log: StreamLog) -> None:
    stream = log.create("s", 2)
    stream.append(pa.table({"id": list(range(50))}), key="id")
    stream.trim(0, stream.heads()[0])
    assert len(list(stream.read(1))) == 1
    stream.trim(1, stream.heads()[1])
    assert not list(log.segments_directory.rglob("*.arrow"))


def test_a_log_can_be_pickled_and_opened_again(log: StreamLog) -> None:
    log.create("s", 1).append(ids(1))
    again = pickle.loads(pickle.dumps(log))
    assert contents(again.stream("s").read(0)) == [(0, 1)]
    log.close()
    assert contents(StreamLog(log.directory, create=False).stream("s").read(0)) == [(0, 1)]
    assert contents(log.stream("s").read(0)) == [(0, 1)]


def test_rows_are_mapped_and_not_copied(log: StreamLog) -> None:
    stream = log.create("s", 1)
    stream.append(pa.table({"id": pa.array(range(100_000), pa.int64())}))
    before = pa.total_allocated_bytes()
    (entry,) = list(stream.read(0, 10, 90_000))
    assert isinstance(entry, Rows) and entry.table["id"][0].as_py() == 10
    assert pa.total_allocated_bytes() - before < 10_000


def test_times_of_pandas_come_back_as_they_were(log: StreamLog) -> None:
    stream = log.create("s", 1)
    moment = datetime(1955, 11, 5, 6, 0, 0, 1, tzinfo=UTC)
    stream.append(pd.DataFrame({"time": pd.to_datetime([moment, None])}), time_column="time")
    read: list[Entry] = list(stream.read(0))
    assert isinstance(read[0], Rows) and read[0].table["time"].to_pylist() == [moment, None]
    assert not isinstance(read[0], Controls)


def test_the_first_times_of_a_stream_are_refused_if_they_look_like_seconds_later_ones_are_not(log: StreamLog) -> None:
    seconds = pa.table({"at": pa.array([1_357_034_400, 1_357_034_401])})
    stream = log.create("simulated", 1)
    with pytest.raises(
        InvalidTime, match=r"'at' has whole numbers such as 1357034400.*as seconds they are of 2013-01-01"
    ):
        stream.append(seconds, time_column="at")
    assert stream.heads() == [0]
    stream.append(pa.table({"at": pa.array([0, 3_600_000])}), time_column="at")
    stream.append(seconds, time_column="at")
    assert stream.offset_at(0, 1_357_034_400) == 2
