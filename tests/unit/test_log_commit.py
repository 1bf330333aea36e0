from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest

from workbench.errors import (
    LogInUse,
    SchemaMismatch,
    StaleEpoch,
    StreamEnded,
    UnknownPartition,
    UnknownStream,
    UnstagedRows,
)
from workbench.messages import ControlMessage, ControlRun, EndOfStreamMessage, WatermarkMessage
from workbench.systems.log import ControlAppend, Controls, Rows, SegmentWriter, StagedRows, StreamLog, read_ref


@pytest.fixture
def log(log_dir: Path) -> StreamLog:
    log = StreamLog(log_dir)
    log.create("s", 3)
    return log


def staged(log: StreamLog, *rows: tuple[str, int, list[int]]) -> list[StagedRows]:
    with SegmentWriter(log.segments_directory) as writer:
        for stream, partition, values in rows:
            writer.add(stream, partition, pa.table({"id": pa.array(values, pa.int64())}))
        return writer.close()


def run_of(*messages: ControlMessage) -> ControlRun:
    return ControlRun.from_messages(messages)


def watermark(task: int, time: int = 0) -> WatermarkMessage:
    return WatermarkMessage(time, f"Partition {task}", 256)


def files(log: StreamLog) -> list[Path]:
    return sorted(log.segments_directory.rglob("*.arrow"))


def contents(log: StreamLog, partition: int, stream: str = "s") -> list[object]:
    found: list[object] = []
    for entry in log.stream(stream).read(partition):
        found += entry.table["id"].to_pylist() if isinstance(entry, Rows) else entry.run.messages()
    return found


def test_staged_rows_belong_to_no_stream_before_the_commit(log: StreamLog) -> None:
    rows = staged(log, ("s", 0, [1, 2]))
    assert log.stream("s").heads() == [0, 0, 0] and len(files(log)) == 1
    assert log.commit("w", 0, rows) is True
    assert contents(log, 0) == [1, 2]


def test_one_file_holds_what_a_task_wrote_for_all_partitions(log: StreamLog) -> None:
    log.create("t", 1)
    log.commit("w", 0, staged(log, ("s", 0, [1]), ("t", 0, [2]), ("s", 2, [3])))
    assert len(files(log)) == 1
    assert contents(log, 0) == [1] and contents(log, 2) == [3] and contents(log, 0, "t") == [2]


def test_staged_rows_survive_json(log: StreamLog) -> None:
    rows = staged(log, ("s", 0, [1]))
    assert [StagedRows.from_json(json.loads(json.dumps(row.to_json()))) for row in rows] == rows


def test_a_task_without_rows_makes_no_file(log: StreamLog) -> None:
    assert staged(log) == [] and staged(log, ("s", 0, [])) == []
    assert files(log) == []


def test_a_writer_that_fails_leaves_no_file(log: StreamLog) -> None:
    with pytest.raises(RuntimeError), SegmentWriter(log.segments_directory) as writer:
        writer.add("s", 0, pa.table({"id": [1]}))
        assert len(files(log)) == 1
        raise RuntimeError
    assert files(log) == []


def test_a_second_commit_of_a_batch_changes_nothing_and_removes_what_it_staged(log: StreamLog) -> None:
    assert log.commit("w", 7, [*staged(log, ("s", 0, [1])), ControlAppend("s", 0, run_of(watermark(0)))])
    kept = files(log)
    calls: list[sqlite3.Connection] = []
    assert log.commit("w", 7, staged(log, ("s", 0, [2]), ("s", 1, [3])), also=calls.append) is False
    assert contents(log, 0) == [1, watermark(0)] and contents(log, 1) == []
    assert files(log) == kept and calls == []
    assert log.commit("w", 8, staged(log, ("s", 0, [2]))) and log.commit("other", 7, staged(log, ("s", 0, [3])))
    assert contents(log, 0) == [1, watermark(0), 2, 3]


def test_the_very_same_staged_rows_committed_twice_stay_readable(log: StreamLog) -> None:
    rows = staged(log, ("s", 0, [1]))
    assert log.commit("w", 0, rows) and not log.commit("w", 0, rows)
    log.discard(rows)
    assert contents(log, 0) == [1]


def test_within_a_partition_all_rows_come_before_all_control_messages(log: StreamLog) -> None:
    first, second = staged(log, ("s", 0, [1])), staged(log, ("s", 0, [2]), ("s", 1, [3]))
    log.commit(
        "w",
        0,
        [
            ControlAppend("s", None, run_of(watermark(0), watermark(1))),
            *second,
            ControlAppend("s", 0, run_of(watermark(2))),
            *first,
            ControlAppend("s", None, run_of(EndOfStreamMessage("s"))),
        ],
    )
    shared, last = [watermark(0), watermark(1)], EndOfStreamMessage("s")
    assert contents(log, 0) == [2, 1, *shared, watermark(2), last]
    assert contents(log, 1) == [3, *shared, last]
    assert contents(log, 2) == [*shared, last]
    assert log.stream("s").heads() == [6, 4, 3]
    assert log.stream("s").ended() == [True, True, True]


def test_messages_for_all_partitions_are_kept_once(log: StreamLog) -> None:
    wide = log.create("wide", 256)
    log.commit("w", 0, [ControlAppend("wide", None, run_of(watermark(task))) for task in range(256)])
    assert wide.heads() == [256] * 256
    assert log.connection().execute("SELECT count(*) FROM control").fetchone() == (1,)
    assert log.connection().execute("SELECT count(*) FROM entry").fetchone() == (256,)
    (entry,) = wide.read(200, 10, 12)
    assert entry == Controls(10, run_of(watermark(10), watermark(11)))
    for partition in range(256):
        wide.trim(partition, 256)
    assert log.connection().execute("SELECT count(*) FROM control").fetchone() == (0,)


def test_an_empty_run_appends_nothing(log: StreamLog) -> None:
    log.commit("w", 0, [ControlAppend("s", None, run_of())])
    assert log.stream("s").heads() == [0, 0, 0]


def test_resolved_ranges_are_json_and_need_no_index_to_be_read(log: StreamLog) -> None:
    log.commit(
        "w", 0, [*staged(log, ("s", 0, [10, 11, 12])), ControlAppend("s", 0, run_of(watermark(1), watermark(2)))]
    )
    refs = json.loads(json.dumps(log.resolve("s", 0, 1, 4)))
    assert [ref["o"] for ref in refs] == [1, 3]
    assert read_ref(str(log.segments_directory), refs[0])["id"].to_pylist() == [11, 12]
    assert ControlRun.from_json(refs[1]["ctl"]) == run_of(watermark(1))


@pytest.mark.parametrize(
    ("append", "error"),
    [
        (("unknown", 0, [1]), UnknownStream),
        (("s", 3, [1]), UnknownPartition),
        (("s", -1, [1]), UnknownPartition),
    ],
)
def test_a_commit_with_one_wrong_append_appends_nothing(
    log: StreamLog, append: tuple[str, int, list[int]], error: type[Exception]
) -> None:
    rows = staged(log, ("s", 0, [1]), append)
    with pytest.raises(error):
        log.commit("w", 0, rows)
    assert log.stream("s").heads() == [0, 0, 0] and log.stream("s").schema is None
    # The key is free again, and the good part of what was staged can still be committed.
    assert log.commit("w", 0, rows[:1])


def test_rows_of_another_schema_are_refused_at_the_commit(log: StreamLog) -> None:
    log.commit("w", 0, staged(log, ("s", 0, [1])))
    with SegmentWriter(log.segments_directory) as writer:
        writer.add("s", 0, pa.table({"other": ["x"]}))
        rows = writer.close()
    with pytest.raises(SchemaMismatch, match="'other'"):
        log.commit("w", 1, rows)
    log.discard(rows)
    assert len(files(log)) == 1 and log.stream("s").heads() == [1, 0, 0]


def test_rows_rewritten_to_fit_leave_no_file_behind(log: StreamLog) -> None:
    log.commit("w", 0, staged(log, ("s", 0, [1])))
    with SegmentWriter(log.segments_directory) as writer:
        writer.add("s", 0, pa.table({"id": [2.0]}))
        rows = writer.close()
    with pytest.raises(UnknownStream):
        log.commit("w", 1, [*rows, ControlAppend("unknown", 0, run_of(watermark(0)))])
    assert len(files(log)) == 2, "what was staged stays, what was rewritten goes"
    log.commit("w", 1, rows)
    assert len(files(log)) == 2 and contents(log, 0) == [1, 2]


def test_a_commit_whose_companion_fails_appends_nothing(log: StreamLog) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        assert log.connection() is connection
        log.metadata.put("n", "k", "v")
        raise RuntimeError("telemetry")

    rows = staged(log, ("s", 0, [1]))
    with pytest.raises(RuntimeError, match="telemetry"):
        log.commit("w", 0, rows, also=fail)
    assert log.stream("s").heads() == [0, 0, 0] and log.metadata.get("n", "k") is None
    assert log.commit("w", 0, rows, also=lambda connection: log.metadata.put("n", "k", "v"))
    assert log.metadata.get("n", "k") == b"v"


def test_a_deployment_that_was_replaced_can_not_write(log: StreamLog) -> None:
    assert log.raise_epoch("app") == 1 and log.raise_epoch("other") == 1
    assert log.commit("w", 0, staged(log, ("s", 0, [1])), fence=("app", 1))
    assert log.raise_epoch("app") == 2
    with pytest.raises(StaleEpoch, match="deployment 1 of 'app', and deployment 2 has taken over"):
        log.commit("w", 1, staged(log, ("s", 0, [2])), fence=("app", 1))
    with pytest.raises(StaleEpoch):
        log.commit("w", 0, staged(log, ("s", 0, [2])), fence=("app", 1))
    assert log.commit("w", 1, staged(log, ("s", 0, [3])), fence=("app", 2))
    assert contents(log, 0) == [1, 3]


def test_rows_whose_staged_file_is_gone_are_not_committed(log: StreamLog) -> None:
    rows = staged(log, ("s", 0, [1]))
    log.discard(rows)
    assert files(log) == []
    with pytest.raises(UnstagedRows, match="is not there any more"):
        log.commit("w", 0, rows)
    assert log.stream("s").heads() == [0, 0, 0]


def test_a_sweep_takes_only_old_files_that_nobody_needs_or_writes(log: StreamLog) -> None:
    committed, left, fresh = (staged(log, ("s", 0, [value])) for value in (1, 2, 3))
    log.commit("w", 0, committed)
    open_writer = SegmentWriter(log.segments_directory)
    open_writer.add("s", 0, pa.table({"id": [4]}))
    for path in files(log):
        os.utime(path, (0, 0))
    os.utime(log.segments_directory / fresh[0].file)
    assert log.sweep() == 1
    assert not (log.segments_directory / left[0].file).exists()
    assert log.sweep() == 0
    rows = open_writer.close()
    assert log.commit("w", 1, [*fresh, *rows])
    assert contents(log, 0) == [1, 3, 4]


def test_a_sweep_can_be_told_what_is_old(log: StreamLog) -> None:
    staged(log, ("s", 0, [1]))
    assert log.sweep(older_than=60) == 0
    assert log.sweep(older_than=-1) == 1


def test_an_application_runs_once_at_a_time_on_a_log(log: StreamLog) -> None:
    with log.lock("app", "run-1") as held:
        with pytest.raises(LogInUse, match=rf"'app' is already running .* in process {os.getpid()} .*\(run run-1\)"):
            log.lock("app", "run-2")
        log.lock("another", "run-2").release()
        held.release()
        log.lock("app").release()
    log.lock("app", "run-3").release()


def test_rows_behind_an_end_are_refused_where_asked_and_a_commit_that_is_repeated_after_the_end_changes_nothing(
    log: StreamLog,
) -> None:
    assert log.commit("w", 0, staged(log, ("s", 0, [1]), ("s", 1, [2])), behind_ends=False) is True
    log.stream("s").end(1)
    before = files(log)
    assert log.commit("w", 0, staged(log, ("s", 1, [2])), behind_ends=False) is False
    rows = staged(log, ("s", 0, [3]), ("s", 1, [4]))
    with pytest.raises(StreamEnded, match="'s' has ended already"):
        log.commit("w", 1, rows, behind_ends=False)
    assert log.stream("s").heads() == [1, 2, 0]
    log.discard(rows)
    assert files(log) == before
    assert log.commit("w", 1, staged(log, ("s", 0, [3]), ("s", 2, [4])), behind_ends=False) is True
    # A task of several goes on behind the end of another.
    assert log.commit("tasks", 0, staged(log, ("s", 1, [5]))) is True


def test_an_end_in_the_same_commit_comes_after_its_rows_and_is_not_in_their_way(log: StreamLog) -> None:
    end = ControlAppend("s", None, run_of(EndOfStreamMessage("s")))
    assert log.commit("w", 0, [*staged(log, ("s", 0, [1])), end], behind_ends=False) is True
    assert log.stream("s").ended() == [True, True, True]
