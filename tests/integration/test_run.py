"""A job on Spark, from deployment to its end, and what it says when something is wrong."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import workbench as wb
import workbench.systems.log
from tests.support.jobs import assert_hourly_is_true, events, hourly, write_events
from workbench.errors import (
    IncompatibleCheckpoint,
    InvalidGraph,
    LogInUse,
    RunFailed,
    RunTimeout,
    StreamEnded,
    UnknownColumn,
    UnknownStream,
    UnknownTask,
)
from workbench.graph import MessageStream


@pytest.fixture
def log(log_dir: Path) -> wb.StreamLog:
    return wb.StreamLog(log_dir)


def test_a_two_stage_job_runs_to_the_end_of_its_input_and_equals_the_truth(
    spark: SparkSession, log: wb.StreamLog
) -> None:
    tables = events(6_000, partitions=3, disorder_ms=7_200_000)
    write_events(log, tables)

    run = hourly(4, out_of_orderness=1_800_000).deploy(spark, log, max_messages=1_500).wait(timeout=120)

    assert run.status == "finished"
    late = assert_hourly_is_true(log, tables)
    assert late > 0, "the disorder is larger than the bound: a test without late rows would prove less"
    assert run.totals()["late_messages"] == late == run.batches()["late_messages"].sum()
    assert run.totals()["input_messages"] == 6_000
    ends = run.end_of_stream()
    assert ends["heard"].all()
    assert set(ends.loc[ends["stream"] == "hourly.key", "upstream_task"]) == {f"Partition {n}" for n in range(3)}
    last = run.watermarks().groupby(["task", "stream"]).tail(1)
    assert len(last) == 3 + 4
    assert (last["state"] == "finished").all()
    assert last["watermark"].isna().all(), "the end of time is a state, never shown as a time"
    pd.testing.assert_frame_equal(wb.read_bookkeeping(spark, log, "hourly"), run.bookkeeping())
    pd.testing.assert_frame_equal(wb.open_record(log, "hourly").batches(), run.batches())
    for figure in ("watermarks", "who_holds_back", "end_of_stream", "batches", "late_rows", "bookkeeping"):
        assert getattr(run.figures, figure)().layout.title.text
    with pytest.raises(UnknownTask, match="'Partition 0' to 'Partition 3'"):
        run.bookkeeping(9)


@pytest.mark.parametrize(("containers", "max_messages"), [(1, 10_000), (3, 900)])
def test_the_result_does_not_depend_on_containers_or_batches(
    spark: SparkSession, log: wb.StreamLog, containers: int, max_messages: int
) -> None:
    tables = events(3_000, partitions=2, disorder_ms=3_600_000)
    write_events(log, tables)
    app = hourly(5, out_of_orderness=3_600_000)
    run = app.deploy(spark, log, containers=containers, max_messages=max_messages).wait(timeout=120)
    assert run.query.lastProgress["stateOperators"][0]["numShufflePartitions"] == containers
    assert assert_hourly_is_true(log, tables) == 0


def test_a_stopped_run_goes_on_where_it_was(spark: SparkSession, log: wb.StreamLog) -> None:
    tables = events(4_000, partitions=2, disorder_ms=0)
    write_events(log, [table.slice(0, 1_000) for table in tables], end=False)
    first = hourly(3).deploy(spark, log, max_messages=700)
    with pytest.raises(RunTimeout, match="the end of the input stream 'events' in Partition 0, Partition 1"):
        first.wait(timeout=6)
    with pytest.raises(LogInUse):
        hourly(3).deploy(spark, log)
    first.stop()
    assert first.status == "stopped"
    before = first.watermarks()
    assert (before.groupby(["task", "stream"])["state"].last() == "active").all(), "a stop never raises a watermark"

    write_events(log, [table.slice(1_000) for table in tables])
    second = hourly(3).deploy(spark, log, max_messages=700).wait(timeout=120)
    assert second.status == "finished"
    assert_hourly_is_true(log, tables)
    again = hourly(3).deploy(spark, log).wait(timeout=60)
    assert again.status == "finished"
    assert_hourly_is_true(log, tables)


def test_an_error_in_a_users_function_is_told_in_under_25_lines_with_the_row(
    spark: SparkSession, log: wb.StreamLog
) -> None:
    write_events(log, events(100, partitions=1, disorder_ms=0))
    app = wb.Application("broken")

    def divide(frame: pd.DataFrame) -> pd.DataFrame:
        if (frame["id"] == 37).any():
            raise ZeroDivisionError("no value for 37")
        return frame

    app.input("events", event_time="at").map(divide).send_to("out")
    run = app.deploy(spark, log)
    with pytest.raises(RunFailed) as failed:
        run.wait(timeout=60)
    shown = str(failed.value)
    assert run.status == "failed"
    assert len(shown.splitlines()) < 25
    for part in ("ZeroDivisionError", "no value for 37", "map divide", "stage 1: events", "Partition 0", "id = 37"):
        assert part in shown
    assert "test_run.py" in shown and "raise ZeroDivisionError" in shown, "the user's own line"
    assert "Traceback" in failed.value.full_trace
    assert log.stream("out").heads() == [0]


def same(stream: MessageStream) -> MessageStream:
    """Behind a function nobody knows what columns there are before it has run."""
    return stream.map(lambda frame: frame, name="same")


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda s: same(s).filter("valu > 3").send_to("out"), "There is no column 'valu' in .*Did you mean 'value'"),
        (lambda s: same(s).partition_by("kez").send_to("out"), "There is no column 'kez' in .*Did you mean 'key'"),
        (lambda s: s.map(lambda f: f.head(1)).send_to("out"), "returned 1 rows for .* use flat_map or filter"),
        (lambda s: s.map(lambda f: None).send_to("out"), "must return a pandas DataFrame, not NoneType"),
        (
            lambda s: same(s).window(wb.tumbling("1h"), by="key").aggregate(m=("key", "mean")).send_to("out"),
            "mean.*key",
        ),
    ],
)
def test_a_typo_in_an_application_is_told_in_a_sentence(
    spark: SparkSession, log: wb.StreamLog, build, sentence: str
) -> None:
    write_events(log, events(100, partitions=1, disorder_ms=0))
    app = wb.Application("typo")
    build(app.input("events", event_time="at"))
    with pytest.raises(RunFailed, match=sentence) as failed:
        app.deploy(spark, log).wait(timeout=60)
    assert len(str(failed.value).splitlines()) < 25


def test_what_can_not_run_is_refused_before_anything_runs(spark: SparkSession, log: wb.StreamLog) -> None:
    write_events(log, events(10, partitions=2, disorder_ms=0))
    with pytest.raises(UnknownStream, match="'events'"):
        app = wb.Application("a")
        app.input("evnts").send_to("out")
        app.deploy(spark, log)
    with pytest.raises(UnknownColumn, match=r"no column 'kez' in .*Did you mean 'key'"):
        app = wb.Application("a")
        app.input("events").partition_by("kez").send_to("out")
        app.deploy(spark, log)
    with pytest.raises(UnknownColumn, match="'at'"):
        app = wb.Application("b")
        app.input("events", event_time="when").send_to("out")
        app.deploy(spark, log)
    log.create("narrow", 3)
    with pytest.raises(InvalidGraph, match=r"5 partitions.*'narrow' has 3"):
        app = wb.Application("c")
        app.input("events", event_time="at").partition_by("key", partitions=5, name="narrow").send_to("out")
        app.deploy(spark, log)
    assert "out" not in log.streams()


def test_a_changed_window_is_refused_over_the_state_of_another(spark: SparkSession, log: wb.StreamLog) -> None:
    write_events(log, events(10, partitions=2, disorder_ms=0), end=False)
    run = hourly(2).deploy(spark, log, containers=1)
    while not run.totals()["input_messages"]:
        assert run.status == "running"
        time.sleep(0.1)
    run.stop()
    with pytest.raises(IncompatibleCheckpoint, match="containers: was 1, is 2"):
        hourly(2).deploy(spark, log, containers=2)
    app = wb.Application("hourly")
    (
        app.input("events", event_time="at")
        .filter("value > -100")
        .partition_by("key", partitions=2)
        .window(wb.tumbling("2h"), late="late")
        .aggregate(n=("id", "count"))
        .send_to("panes")
    )
    with pytest.raises(IncompatibleCheckpoint, match=r"tumbling 1h.*is tumbling 2h"):
        app.deploy(spark, log)
    log.stream("events").end()
    assert hourly(2).deploy(spark, log).wait(timeout=60).status == "finished", "as many containers as there were"
    assert app.deploy(spark, log).wait(timeout=60).status == "finished", "of what has finished nothing is in flight"


def test_a_filter_that_drops_everything_still_lets_time_and_the_end_pass(
    spark: SparkSession, log: wb.StreamLog
) -> None:
    write_events(log, events(300, partitions=2, disorder_ms=0))
    app = wb.Application("nothing")
    (
        app.input("events", event_time="at")
        .filter("value > 1e9")
        .partition_by("key", partitions=2)
        .window(wb.tumbling("1h"))
        .aggregate(n=("id", "count"))
        .send_to("out")
    )
    run = app.deploy(spark, log, max_messages=100).wait(timeout=60)
    assert run.status == "finished"
    second_stage = run.watermarks().query("stream == 'nothing.key'")
    assert second_stage["watermark"].notna().any()
    assert log.stream("out").heads() == [0, 0]


def test_the_user_can_end_a_live_stream_and_functions_see_arrow_types(spark: SparkSession, log: wb.StreamLog) -> None:
    write_events(log, events(50, partitions=1, disorder_ms=0), end=False)
    seen = wb.Application("types")
    seen.input("events").map(lambda f: f.assign(types=",".join(str(dtype) for dtype in f.dtypes), rows=len(f))).send_to(
        "out"
    )
    run = seen.deploy(spark, log)
    log.stream("events").append(
        pa.table({"at": pa.array([0], pa.timestamp("ms", "UTC")), "key": ["k"], "value": [1.0], "id": [1]}), 0
    )
    log.stream("events").end()
    run.wait(timeout=60)
    out = log.stream("out").to_pandas()
    assert len(out) == 51
    assert set(out["types"]) == {"timestamp[ms, tz=UTC][pyarrow],string[pyarrow],double[pyarrow],int64[pyarrow]"}


def test_a_function_may_close_over_a_table_of_some_megabytes(spark: SparkSession, log: wb.StreamLog) -> None:
    write_events(log, events(200, partitions=1, disorder_ms=0))
    names = pd.DataFrame({"id": range(300_000), "name": [f"name of {n}" for n in range(300_000)]})
    app = wb.Application("closure")
    app.input("events").map(lambda frame: frame.merge(names, on="id", how="left")).send_to("out")
    app.deploy(spark, log).wait(timeout=60)
    out = log.stream("out").to_pandas()
    assert (out["name"] == "name of " + out["id"].astype(str)).all()


def test_a_finished_application_deployed_again_is_finished_without_a_word(
    spark: SparkSession, log: wb.StreamLog, capfd: pytest.CaptureFixture[str]
) -> None:
    write_events(log, events(200, partitions=1, disorder_ms=0))
    hourly(2).deploy(spark, log).wait(timeout=60)
    capfd.readouterr()
    assert hourly(2).deploy(spark, log).wait(timeout=60).status == "finished"
    assert capfd.readouterr().err == ""


def test_a_deleted_checkpoint_is_noticed_and_rows_behind_an_end_are_refused(
    spark: SparkSession, log: wb.StreamLog
) -> None:
    write_events(log, events(50, partitions=1, disorder_ms=0))
    with pytest.raises(StreamEnded, match="has ended already"):
        write_events(log, events(50, partitions=1, disorder_ms=0), end=False)
    hourly(1).deploy(spark, log).wait(timeout=60)
    shutil.rmtree(log.directory / "checkpoints")
    with pytest.warns(UserWarning, match="comes a second time"):
        hourly(1).deploy(spark, log).wait(timeout=60)
