"""The contenders of the drain benchmark, each for a process of its own, and their input: the same rows in a log and files."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from tests.benchmarks import inputs
from tests.benchmarks.scale import CONTAINERS, DISORDER_MS, HOUR_MS, KEYS, PARTITIONS

if TYPE_CHECKING:
    from workbench.engine.run import Run
    from workbench.graph import Application

BATCH_EVENTS = 4_000
"""How many events one batch admits; a few batches later the rest of the input is the backlog."""

_EVENTS_AN_HOUR = 8_000
"""So two batches cover an hour of event time, whatever the length of the input: some windows close, others are open."""
BEFORE = 4
"""Batches that are committed before the drain is asked for."""
_SEGMENT_ROWS = 500
_LONGEST_SECONDS = 120
_POLL_SECONDS = 0.02


class LeftBehind(Exception):
    """A drain ended, and its panes do not hold what was admitted: its time says nothing."""


def write(directory: str, events: int, partitions: int, **_: Any) -> dict[str, Any]:
    from datasets import synthetic
    from workbench.systems.log import StreamLog

    log = StreamLog(Path(directory, inputs.LOG))
    synthetic.write(log, _events(events, partitions), inputs.STREAM, end=False, batch_rows=_SEGMENT_ROWS)
    return {}


def write_files(directory: str, events: int, **_: Any) -> dict[str, Any]:
    inputs.write_parquet(Path(directory), _events(events, PARTITIONS), BATCH_EVENTS // PARTITIONS)
    return {}


def _events(events: int, partitions: int) -> Any:
    from datasets import synthetic

    return synthetic.events(
        events,
        keys=KEYS,
        partitions=partitions,
        disorder_ms=DISORDER_MS,
        duration_ms=events * HOUR_MS // _EVENTS_AN_HOUR,
    )


def ours(data: str, stages: int, tasks: int, routing: str, repeats: int, **_: Any) -> dict[str, Any]:
    """Deploy, run some batches, drain; and again, as the next deployment of the same application."""
    import workbench as wb
    from workbench.engine.batch_plan import read_plan
    from workbench.engine.checkpoint import checkpoint_directory

    spark = wb.local_session()
    log = wb.StreamLog(Path(data, inputs.LOG), create=False)
    name = f"drain-{time.time_ns()}"
    held = sum(log.stream(inputs.STREAM).heads())
    taken, batches, admitted = [], [], 0
    for _turn in range(repeats + 1):
        run = chain(name, stages, tasks).deploy(
            spark, log, containers=CONTAINERS, max_messages=BATCH_EVENTS, routing={"drain": routing}
        )
        _wait(run, len(run.batches()) + BEFORE)
        started = time.perf_counter()
        run.drain(timeout=_LONGEST_SECONDS)
        taken.append(time.perf_counter() - started)
        checkpoint = checkpoint_directory(log, name)
        newest = read_plan(checkpoint)
        assert newest is not None and run.status == "drained"
        plans = [read_plan(checkpoint, number) for number in range(newest.batch)]
        batches.append(sum(1 for plan in plans if plan and plan.drain and plan.generation == newest.generation))
        admitted = sum(newest.positions[inputs.STREAM])
        panes = log.stream(f"{name}.panes").to_pandas()
        if panes["n"].sum() != admitted:
            raise LeftBehind(f"{admitted:,} events were admitted, the panes hold {panes['n'].sum():,}.")
    early = int(panes.loc[panes["drained"].astype(bool), "n"].sum())
    progress = [each["durationMs"]["triggerExecution"] / 1000 for each in run.query.recentProgress]
    wb.stop_session()
    return {
        "seconds": median(taken[1:]),
        "all": taken[1:],
        "batches": max(batches[1:]),
        "admitted": admitted,
        "early": early,
        "backlog": held - admitted,
        "batch": median(progress[1 : BEFORE + 1]),
    }


def chain(name: str, stages: int, tasks: int) -> Application:
    """events → partitioned by key between the stages, `tasks` partitions each → hourly windows → panes."""
    import workbench as wb

    app = wb.Application(name)
    stream = app.input(inputs.STREAM, event_time="event_time", out_of_orderness=DISORDER_MS)
    for stage in range(1, stages):
        stream = stream.partition_by("key", partitions=tasks, name=f"{name}.{stage}")
    windows = stream.window(wb.tumbling("1h"), by="key") if stages == 1 else stream.window(wb.tumbling("1h"))
    windows.aggregate(
        n=("value", "count"), total=("value", "sum"), mean=("value", "mean"), top=("value", "max")
    ).send_to(f"{name}.panes")
    return app


def _wait(run: Run, batches: int) -> None:
    deadline = time.monotonic() + _LONGEST_SECONDS
    while len(run.batches()) < batches:
        assert run.failure is None, run.failure
        assert time.monotonic() < deadline, f"{batches} batches did not come: {run!r}"
        time.sleep(_POLL_SECONDS)


def native(data: str, scratch: str, repeats: int, **_: Any) -> dict[str, Any]:
    """Start the query, run some batches, stop it in the middle of one; anew each time."""
    from tests.benchmarks import spark_native

    spark = spark_native.default_session("in-memory")
    taken: list[float] = []
    for _turn in range(repeats + 1):
        target = Path(scratch, f"stopped-{time.time_ns()}")
        rows = spark_native.events(spark, data, PARTITIONS)
        query = spark_native.to_parquet(spark_native.hourly(rows), target, available_now=False)
        deadline = time.monotonic() + _LONGEST_SECONDS
        while len([each for each in query.recentProgress if each["numInputRows"]]) < BEFORE:
            assert query.exception() is None and time.monotonic() < deadline, query.exception()
            time.sleep(_POLL_SECONDS)
        started = time.perf_counter()
        query.stop()
        taken.append(time.perf_counter() - started)
    # Also the files of the batch that the stop has interrupted: they were admitted with its plan.
    planned = [
        line for path in (target / "checkpoint/sources/0").glob("[0-9]*") for line in path.read_text().splitlines()
    ]
    admitted = BATCH_EVENTS // PARTITIONS * sum(line.startswith("{") for line in planned)
    emitted = sum(int(row["n"]) for row in spark.read.parquet(str(target / "panes")).select("n").collect())
    state = int(query.recentProgress[-1]["stateOperators"][0]["numRowsTotal"])
    spark.stop()
    return {
        "seconds": median(taken[1:]),
        "all": taken[1:],
        "admitted": admitted,
        "without": admitted - emitted,
        "state": state,
    }
