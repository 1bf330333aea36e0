"""A run that is killed with SIGKILL goes on exactly where it was, whatever the moment."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import workbench as wb
from tests.support.jobs import assert_hourly_is_true, events, hourly, write_events
from tests.support.killing import EVENTS, START_EVENTS, Moment, Scene, scene
from workbench.engine.run import Run
from workbench.errors import RunFailed

ROWS, MAX_MESSAGES = 6_000, 1_500
DISORDER_MS, BOUND_MS = 7_200_000, 3_600_000
STREAMS = ["events", "hourly.key", "late", "panes"]
COUNTED = ["input_messages", "passed_messages", "control_messages", "output_messages", "late_messages"]


def tables() -> list[pa.Table]:
    return events(ROWS, partitions=3, disorder_ms=DISORDER_MS)


def deployed(spark: SparkSession, log: wb.StreamLog) -> Run:
    return hourly(out_of_orderness=BOUND_MS).deploy(spark, log, max_messages=MAX_MESSAGES, containers=2)


@dataclass(frozen=True)
class Outcome:
    """What a run leaves: every stream message by message with its offset, the bookkeeping, the batches."""

    streams: dict[str, pd.DataFrame]
    bookkeeping: pd.DataFrame
    batches: pd.DataFrame

    @classmethod
    def of(cls, spark: SparkSession, log: wb.StreamLog) -> Outcome:
        return cls(
            {name: log.stream(name).to_pandas(control=True) for name in log.streams()},
            wb.read_bookkeeping(spark, log, "hourly"),
            wb.open_record(log, "hourly").batches()[COUNTED],
        )

    def assert_equals(self, other: Outcome) -> None:
        assert list(self.streams) == list(other.streams) == STREAMS
        for name in STREAMS:
            pd.testing.assert_frame_equal(self.streams[name], other.streams[name], obj=name)
        pd.testing.assert_frame_equal(self.bookkeeping, other.bookkeeping, obj="bookkeeping")
        pd.testing.assert_frame_equal(self.batches, other.batches, obj="batches")


@pytest.fixture(scope="module")
def undisturbed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    log = wb.StreamLog(tmp_path_factory.mktemp("undisturbed") / "log")
    write_events(log, tables())
    deployed(spark, log).wait(timeout=120)
    assert assert_hourly_is_true(log, tables()) > 0, "without late rows the test would prove less"
    outcome = Outcome.of(spark, log)
    keyed = outcome.streams["hourly.key"]
    kinds = keyed["_type"].value_counts()
    assert kinds["user"] == ROWS and kinds["watermark"] > 3 * 4 and kinds["end_of_stream"] == 3 * 4
    assert outcome.batches["passed_messages"].tolist()[-2] > 0, (
        "data lie in the intermediate stream when the input ends"
    )
    assert outcome.batches["control_messages"].tolist()[-1] > 0, "the last batch reads the ends"
    return outcome


@pytest.fixture
def log(log_dir: Path) -> wb.StreamLog:
    log = wb.StreamLog(log_dir)
    write_events(log, tables())
    return log


@pytest.fixture
def victims(log: wb.StreamLog) -> Iterator[Scene]:
    with scene(log.directory, MAX_MESSAGES) as victims:
        yield victims


def assert_nothing_is_lost_or_doubled(spark: SparkSession, log: wb.StreamLog, undisturbed: Outcome) -> None:
    assert_hourly_is_true(log, tables())
    assert sorted(log.stream("hourly.key").to_pandas()["id"]) == list(range(ROWS))
    Outcome.of(spark, log).assert_equals(undisturbed)
    log.sweep(0)
    held = {path.relative_to(log.segments_directory).as_posix() for path in log.segments_directory.glob("*/*.arrow")}
    refs = [ref for name in STREAMS for p in range(log.stream(name).partitions) for ref in log.resolve(name, p)]
    assert held == {ref["f"] for ref in refs if "f" in ref}, (
        "what killed tasks staged is gone, what is referred to is not"
    )
    assert log.sweep(0) == 0


def test_a_run_killed_while_it_writes_keeps_state_and_commits_goes_on_exactly_where_it_was(
    spark: SparkSession, log: wb.StreamLog, victims: Scene, undisturbed: Outcome
) -> None:
    last = len(undisturbed.batches) - 1
    assert victims.kill_at(Moment("write", 0)) is not None
    assert victims.kill_at(Moment("state", last // 2)) is not None
    assert victims.kill_at(Moment("commit", last)) is not None
    # The last deployment is this process: a run may go on in another process than the one that died.
    assert deployed(spark, log).wait(timeout=120).status == "finished"
    assert_nothing_is_lost_or_doubled(spark, log, undisturbed)


@pytest.mark.faults
def test_a_run_killed_at_every_step_of_its_first_middle_and_last_batches_goes_on_exactly_where_it_was(
    spark: SparkSession, log: wb.StreamLog, victims: Scene, undisturbed: Outcome
) -> None:
    last = len(undisturbed.batches) - 1
    starts = [Moment(event) for event in START_EVENTS]
    steps = [Moment(event, batch) for batch in sorted({0, 1, last // 2, last - 1, last}) for event in EVENTS]
    happened: Counter[str] = Counter()
    kills = 0
    for moment in [*starts, *steps]:
        event = victims.kill_at(moment)
        if event is not None:
            kills += 1
            happened[event] += 1
    with victims.victim() as victim:
        victim.finish()
    assert kills >= 20, f"only {kills} kills hit: {happened}"
    assert all(happened[event] >= 2 for event in EVENTS), f"some gap between two steps was not hit: {happened}"
    assert_nothing_is_lost_or_doubled(spark, log, undisturbed)


@pytest.mark.faults
def test_a_run_killed_between_its_steps_while_data_arrive_loses_and_doubles_nothing(
    spark: SparkSession, log_dir: Path
) -> None:
    log = wb.StreamLog(log_dir)
    pieces = [[_cut(table, part, 6) for table in tables()] for part in range(6)]
    kills = 0
    with scene(log.directory, MAX_MESSAGES) as victims:
        for number, piece in enumerate(pieces):
            write_events(log, piece, end=number == 5, pieces=1)
            committed = len(wb.open_record(log, "hourly").batches()) if number else 0
            # What arrived is one batch, its second stage another. Delays reach between the steps of the second.
            for moment in (Moment("plan", committed, 0.03 * number), Moment("commit", committed, 0.05 * number)):
                kills += victims.kill_at(moment) is not None
    assert kills >= 8, f"only {kills} kills hit"
    assert deployed(spark, log).wait(timeout=120).status == "finished"
    assert_hourly_is_true(log, tables())
    assert sorted(log.stream("hourly.key").to_pandas()["id"]) == list(range(ROWS))
    ends = log.stream("hourly.key").to_pandas(control=True).query("_type == 'end_of_stream'")
    assert ends.groupby(["_partition", "_task_name"]).size().tolist() == [1] * (4 * 3), "each end is said once"
    pd.testing.assert_frame_equal(
        wb.read_bookkeeping(spark, log, "hourly"), wb.open_record(log, "hourly").bookkeeping()
    )


def test_a_run_that_another_deployment_has_replaced_commits_nothing_more_and_says_so(
    spark: SparkSession, log: wb.StreamLog, undisturbed: Outcome
) -> None:
    run = deployed(spark, log)
    while not len(run.batches()):
        time.sleep(0.01)
    # What a deployment on a machine that does not see our lock would do first.
    log.raise_epoch("hourly")
    before = {name: log.stream(name).heads() for name in log.streams()}
    with pytest.raises(RunFailed, match=r"deployment 1 of 'hourly', and deployment 2 has taken over") as failed:
        run.wait(timeout=60)
    assert len(str(failed.value).splitlines()) < 25
    assert {name: log.stream(name).heads() for name in log.streams()} == before
    assert deployed(spark, log).wait(timeout=120).status == "finished"
    assert_nothing_is_lost_or_doubled(spark, log, undisturbed)


@pytest.mark.faults
@pytest.mark.parametrize("event", ["plan", "write", "state"])
def test_a_jvm_that_wakes_up_after_its_driver_died_and_another_took_over_changes_nothing(
    spark: SparkSession, log: wb.StreamLog, victims: Scene, undisturbed: Outcome, event: str
) -> None:
    with victims.victim() as victim:
        assert victim.reach(Moment(event, 2))
        victim.send(signal.SIGSTOP, spare_driver=True)
        victim.kill_driver_only()
        assert victim.members(), "the JVM and its workers are still there"
        assert deployed(spark, log).wait(timeout=120).status == "finished"
        Outcome.of(spark, log).assert_equals(undisturbed)
        victim.send(signal.SIGCONT)
        victim.wait_until_all_are_gone()
    assert_nothing_is_lost_or_doubled(spark, log, undisturbed)


def _cut(table: pa.Table, part: int, parts: int) -> pa.Table:
    first, last = (len(table) * edge // parts for edge in (part, part + 1))
    return table.slice(first, last - first)
