"""From the request to drained, by stages, tasks, routing and backlog; and what Spark's own `query.stop()` leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmarks import processes
from tests.benchmarks.drain_contenders import BATCH_EVENTS, BEFORE, native, ours, write, write_files
from tests.benchmarks.processes import Answer, alternated
from tests.benchmarks.results import Demand, Result, ratio
from tests.benchmarks.scale import Scale
from workbench.engine.planning import INTERMEDIATE_FACTOR


def measure(scale: Scale, directory: Path) -> list[Result]:
    """Seconds and batches from request to drained, and the same for Spark's `query.stop()`."""
    contenders: dict[str, Callable[[], Answer]] = {}
    stages_of: dict[str, int] = {}

    def add(name: str, stages: int, tasks: int, events: int, routing: str) -> None:
        data = directory / f"{tasks}-{events}"
        if not data.exists():
            processes.run(write, directory=str(data), events=events, partitions=tasks)
        stages_of[name] = stages
        contenders[name] = partial(
            processes.run,
            ours,
            data=str(data),
            stages=stages,
            tasks=tasks,
            routing=routing,
            repeats=scale.drain_repeats,
        )

    for tasks in scale.drain_tasks:
        for stages in scale.drain_stages:
            for routing in ("broadcast", "aggregate") if stages == 4 else ("broadcast",):
                add(_name(stages, tasks, routing), stages, tasks, scale.drain_backlog, routing)
    tasks = scale.drain_tasks[len(scale.drain_tasks) // 2]
    usual = _name(2, tasks)
    long = f"{usual}, 10 times the backlog"
    add(long, 2, tasks, 10 * scale.drain_backlog, "broadcast")
    data = directory / "parquet"
    processes.run(write_files, directory=str(data), events=scale.drain_backlog)
    stopped = "Spark, query.stop()"
    contenders[stopped] = partial(
        processes.run, native, data=str(data), scratch=str(directory), repeats=scale.drain_repeats
    )
    answers = {name: of[0] for name, of in alternated(contenders, 1, "drain").items()}
    results = [line for name in stages_of for line in _lines(name, stages_of[name], answers[name])]
    return [*results, *_shapes(answers, usual, long, scale), *_beside_spark(answers[usual], answers[stopped])]


def _name(stages: int, tasks: int, routing: str = "broadcast") -> str:
    """A job of one stage has no intermediate streams, so no routing."""
    return f"{stages} stages, {tasks} tasks, {routing}" if stages > 1 else f"1 stage, {tasks} tasks"


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
            notes="The most that came after the one that was running. A marker that is broadcast is tasks² messages on each"
            f" stream between the stages, and one batch takes at most {INTERMEDIATE_FACTOR * BATCH_EVENTS:,} of them here.",
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
    for tasks in scale.drain_tasks if set(scale.drain_stages) >= {2, 4} else ():
        two, four = answers[_name(2, tasks)], answers[_name(4, tasks)]
        results.append(
            Result(
                f"drain: 4 stages over 2, {tasks} tasks",
                "times",
                ratio(four["seconds"], two["seconds"]),
                notes="Of the seconds above, with markers that are broadcast.",
                demands=[Demand("no more than linear in the stages", at_most=2, of_ours=True)],
            )
        )
    return results


def _beside_spark(ours: dict[str, Any], spark: dict[str, Any]) -> list[Result]:
    notes = (
        f"Spark: withWatermark (1 minute), hourly windows by key, in-memory state, Parquet to Parquet, {BATCH_EVENTS:,} events"
        f" a batch, stopped after {BEFORE} batches: {_listed(spark['all'])}. Of {spark['admitted']:,} events that it had"
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
