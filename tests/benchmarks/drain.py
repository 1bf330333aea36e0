"""From the request to drained, by stages, tasks, routing and backlog; and what Spark's own `query.stop()` leaves behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from tests.benchmarks import inputs, processes
from tests.benchmarks.processes import Answer, alternated
from tests.benchmarks.results import Demand, Result, ratio
from tests.benchmarks.scale import CONTAINERS, DISORDER_MS, HOUR_MS, KEYS, PARTITIONS, Scale

if TYPE_CHECKING:
    from workbench.engine.run import Run
    from workbench.graph import Application

BATCH_EVENTS = 4_000
"""How many events one batch admits; a few batches later the rest of the input is the backlog."""

_EVENTS_AN_HOUR = 8_000
"""So two batches cover an hour of event time, whatever the length of the input: some windows close, others are open."""
_BEFORE = 5
"""Batches that are committed before the drain is asked for."""
_SEGMENT_ROWS = 500
_LONGEST_SECONDS = 120
_POLL_SECONDS = 0.02


class LeftBehind(Exception):
    """A drain ended, and its panes do not hold what was admitted: its time says nothing."""


def measure(scale: Scale, directory: Path) -> list[Result]:
    """Seconds and batches from request to drained, and the same for Spark's `query.stop()`."""
    contenders: dict[str, Callable[[], Answer]] = {}
    stages_of: dict[str, int] = {}

    def add(name: str, stages: int, tasks: int, events: int, **routing: str) -> None:
        data = directory / f"{tasks}-{events}"
        if not data.exists():
            processes.run(write, directory=str(data), events=events, partitions=tasks)
        stages_of[name] = stages
        contenders[name] = partial(
            processes.run, ours, data=str(data), stages=stages, tasks=tasks, repeats=scale.drain_repeats, **routing
        )

    for tasks in scale.drain_tasks:
        for stages in scale.drain_stages:
            if stages < 4:
                add(_name(stages, tasks), stages, tasks, scale.drain_backlog)
            else:
                for routing in ("broadcast", "aggregate"):
                    add(f"{_name(stages, tasks)}, {routing}", stages, tasks, scale.drain_backlog, routing=routing)
    tasks = scale.drain_tasks[len(scale.drain_tasks) // 2]
    usual = _name(2, tasks)
    long = f"{usual}, 10 times the backlog"
    add(long, 2, tasks, 10 * scale.drain_backlog)
    data = directory / "parquet"
    processes.run(write_files, directory=str(data), events=scale.drain_backlog)
    stopped = "Spark, query.stop()"
    contenders[stopped] = partial(
        processes.run, native, data=str(data), scratch=str(directory), repeats=scale.drain_repeats
    )
    answers = {name: of[0] for name, of in alternated(contenders, 1, "drain").items()}
    results = [line for name in stages_of for line in _lines(name, stages_of[name], answers[name])]
    return [*results, *_shapes(answers, usual, long, scale), *_beside_spark(answers[usual], answers[stopped])]


def _name(stages: int, tasks: int) -> str:
    return f"{stages} {'stage' if stages == 1 else 'stages'}, {tasks} tasks"


def _lines(name: str, stages: int, answer: dict[str, Any]) -> list[Result]:
    return [
        Result(
            f"drain: {name}",
            "s",
            answer["seconds"],
            notes=f"From the request, while a batch runs, until the run has ended: {_listed(answer['all'])}, after a first"
            f" drain in the same process. {answer['backlog']:,} events wait at the source, {answer['admitted']:,} were"
            f" admitted and are all in panes, {answer['early']:,} of them because of the drain. A batch before it took"
            f" {answer['batch']:.2f} s.",
        ),
        Result(
            f"drain: {name}",
            "batches",
            answer["batches"],
            limit=stages + 2,
            notes="The most that came after the one that was running.",
            demands=[Demand("at most stages + 2", at_most=stages + 2, of_ours=True)],
        ),
    ]


def _shapes(answers: dict[str, dict[str, Any]], usual: str, long: str, scale: Scale) -> list[Result]:
    results = [
        Result(
            "drain: 10 times the backlog",
            "times",
            ratio(answers[long]["seconds"], answers[usual]["seconds"]),
            notes=f"Seconds with {answers[long]['backlog']:,} waiting events over those with {answers[usual]['backlog']:,}.",
            demands=[Demand("does not depend on the backlog", at_most=1.25, of_ours=True)],
        )
    ]
    for tasks in scale.drain_tasks if set(scale.drain_stages) >= {1, 4} else ():
        one, four = answers[_name(1, tasks)], answers[f"{_name(4, tasks)}, broadcast"]
        results.append(
            Result(
                f"drain: 4 stages over 1, {tasks} tasks",
                "times",
                ratio(four["seconds"], one["seconds"]),
                notes="Of the seconds above, with markers that are broadcast: one batch for each stage.",
                demands=[Demand("no more than linear in the stages", at_most=4, of_ours=True)],
            )
        )
    return results


def _beside_spark(ours: dict[str, Any], spark: dict[str, Any]) -> list[Result]:
    notes = (
        f"Spark: withWatermark (1 minute), hourly windows by key, in-memory state, Parquet to Parquet, {BATCH_EVENTS:,} events"
        f" a batch, stopped after {_BEFORE} batches: {_listed(spark['all'])}. Of {spark['admitted']:,} events that it had"
        f" admitted, {spark['without']:,} are in no result, most of them in {spark['state']:,} rows of state that only the"
        f" same query can read."
    )
    return [
        Result("drain against query.stop()", "s", ours["seconds"], spark["seconds"], notes=notes,
               ratio=ratio(ours["seconds"], spark["seconds"])),
        Result("admitted events without a result", "events", 0, spark["without"], notes="Of the same runs, at their end."),
    ]  # fmt: skip


def _listed(seconds: list[float]) -> str:
    return ", ".join(f"{each:.2f} s" for each in seconds)


# The inputs, the same rows in a log and in files.


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


# The contenders, each in its own process.


def ours(data: str, stages: int, tasks: int, repeats: int, routing: str | None = None, **_: Any) -> dict[str, Any]:
    """Deploy, run some batches, drain; and again, as the next deployment of the same application."""
    import workbench as wb
    from workbench.engine.batch_plan import read_plan
    from workbench.engine.checkpoint import checkpoint_directory

    spark = wb.local_session()
    log = wb.StreamLog(Path(data, inputs.LOG), create=False)
    name = f"drain-{time.time_ns()}"
    options = {} if routing is None else {"routing": {"drain": routing}}
    held = sum(log.stream(inputs.STREAM).heads())
    taken, batches, admitted = [], [], 0
    for _turn in range(repeats + 1):
        app = chain(name, stages, tasks)
        run = app.deploy(spark, log, containers=CONTAINERS, max_messages=BATCH_EVENTS, **options)
        _wait(run, len(run.batches()) + _BEFORE)
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
        "batch": median(progress[1 : _BEFORE + 1]),
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
        while len([each for each in query.recentProgress if each["numInputRows"]]) < _BEFORE:
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
