"""Runs that can not go on: who says why, what is kept, and that the run goes on once the cause is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import workbench as wb
from tests.support.jobs import assert_hourly_is_true, events, hourly, write_events
from workbench.errors import InvalidTime, LogInUse, RunFailed, RunTimeout

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def log(log_dir: Path) -> wb.StreamLog:
    return wb.StreamLog(log_dir)


def failure_of(app: wb.Application, spark: SparkSession, log: wb.StreamLog, max_messages: int = 700) -> str:
    with pytest.raises(RunFailed) as failed:
        app.deploy(spark, log, max_messages=max_messages).wait(timeout=120)
    shown = str(failed.value)
    assert len(shown.splitlines()) < 25
    assert "\tat " not in shown and "org.apache" not in shown, "nothing of a JVM trace"
    assert failed.value.full_trace
    return shown


def test_another_process_that_runs_the_application_is_named_and_when_it_dies_the_way_is_free(
    spark: SparkSession, log: wb.StreamLog
) -> None:
    tables = events(300, partitions=2, disorder_ms=0)
    write_events(log, tables)
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from workbench import StreamLog; lock = StreamLog(sys.argv[1]).lock('hourly', 'a run');"
            " print('held', flush=True); time.sleep(600)",
            str(log.directory),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with pytest.raises(LogInUse, match=rf"'hourly' is already running .* in process {holder.pid} .*a run"):
            hourly(3).deploy(spark, log)
        assert log.streams() == ["events"], "who may not run leaves no trace"
    finally:
        holder.kill()
        holder.communicate()
    assert hourly(3).deploy(spark, log).wait(timeout=60).status == "finished"
    assert_hourly_is_true(log, tables)


def test_a_stream_without_rows_is_waited_for_and_named_and_rows_may_come_later(
    spark: SparkSession, log: wb.StreamLog
) -> None:
    log.create("events", 2)
    run = hourly(3).deploy(spark, log)
    with pytest.raises(RunTimeout, match=r"the end of the input stream 'events' in Partition 0, Partition 1") as waited:
        run.wait(timeout=2)
    assert len(str(waited.value).splitlines()) < 25
    assert run.status == "running"
    tables = events(300, partitions=2, disorder_ms=0)
    write_events(log, tables)
    assert run.wait(timeout=60).status == "finished"
    assert_hourly_is_true(log, tables)


def test_a_stream_that_ends_without_any_row_ends_the_run(spark: SparkSession, log: wb.StreamLog) -> None:
    log.create("events", 2).end()
    run = hourly(3).deploy(spark, log).wait(timeout=60)
    assert run.status == "finished"
    assert run.end_of_stream()["heard"].all()
    assert log.stream("panes").heads() == [0, 0, 0]


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        (("when", pa.array([0], pa.timestamp("ms", "UTC"))), "no column 'at' in the stream 'events'.*'when'"),
        (("at", pa.array(["noon"])), "Column 'at' is of type string, which is not a time"),
    ],
)
def test_first_rows_without_event_times_are_refused_though_the_run_began_before_them(
    spark: SparkSession, log: wb.StreamLog, column: tuple[str, pa.Array], sentence: str
) -> None:
    stream = log.create("events", 1)
    run = hourly(1).deploy(spark, log)
    stream.append(pa.table({column[0]: column[1], "key": ["k"], "value": [1.0], "id": [1]}))
    with pytest.raises(RunFailed, match=sentence) as failed:
        run.wait(timeout=60)
    assert "Partition 0" in str(failed.value)
    assert len(str(failed.value).splitlines()) < 25
    assert sum(log.stream("hourly.key").heads()) == 0


def test_event_times_of_a_type_that_is_no_time_are_refused_before_anything_runs(
    spark: SparkSession, log: wb.StreamLog
) -> None:
    log.create("events", 1).append(pa.table({"at": ["noon"], "key": ["k"], "value": [1.0], "id": [1]}))
    with pytest.raises(InvalidTime, match="Column 'at' is of type string"):
        hourly(1).deploy(spark, log)


def test_rows_without_an_event_time_are_late_rows_and_hold_nothing_back(spark: SparkSession, log: wb.StreamLog) -> None:
    table = events(400, partitions=1, disorder_ms=0)[0]
    missing = set(range(0, 400, 40))
    holes = pa.array(
        [None if row in missing else at for row, at in enumerate(table["at"].to_pylist())], table["at"].type
    )
    table = table.set_column(0, "at", holes)
    write_events(log, [table])
    run = hourly(2).deploy(spark, log, max_messages=100).wait(timeout=60)
    assert run.status == "finished"
    assert set(log.stream("late").to_pandas()["id"]) == missing
    assert assert_hourly_is_true(log, [table]) == len(missing)


def test_a_stream_of_rows_that_all_lack_an_event_time_ends_nevertheless(spark: SparkSession, log: wb.StreamLog) -> None:
    nothing = pa.array([None] * 50, pa.timestamp("ms", "UTC"))
    table = pa.table({"at": nothing, "key": ["k"] * 50, "value": [1.0] * 50, "id": range(50)})
    write_events(log, [table])
    run = hourly(2).deploy(spark, log, max_messages=20).wait(timeout=60)
    assert run.status == "finished"
    assert run.totals()["late_messages"] == 50
    assert log.stream("panes").heads() == [0, 0]


def test_a_segment_cut_short_is_told_and_the_run_goes_on_when_it_is_whole(
    spark: SparkSession, log: wb.StreamLog
) -> None:
    tables = events(3_000, partitions=2, disorder_ms=0)
    write_events(log, [table.slice(0, 700) for table in tables], end=False)
    first = hourly(3).deploy(spark, log, max_messages=700)
    with pytest.raises(RunTimeout):
        first.wait(timeout=5)
    assert first.stop().status == "stopped"
    write_events(log, [table.slice(700) for table in tables])
    before = {name: log.stream(name).to_pandas(control=True) for name in log.streams()}
    path = log.segments_directory / log.resolve("events", 0, 1_000, 1_001)[0]["f"]
    whole = path.read_bytes()
    os.truncate(path, len(whole) // 2)

    shown = failure_of(hourly(3), spark, log)
    assert path.name in shown and "is damaged there" in shown and "stream    events" in shown
    assert log.stream("hourly.key").heads() >= [len(before["hourly.key"].query(f"_partition == {p}")) for p in range(3)]

    path.write_bytes(whole)
    assert hourly(3).deploy(spark, log, max_messages=700).wait(timeout=60).status == "finished"
    assert_hourly_is_true(log, tables)


def ending(how: Callable[[], object]) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """A function that ends its own process at one row. Made here, so that it is pickled by value: workers lack this module."""

    def function(frame: pd.DataFrame) -> pd.DataFrame:
        if (frame["id"] == 1_801).any():
            how()
        return frame

    return function


@pytest.mark.parametrize(
    ("function", "parts"),
    [
        (ending(lambda: os.kill(os.getpid(), signal.SIGKILL)), ["ended without a word", "max_messages"]),
        (ending(lambda: sys.exit(3)), ["SystemExit", "sys.exit(3)"]),
    ],
    ids=["killed", "exits"],
)
def test_a_worker_that_dies_fails_the_run_with_a_reason_and_another_run_goes_on(
    spark: SparkSession,
    log: wb.StreamLog,
    function: Callable[[pd.DataFrame], pd.DataFrame],
    parts: list[str],
) -> None:
    tables = events(3_000, partitions=2, disorder_ms=0)
    write_events(log, tables)
    app = wb.Application("copy")
    app.input("events", event_time="at").map(function, name="f").send_to("out")
    shown = failure_of(app, spark, log)
    for part in parts:
        assert part in shown
    mended = wb.Application("copy")
    mended.input("events", event_time="at").map(lambda frame: frame, name="f").send_to("out")
    assert mended.deploy(spark, log, max_messages=700).wait(timeout=60).status == "finished"
    assert sorted(log.stream("out").to_pandas()["id"]) == list(range(3_000))


_LOSES_ITS_JVM = """
import sys
from pyspark import SparkContext
import workbench as wb
from tests.support.jobs import hourly

log = wb.StreamLog(sys.argv[1], create=False)
run = hourly(3).deploy(wb.local_session(cores=2), log, max_messages=300)
while not len(run.batches()):
    pass
SparkContext._gateway.proc.kill()
try:
    run.wait(timeout=60)
except wb.TidemarkError as error:
    print(error)
print(run.status)
print(hourly(3).deploy(wb.local_session(cores=2), log).wait(timeout=120).status)
stopped = hourly(3, name="second").deploy(wb.local_session(cores=2), wb.StreamLog(sys.argv[2], create=False))
wb.stop_session()
try:
    print(stopped.wait(timeout=30).status)
except wb.TidemarkError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_lost_jvm_is_told_and_a_new_session_goes_on_and_a_stopped_session_stops_its_runs(
    log: wb.StreamLog, tmp_path: Path
) -> None:
    tables = events(3_000, partitions=2, disorder_ms=0)
    write_events(log, tables)
    live = wb.StreamLog(tmp_path / "live")
    write_events(live, events(100, partitions=1, disorder_ms=0), end=False)
    process = subprocess.run(
        [sys.executable, "-c", _LOSES_ITS_JVM, str(log.directory), str(live.directory)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    first, sentence, hint, *statuses = process.stdout.splitlines()
    assert first.endswith("failed.") and hint.startswith("The full trace")
    assert sentence.startswith("Spark's Java process has ended") and "deploy again" in sentence
    assert statuses == ["failed", "finished", "stopped"]
    assert_hourly_is_true(log, tables)
