"""A run that is killed with SIGKILL while it drains, whatever the moment: the drain goes on where it was and ends.

Batch 1 is under way when the drain is asked for, so batch 2 is the first that knows of it. With markers that are
broadcast, a job of three stages has then drained with batch 4.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import workbench as wb
from tests.support.drain_jobs import (
    BETWEEN,
    NAME,
    assert_drained,
    assert_no_files_are_left,
    assert_upgrade_goes_on,
    newest_plan,
    three_stages,
    upgraded,
)
from tests.support.jobs import events, write_events
from tests.support.killing import DRAIN_EVENTS, EVENTS, Moment, scene
from workbench.drain import read_notifications, write_notification
from workbench.engine.run import Run
from workbench.errors import IncompatibleCheckpoint, InvalidGraph
from workbench.telemetry.recorder import Recorder

ROWS, MAX_MESSAGES = 2_400, 200
MONDAY = "monday"
ASKED, FIRST, LAST = 1, 2, 4
"""Batches: the one that runs when the drain is asked for, the first that knows of it, the one that ends it."""

VICTIM = "tests.faults.drain_victim"

pytestmark = pytest.mark.filterwarnings("ignore:A drain was asked of the run")


@pytest.fixture
def log(log_dir: Path) -> wb.StreamLog:
    """Twelve batches' worth of events in two partitions that nobody has ended."""
    log = wb.StreamLog(log_dir)
    write_events(log, events(ROWS, partitions=2, disorder_ms=0), end=False)
    return log


def deployed(spark: SparkSession, log: wb.StreamLog, run_id: str | None, routing: str = "broadcast") -> Run:
    return three_stages().deploy(
        spark, log, max_messages=MAX_MESSAGES, containers=2, routing={"drain": routing}, run_id=run_id
    )


def kill_before_the_plan(log: wb.StreamLog, event: str) -> None:
    """Killed when it was asked to drain and had not looked yet."""
    with scene(log.directory, MAX_MESSAGES, (VICTIM, "broadcast", MONDAY)) as victims, victims.victim() as victim:
        assert victim.reach(Moment(event, ASKED))
        with victim.frozen():
            write_notification(log.metadata, MONDAY)
            victim.kill()
    assert newest_plan(log).drain is None
    assert [asked.run_id for asked in read_notifications(log.metadata).valid] == [MONDAY]


def kill_while_it_drains(log: wb.StreamLog, moment: Moment) -> None:
    with scene(log.directory, MAX_MESSAGES, (VICTIM, "broadcast", MONDAY)) as victims, victims.victim() as victim:
        assert victim.reach(Moment("plan", ASKED))
        with victim.frozen():
            write_notification(log.metadata, MONDAY)
        assert victim.reach(moment), f"{moment} did not come"
    assert newest_plan(log).drain is not None
    assert sum(newest_plan(log).positions["events"]) == FIRST * MAX_MESSAGES, "the backlog waits"


def assert_each_task_said_it_once_to_each_partition(log: wb.StreamLog) -> None:
    for name, senders in zip(BETWEEN, (2, 2), strict=True):
        said = log.stream(name).to_pandas(control=True).query("_type == 'drain'")
        pairs = said.groupby(["_partition", "_task_name"]).size()
        assert pairs.tolist() == [1] * (log.stream(name).partitions * senders), f"{name!r}: {pairs.to_dict()}"


def upgrade(spark: SparkSession, log: wb.StreamLog) -> None:
    """End the source and deploy what does not fit to the version before: it does the rest."""
    log.stream("events").end()
    assert_upgrade_goes_on(log, upgraded().deploy(spark, log).wait(timeout=120, progress=False))
    assert_no_files_are_left(log)


def goes_on_and_drains(spark: SparkSession, log: wb.StreamLog, run_id: str | None) -> None:
    """After a kill in the middle of the drain: the upgrade is refused until another run has brought it to its end."""
    with pytest.raises((IncompatibleCheckpoint, InvalidGraph), match=r"[Dd]rain"):
        upgraded().deploy(spark, log)
    run = deployed(spark, log, run_id).wait(timeout=120, progress=False)
    assert_drained(log, run)
    assert newest_plan(log).batch == LAST + 1, "no batch more than without the kill"
    assert_each_task_said_it_once_to_each_partition(log)
    upgrade(spark, log)


def starts_anew(spark: SparkSession, log: wb.StreamLog, run_id: str | None) -> None:
    """After a kill when all had drained: the drain is over, and the same version may go on as well as another."""
    admitted = newest_plan(log).positions["events"]
    run = deployed(spark, log, run_id)
    assert read_notifications(log.metadata).valid == []
    if run_id is None:
        assert _status(log, MONDAY) == "drained"
    _wait_for_batch(run, LAST + 2)
    assert run.status == "running", "the drain of before is not done again"
    run.drain(timeout=120)
    assert_drained(log, run, since=admitted)
    upgrade(spark, log)


def test_a_drain_that_was_asked_for_and_not_planned_is_ignored_by_another_run_and_done_by_the_same(
    spark: SparkSession, log: wb.StreamLog
) -> None:
    kill_before_the_plan(log, "write")
    with pytest.warns(UserWarning, match=f"A drain was asked of the run {MONDAY}, which ended before it began that"):
        another = deployed(spark, log, None)
    _wait_for_batch(another, FIRST + 1)
    assert another.notifications()["state"].tolist() == [f"ignored: for the run {MONDAY}"]
    assert another.status == "running" and newest_plan(log).drain is None
    another.stop()
    same = deployed(spark, log, MONDAY).wait(timeout=120, progress=False)
    assert_drained(log, same)
    upgrade(spark, log)


def test_a_drain_that_was_planned_goes_on_in_another_run(spark: SparkSession, log: wb.StreamLog) -> None:
    kill_while_it_drains(log, Moment("state", FIRST + 1))
    goes_on_and_drains(spark, log, None)


def test_a_drain_whose_last_batch_is_in_the_log_is_over_though_spark_has_not_noted_it(
    spark: SparkSession, log: wb.StreamLog
) -> None:
    kill_while_it_drains(log, Moment("commit", LAST))
    starts_anew(spark, log, None)


@pytest.mark.faults
@pytest.mark.parametrize("event", ["plan", "write", "state", "commit"])
def test_a_run_killed_before_it_looked_drains_when_it_is_deployed_again(
    spark: SparkSession, log: wb.StreamLog, event: str
) -> None:
    kill_before_the_plan(log, event)
    run = deployed(spark, log, MONDAY).wait(timeout=120, progress=False)
    assert_drained(log, run)
    assert_each_task_said_it_once_to_each_partition(log)
    upgrade(spark, log)


_IN_BETWEEN = [Moment(event, batch) for batch in range(FIRST, LAST + 1) for event in EVENTS][:-2]
_AFTERWARDS = [Moment("commit", LAST), Moment("done", LAST), *(Moment(event) for event in DRAIN_EVENTS)]


@pytest.mark.faults
@pytest.mark.parametrize("moment", _IN_BETWEEN, ids=lambda moment: f"{moment.event}-{moment.batch}")
def test_a_run_killed_at_every_step_of_its_drain_brings_it_to_its_end(
    spark: SparkSession, log: wb.StreamLog, moment: Moment
) -> None:
    kill_while_it_drains(log, moment)
    goes_on_and_drains(spark, log, MONDAY if _IN_BETWEEN.index(moment) % 2 else None)


@pytest.mark.faults
@pytest.mark.parametrize("run_id", [None, MONDAY], ids=["new run id", "same run id"])
@pytest.mark.parametrize("moment", _AFTERWARDS, ids=lambda moment: moment.event)
def test_a_run_killed_when_all_had_drained_does_not_drain_again(
    spark: SparkSession, log: wb.StreamLog, moment: Moment, run_id: str | None
) -> None:
    kill_while_it_drains(log, moment)
    starts_anew(spark, log, run_id)


@pytest.mark.faults
@pytest.mark.parametrize("moment", _AFTERWARDS, ids=lambda moment: moment.event)
def test_a_run_killed_when_all_had_drained_may_be_followed_by_what_does_not_fit(
    spark: SparkSession, log: wb.StreamLog, moment: Moment
) -> None:
    kill_while_it_drains(log, moment)
    upgrade(spark, log)
    assert _status(log, MONDAY) == "drained"
    assert read_notifications(log.metadata).valid == []


@pytest.mark.faults
@pytest.mark.parametrize(
    ("routing", "batches", "run_id"),
    [("broadcast", 3, MONDAY), ("aggregate", 5, "")],
    ids=["broadcast, same run id", "aggregate, new run ids"],
)
def test_one_drain_killed_again_and_again_comes_to_its_end(
    spark: SparkSession, log: wb.StreamLog, routing: str, batches: int, run_id: str
) -> None:
    steps = [Moment(event, FIRST + batch) for batch in range(batches) for event in ("plan", "state", "commit")][:-1]
    happened: Counter[str] = Counter()
    with scene(log.directory, MAX_MESSAGES, (VICTIM, routing, MONDAY)) as victims, victims.victim() as victim:
        assert victim.reach(Moment("plan", ASKED))
        with victim.frozen():
            write_notification(log.metadata, MONDAY)
        assert victim.reach(steps[0])
    for number, step in enumerate(steps[1:]):
        with scene(log.directory, MAX_MESSAGES, (VICTIM, routing, run_id or f"run {number}")) as victims:
            happened[victims.kill_at(step) or "missed"] += 1
    assert happened["missed"] <= 2, f"few kills hit: {happened}"
    run = deployed(spark, log, run_id or None, routing).wait(timeout=120, progress=False)
    assert_drained(log, run)
    assert newest_plan(log).batch == FIRST + batches
    upgrade(spark, log)


def _status(log: wb.StreamLog, run_id: str) -> str:
    found = Recorder(log, NAME, "").run(run_id)
    assert found is not None
    return found.status


def _wait_for_batch(run: Run, count: int) -> None:
    """Until so many batches are committed under the checkpoint."""
    deadline = time.monotonic() + 60
    while len(run.batches()) < count:
        assert run.failure is None, run.failure
        assert time.monotonic() < deadline, run
        time.sleep(0.02)
