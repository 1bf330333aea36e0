"""Choosers on Spark: the order is logged with the plan, one's own is sent to the process that plans, its error comes back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import workbench as wb
from tests.support.jobs import events, write_events
from workbench.choosers import IncomingEnvelope, by, decode_runs
from workbench.engine.batch_plan import read_plan
from workbench.engine.checkpoint import checkpoint_directory
from workbench.errors import RunFailed

STREAMS = ("a", "b")


@pytest.fixture
def log(log_dir: Path) -> wb.StreamLog:
    log = wb.StreamLog(log_dir)
    for seed, stream in enumerate(STREAMS):
        write_events(log, events(120, partitions=2, disorder_ms=0, seed=seed), stream)
    return log


def merged(name: str, **options: dict[str, int]) -> wb.Application:
    app = wb.Application(name)
    first, second = (app.input(stream, event_time="at", **options.get(stream, {})) for stream in STREAMS)
    both = first.merge(second)
    both.send_to(f"{name}.out")
    both.partition_by("key", partitions=2).window(wb.tumbling("1h")).aggregate(n=("id", "count")).send_to(
        f"{name}.panes"
    )
    return app


def test_the_order_that_was_taken_is_the_order_in_the_plans_that_spark_logged(
    spark: SparkSession, log: wb.StreamLog
) -> None:
    run = merged("aligned").deploy(spark, log, max_messages=60, chooser="time_aligned")
    run.wait(timeout=120, progress=False)
    choices = run.choices()
    directory = checkpoint_directory(log, "aligned")
    for batch, of_batch in choices.groupby("batch"):
        plan = read_plan(directory, int(batch))
        if plan is None:  # Spark keeps the newest hundred
            continue
        for task, of_task in of_batch.groupby("task"):
            logged = [(run.count, run.why) for run in decode_runs(plan.order[task.removeprefix("Partition ")])]
            assert logged == list(zip(of_task["messages"], of_task["why"], strict=True))
    for task in range(2):
        times = log.stream("aligned.out").to_pandas(partition=task)["at"]
        assert times.is_monotonic_increasing, "two ordered inputs, and nothing else came between"
    assert log.stream("aligned.panes").to_pandas()["n"].sum() == 240
    assert run.figures.choices().data


def test_ones_own_chooser_decides_message_by_message_among_equal_priorities(
    spark: SparkSession, log: wb.StreamLog
) -> None:
    run = merged("own").deploy(
        spark, log, max_messages=100, chooser=by(lambda row: row.payload["value"], highest_first=True)
    )
    run.wait(timeout=120, progress=False)
    for task in range(2):
        left, right = (log.stream(stream).to_pandas(partition=task)["value"].tolist() for stream in STREAMS)
        expected = []
        while left and right:
            expected.append((left if left[0] > right[0] else right).pop(0))
        seen = log.stream("own.out").to_pandas(partition=task)["value"].tolist()
        assert seen == expected + left + right
    assert json.loads(json.dumps(run.totals()))["input_messages"] >= 240


def test_an_error_of_ones_own_chooser_fails_the_run_with_its_line(spark: SparkSession, log: wb.StreamLog) -> None:
    def worst(outstanding: Sequence[IncomingEnvelope]) -> IncomingEnvelope:
        return outstanding[1 // (len(outstanding) - 2)]

    run = merged("failing").deploy(spark, log, chooser=worst)
    with pytest.raises(RunFailed) as raised:
        run.wait(timeout=120, progress=False)
    told = str(raised.value)
    assert "The chooser worst raised ZeroDivisionError" in told
    assert "in worst" in told and "return outstanding[1 // (len(outstanding) - 2)]" in told
    assert "Traceback" not in told and len(told.splitlines()) < 15


def test_bootstrap_and_priorities_hold_on_spark_too(spark: SparkSession, log: wb.StreamLog) -> None:
    run = merged("table", b={"bootstrap": True}, a={"priority": -1}).deploy(spark, log, max_messages=30)
    run.wait(timeout=120, progress=False)
    choices = run.choices()
    table, others = choices[choices["stream"] == "b"], choices[choices["stream"] == "a"]
    assert set(table["why"]) == {"bootstrap"}
    assert table["batch"].max() < others["batch"].min(), "in no task before it is read in both"
