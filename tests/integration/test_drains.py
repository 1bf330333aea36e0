"""Drain on Spark: a live job is drained, paused, abandoned, upgraded, by its own process and by another."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import workbench as wb
from tests.support.jobs import events, hourly
from workbench.drain import read_notifications, write_notification
from workbench.errors import DrainTimeout, InvalidOption, NotRunning, RunFailed

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def log(log_dir: Path) -> wb.StreamLog:
    return wb.StreamLog(log_dir)


@contextmanager
def fed(log: wb.StreamLog, tables: list[pa.Table], pieces: int = 40) -> Iterator[Callable[[], None]]:
    """Appends to the stream "events" in small pieces from a thread; the value waits until all is appended."""
    stream = log.create("events", len(tables), exist_ok=True)

    def feed() -> None:
        for piece in range(pieces):
            for partition, table in enumerate(tables):
                first, last = (len(table) * edge // pieces for edge in (piece, piece + 1))
                stream.append(table.slice(first, last - first), partition, time_column="at")
            time.sleep(0.05)

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        yield feeder.join
    finally:
        feeder.join()


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


def panes(log: wb.StreamLog, stream: str = "panes") -> pd.DataFrame:
    return log.stream(stream).to_pandas()


def test_a_live_job_drains_and_the_next_run_goes_on_from_there(spark: SparkSession, log: wb.StreamLog) -> None:
    tables = events(4_000, partitions=2, disorder_ms=0)
    with fed(log, tables) as all_is_appended:
        run = hourly(3).deploy(spark, log, max_messages=300)
        until(lambda: len(run.batches()) > 3)
        assert run.drain(timeout=60) is run
        assert run.status == "drained"
        admitted = run.totals()["input_messages"]
        assert 0 < admitted < 4_000, "it was drained in the middle"
        all_is_appended()
    early = panes(log)
    assert early["n"].sum() == admitted
    assert early["drained"].any()
    assert read_notifications(log.metadata).valid == []
    drains = run.drains()
    assert not drains["pending"].any()
    assert len(drains) == 2 + 3
    assert (drains["requested"] <= drains["seen"]).all() and (drains["seen"] <= drains["drained_at"]).all()
    with pytest.raises(NotRunning, match="is not running, it is drained"):
        run.drain()

    log.stream("events").end()
    again = hourly(3).deploy(spark, log).wait(timeout=60)
    assert again.status == "finished"
    assert panes(log)["n"].sum() == 4_000
    assert again.totals()["late_messages"] == 0
    statuses = [record.status for record in again._recorder.runs()]
    assert statuses == ["drained", "finished"]


def test_a_drain_goes_through_a_pause(spark: SparkSession, log: wb.StreamLog) -> None:
    tables = events(600, partitions=2, disorder_ms=0)
    with fed(log, tables, pieces=1) as all_is_appended:
        all_is_appended()
    run = hourly(2).deploy(spark, log, max_messages=100)
    until(lambda: len(run.batches()) > 0)
    run.pause()
    time.sleep(1)
    before = len(run.batches())
    time.sleep(1)
    assert len(run.batches()) == before and run.status == "paused"
    assert run.drain(timeout=60).status == "drained"
    assert panes(log)["n"].sum() == run.totals()["input_messages"] < 600


def test_a_pause_ends_with_resume(spark: SparkSession, log: wb.StreamLog) -> None:
    log.create("events", 1)
    run = hourly(2).deploy(spark, log)
    run.pause()
    time.sleep(0.5)
    with fed(log, events(100, partitions=1, disorder_ms=0), pieces=1):
        pass
    time.sleep(1.5)
    assert run.totals()["input_messages"] == 0
    run.resume()
    until(lambda: run.totals()["input_messages"] == 100)
    run.stop()


def test_a_run_that_has_not_drained_in_time_says_who_owes_what_and_goes_on_or_stops(
    spark: SparkSession, log: wb.StreamLog
) -> None:
    with fed(log, events(400, partitions=2, disorder_ms=0), pieces=1):
        pass
    slow = wb.Application("slow")
    keyed = slow.input("events", event_time="at", out_of_orderness="10d").partition_by("key", partitions=2)
    counted = keyed.window(wb.tumbling("1h")).aggregate(n=("id", "count"))
    # With so much patience no window closes but by the drain; the panes that it emits take their time.
    counted.map(lambda f: (time.sleep(4), f)[1], name="sleep").send_to("panes")
    run = slow.deploy(spark, log, max_messages=100)
    until(lambda: len(run.batches()) > 0)
    with pytest.raises(InvalidOption, match="then must be one of"):
        run.drain(then="explode")
    with pytest.raises(DrainTimeout, match=r"has not drained after 0\.5 s") as late:
        run.drain(timeout=0.5)
    assert "The drain goes on" in str(late.value)
    with pytest.raises(DrainTimeout, match=r"has been stopped; the next deployment goes on"):
        run.drain(timeout=2, then="stop")
    assert run.status == "stopped"
    again = slow.deploy(spark, log).wait(timeout=120)
    assert again.status == "drained", "a drain that was begun is finished by the next run"
    assert panes(log)["n"].sum() == run.totals()["input_messages"]
    assert read_notifications(log.metadata).valid == []


def test_another_process_drains_a_run(spark: SparkSession, log: wb.StreamLog) -> None:
    with fed(log, events(400, partitions=2, disorder_ms=0), pieces=1):
        pass
    run = hourly(2).deploy(spark, log)
    until(lambda: run.totals()["input_messages"] == 400)
    command = [sys.executable, "-m", "workbench", "drain", str(log.directory), "hourly"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{run.run_id} has drained" in done.stdout
    assert run.wait(timeout=30).status == "drained"
    assert panes(log)["n"].sum() == 400
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert refused.returncode == 1 and "is not running, it is drained" in refused.stderr


def test_a_notification_for_another_run_is_shown_and_changes_nothing(spark: SparkSession, log: wb.StreamLog) -> None:
    with fed(log, events(100, partitions=1, disorder_ms=0), pieces=1):
        pass
    write_notification(log.metadata, "last week")
    run = hourly(2).deploy(spark, log)
    until(lambda: run.totals()["input_messages"] == 100)
    assert run.status == "running"
    assert run.notifications()["state"].tolist() == ["ignored: for the run last week"]
    run.stop()


def test_an_abandoned_run_tells_what_it_gives_up_and_the_next_begins_with_nothing_of_it(
    spark: SparkSession, log: wb.StreamLog
) -> None:
    with fed(log, events(400, partitions=2, disorder_ms=0), pieces=1):
        pass
    run = hourly(2).deploy(spark, log)
    until(lambda: run.totals()["input_messages"] == 400 and len(run.batches()) > 1)
    emitted = panes(log)["n"].sum()
    given_up = run.abandon()
    assert run.status == "abandoned"
    assert given_up["open_rows"].sum() + given_up["unread_messages"].sum() > 0
    with fed(log, events(300, partitions=2, disorder_ms=0, seed=2), pieces=1):
        pass
    log.stream("events").end()
    other = hourly(5).deploy(spark, log).wait(timeout=60)
    assert other.status == "finished" and other.totals()["late_messages"] == 0
    assert panes(log)["n"].sum() == emitted + 300


def test_other_columns_between_the_stages_are_refused_without_a_drain_and_fine_after_one(
    spark: SparkSession, log: wb.StreamLog
) -> None:
    def version(changed: bool) -> wb.Application:
        app = wb.Application("versions")
        kind = "string[pyarrow]" if changed else "double[pyarrow]"
        stream = app.input("events", event_time="at").map(
            lambda f: f.assign(value=f["value"].astype(kind)), name="cast"
        )
        stream.partition_by("key", partitions=2).window(wb.tumbling("1h")).aggregate(n=("id", "count")).send_to("panes")
        return app

    tables = events(800, partitions=2, disorder_ms=0)
    with fed(log, [table.slice(0, 200) for table in tables], pieces=1):
        pass
    run = version(changed=False).deploy(spark, log)
    until(lambda: run.totals()["input_messages"] == 400)
    run.stop()
    with fed(log, [table.slice(200) for table in tables], pieces=1):
        pass
    with pytest.raises(RunFailed, match=r"(?s)'value'.*lies between the stages.*drain it") as failed:
        version(changed=True).deploy(spark, log).wait(timeout=60)
    assert len(str(failed.value).splitlines()) < 25
    old = version(changed=False).deploy(spark, log, max_messages=100)
    old.drain(timeout=60)
    log.stream("events").end()
    new = version(changed=True).deploy(spark, log).wait(timeout=60)
    assert new.status == "finished"
    assert panes(log)["n"].sum() == 800
