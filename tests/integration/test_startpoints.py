"""Startpoints on Spark: set by another process while the job runs, applied at its next start, and only there."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import workbench as wb
from tests.support.jobs import EPOCH_MS, events, hourly, write_events
from tests.support.startpoint_jobs import EVERYWHERE, NAME, SOURCE, append_rows, copied, copier, copies, held, ssp
from workbench.errors import RewindUndecided, RunFailed, UnresolvableStartpoint
from workbench.names import task_name
from workbench.telemetry.recorder import Recorder

ROOT = Path(__file__).resolve().parents[2]
ROWS = 600


@pytest.fixture
def log(log_dir: Path) -> wb.StreamLog:
    return wb.StreamLog(log_dir)


def workbench(verb: str, log: wb.StreamLog, *words: str) -> str:
    """`workbench startpoint …` in a process of its own; what it prints."""
    command = [sys.executable, "-m", "workbench", "startpoint", verb, str(log.directory), "hourly", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


def ids(log: wb.StreamLog, stream: str, since: list[int] | None = None) -> list[int]:
    """Ids of the rows behind the given heads, sorted."""
    rows = log.stream(stream).to_pandas(position=True)
    first = rows["_partition"].map(dict(enumerate(since or [0] * log.stream(stream).partitions)))
    return sorted(rows.loc[rows["_offset"] >= first, "id"])


def test_a_startpoint_set_by_another_process_while_the_job_runs_is_applied_at_its_next_start(
    spark: SparkSession, log: wb.StreamLog
) -> None:
    tables = events(ROWS, partitions=2, disorder_ms=0)
    write_events(log, tables, end=False)
    run = hourly(3).deploy(spark, log, max_messages=200)
    until(lambda: run.totals()["input_messages"] == ROWS)
    noon = EPOCH_MS + 12 * 3_600_000
    text = datetime.fromtimestamp(noon / 1000, UTC).isoformat()
    again = tables[1].slice(int((tables[1]["at"].cast(pa.int64()).to_numpy() < noon).sum()))

    assert f"Replayed: {len(again)} messages." in workbench("set", log, "events:1", "--at", text)
    workbench("set", log, "events:0", "--oldest")
    assert "Deleted: oldest for log/events[0]." in workbench("delete", log, "events:0")
    listed = workbench("list", log)
    assert "log/events[1]" in listed and "waits for a start" in listed and "log/events[0]" not in listed
    assert f"Replayed: {len(again)} messages." in workbench("preview", log)
    preview = run.preview_startpoints()
    assert preview[["task", "replayed", "state"]].values.tolist() == [["Partition 1", len(again), "applies"]]
    assert run.status == "running" and run.totals()["input_messages"] == ROWS, "not before the next start"
    run.stop()

    emitted, between = log.stream("panes").to_pandas()["n"].sum(), log.stream("hourly.key").heads()
    with pytest.raises(RewindUndecided, match=r"log/events\[1\] in Partition 1: from 300 back to \d+"):
        hourly(3).deploy(spark, log)
    rewound = hourly(3).deploy(spark, log, on_rewind="keep")
    log.stream("events").end()
    assert rewound.wait(timeout=60, progress=False).status == "finished"
    assert ids(log, "hourly.key", since=between) == sorted(again["id"].to_pylist())
    assert log.stream("panes").to_pandas()["n"].sum() == ROWS + len(again) > emitted
    assert rewound.totals()["late_messages"] == 0
    assert "There are no startpoints for 'hourly'." in workbench("list", log)


def test_upcoming_skips_what_has_gathered_and_keeps_the_time(spark: SparkSession, log: wb.StreamLog) -> None:
    tables = events(ROWS, partitions=2, disorder_ms=0)
    write_events(log, [table.slice(0, 100) for table in tables], end=False)
    run = hourly(3).deploy(spark, log)
    until(lambda: run.totals()["input_messages"] == 200)
    run.stop()
    write_events(log, [table.slice(100, 100) for table in tables], end=False)
    manager = wb.StartpointManager(log, "hourly")
    for partition in (0, 1):
        manager.write(ssp(partition), wb.StartpointUpcoming())
    again = hourly(3).deploy(spark, log)
    write_events(log, [table.slice(200) for table in tables], end=True)
    assert again.wait(timeout=60, progress=False).status == "finished"
    expected = pa.concat_tables([table.slice(*part) for table in tables for part in ((0, 100), (200, 100))])
    assert ids(log, "hourly.key") == sorted(expected["id"].to_pylist())
    watermarks = again.watermarks().dropna(subset="watermark").groupby(["task", "stream"])["watermark"]
    assert watermarks.apply(lambda times: times.is_monotonic_increasing).all()
    assert manager.fan_outs() == ((), ()) and not manager.all().requests


def test_each_task_of_a_broadcast_stream_begins_where_it_was_told(spark: SparkSession, log: wb.StreamLog) -> None:
    log.create(SOURCE, 3)
    append_rows(log, 40)
    log.stream(SOURCE).end()
    copier().deploy(spark, log).wait(timeout=60, progress=False)
    everywhere, manager, before = ssp(0, EVERYWHERE), wb.StartpointManager(log, NAME), copies(log)
    manager.write(everywhere, wb.StartpointSpecific(100), task_name(0))
    manager.write(everywhere, wb.StartpointOldest(), task_name(2))
    assert copier().deploy(spark, log, on_rewind="keep").wait(timeout=60, progress=False).status == "finished"
    for task, first in ((0, 100), (1, None), (2, 0)):
        seen = copied(log, EVERYWHERE, task, since=before[EVERYWHERE][task])
        assert seen == ([] if first is None else held(log, EVERYWHERE, 0, first))
        assert copied(log, SOURCE, task, since=before[SOURCE][task]) == []


def test_a_start_that_can_not_resolve_what_is_set_is_refused_before_anything_runs(
    spark: SparkSession, log: wb.StreamLog
) -> None:
    tables = events(ROWS, partitions=2, disorder_ms=0)
    write_events(log, tables)
    hourly(2).deploy(spark, log).wait(timeout=60, progress=False)
    log.stream("events").trim(0, 50)
    manager = wb.StartpointManager(log, "hourly")
    manager.write(ssp(0), wb.StartpointSpecific(20))
    manager.write(ssp(1), wb.StartpointOldest())
    before = len(Recorder(log, "hourly", "").runs())
    with pytest.raises(UnresolvableStartpoint, match=r"log/events\[0\]") as refused:
        hourly(2).deploy(spark, log, on_rewind="reset")
    assert all(said in str(refused.value) for said in ("offset 20", "50", "301"))
    assert len(Recorder(log, "hourly", "").runs()) == before
    assert len(manager.all().fresh) == 2 and manager.fan_outs() == ((), ())
    manager.write(ssp(0), wb.StartpointSpecific(50))
    since = log.stream("panes").heads()
    assert hourly(2).deploy(spark, log, on_rewind="reset").wait(timeout=60, progress=False).status == "finished"
    panes = log.stream("panes").to_pandas(position=True)
    panes = panes[panes["_offset"] >= panes["_partition"].map(dict(enumerate(since)))]
    assert panes["n"].sum() == ROWS - 50


def test_a_run_that_fails_on_what_comes_again_has_not_used_up_its_startpoint(
    spark: SparkSession, log: wb.StreamLog
) -> None:
    def version(careful: bool) -> wb.Application:
        def check(rows: pd.DataFrame) -> pd.DataFrame:
            if not careful:
                raise ValueError("this version can not read July")
            return rows

        app = wb.Application("versions")
        app.input("events", event_time="at").map(check, name="check").send_to("out")
        return app

    write_events(log, events(ROWS, partitions=2, disorder_ms=0))
    version(careful=True).deploy(spark, log).wait(timeout=60, progress=False)
    manager, since = wb.StartpointManager(log, "versions"), log.stream("out").heads()
    manager.write(ssp(1), wb.StartpointSpecific(250))
    with pytest.raises(RunFailed, match="can not read July"):
        version(careful=False).deploy(spark, log, on_rewind="keep").wait(timeout=60, progress=False)
    assert [taken.ssp for taken in manager.fan_outs()[0]] == [ssp(1)]
    # It is in the plan that was logged, so nobody has to choose once more.
    version(careful=True).deploy(spark, log).wait(timeout=60, progress=False)
    assert ids(log, "out", since=since) == log.stream("events").to_pandas(1)["id"].iloc[250:].tolist()
    assert manager.fan_outs() == ((), ())
    version(careful=True).deploy(spark, log).wait(timeout=60, progress=False)
    assert len(ids(log, "out", since=since)) == 50
