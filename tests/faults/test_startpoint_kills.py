"""A run that is killed with SIGKILL after it has taken startpoints: they are applied again until a commit has covered them."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import workbench as wb
from tests.support.killing import EVENTS, Moment, scene
from tests.support.startpoint_jobs import EVERYWHERE, NAME, SOURCE, append_rows, copied, copier, held, ssp
from workbench.engine.batch_plan import read_plan
from workbench.telemetry.recorder import Recorder

ROWS, FIRST, MAX_MESSAGES = 120, 30, 40
"""Rows in each of three partitions; where the second one begins again, in three batches."""

VICTIM = ("tests.faults.startpoint_victim",)
PARTITIONS = 3


@pytest.fixture
def log(spark: SparkSession, log_dir: Path) -> wb.StreamLog:
    """All is consumed and has ended, and a startpoint for one partition is written."""
    log = wb.StreamLog(log_dir)
    log.create(SOURCE, PARTITIONS)
    append_rows(log, ROWS)
    log.stream(SOURCE).end()
    copier().deploy(spark, log, containers=2).wait(timeout=120, progress=False)
    wb.StartpointManager(log, NAME).write(ssp(1), wb.StartpointSpecific(FIRST))
    return log


def next_batch(log: wb.StreamLog) -> int:
    """Number of the batch that the next commit will have."""
    return Recorder(log, NAME, wb.open_record(log, NAME)._recorder.checkpoint_id).last_batch() + 1


def kill(log: wb.StreamLog, moment: Moment) -> str | None:
    with scene(log.directory, MAX_MESSAGES, VICTIM) as victims:
        return victims.kill_at(moment)


def taken(log: wb.StreamLog) -> list[wb.SSP]:
    return [each.ssp for each in wb.StartpointManager(log, NAME).fan_outs()[0]]


def assert_goes_on(spark: SparkSession, log: wb.StreamLog, on_rewind: str | None = "keep") -> None:
    run = copier().deploy(spark, log, containers=2, on_rewind=on_rewind, max_messages=MAX_MESSAGES)
    assert run.wait(timeout=120, progress=False).status == "finished"


def assert_applied_once(log: wb.StreamLog) -> None:
    """Each task has copied what it must, in order, and each other task too what came to the stream that all read."""
    whole = [held(log, SOURCE, partition, 0) for partition in range(PARTITIONS)]
    assert copied(log, SOURCE, 0) == whole[0] and copied(log, SOURCE, 2) == whole[2]
    assert copied(log, SOURCE, 1) == whole[1] + whole[1][FIRST:]
    everywhere = held(log, EVERYWHERE, 0, 0)
    assert sorted(everywhere) == sorted([*whole[0], *whole[1], *whole[2], *whole[1][FIRST:]])
    for task in range(PARTITIONS):
        assert copied(log, EVERYWHERE, task) == everywhere
    manager = wb.StartpointManager(log, NAME)
    assert taken(log) == [] and not manager.all().requests


def test_a_rewind_killed_when_taken_when_planned_and_when_committed_is_done_once(
    spark: SparkSession, log: wb.StreamLog
) -> None:
    batch = next_batch(log)
    assert kill(log, Moment("taken")) is not None
    assert taken(log) == [ssp(1)] and next_batch(log) == batch
    assert kill(log, Moment("plan", batch)) is not None
    assert taken(log) == [ssp(1)] and next_batch(log) == batch
    plan = read_plan(log.directory / "checkpoints" / "1", batch)
    assert plan is not None and plan.began == {SOURCE: [ROWS + 1, FIRST, ROWS + 1]}
    assert kill(log, Moment("commit", batch)) is not None
    assert taken(log) == [] and next_batch(log) > batch
    assert_goes_on(spark, log, on_rewind=None)
    assert_applied_once(log)


def _moments() -> list[tuple[str, int, float]]:
    steps = [(event, batch, 0.0) for batch in range(3) for event in EVENTS]
    return [("taken", -1, delay) for delay in (0.0, 0.05, 0.3, 1.0)] + steps


@pytest.mark.faults
@pytest.mark.parametrize(("event", "batch", "delay"), _moments())
def test_a_rewind_killed_at_any_step_is_done_once(
    spark: SparkSession, log: wb.StreamLog, event: str, batch: int, delay: float
) -> None:
    first = next_batch(log)
    assert kill(log, Moment(event, first + batch if batch >= 0 else -1, delay)) is not None
    committed = next_batch(log) > first
    assert bool(taken(log)) == (not committed), "it is removed with the commit and with nothing else"
    planned = (log.directory / "checkpoints" / "1" / "offsets" / str(first)).exists()
    assert_goes_on(spark, log, on_rewind=None if planned else "keep")
    assert_applied_once(log)


@pytest.mark.faults
@pytest.mark.parametrize("event", ["taken", "plan", "write", "state", "commit"])
def test_a_startpoint_that_is_written_after_the_kill_replaces_one_that_no_commit_has_covered(
    spark: SparkSession, log: wb.StreamLog, event: str
) -> None:
    first = next_batch(log)
    assert kill(log, Moment(event, -1 if event == "taken" else first)) is not None
    begun = (log.directory / "checkpoints" / "1" / "offsets" / str(first)).exists()
    wb.StartpointManager(log, NAME).write(ssp(1), wb.StartpointSpecific(100))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The startpoint offset 30 .* is overridden")
        assert_goes_on(spark, log)
    rows = held(log, SOURCE, 1, 0)
    # What is planned is carried out, whatever comes after it: Spark repeats the batch as it was logged.
    planned = copied(log, SOURCE, 1)[len(rows) : -len(rows[100:])]
    assert copied(log, SOURCE, 1)[-len(rows[100:]) :] == rows[100:]
    assert planned == (rows[FIRST : FIRST + len(planned)] if begun else [])
    assert bool(planned) == begun
    assert taken(log) == []
