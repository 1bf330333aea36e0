"""One watermark advance between *n* tasks and *n* tasks: how many messages, how long, both routings."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks import processes
from tests.benchmarks.processes import alternated, middle
from tests.benchmarks.results import Demand, Result
from tests.benchmarks.scale import Scale

_STREAM = "between"


def measure(scale: Scale, directory: Path) -> list[Result]:
    """Messages and seconds per advance, by number of tasks and routing."""
    contenders = {
        f"{tasks} tasks, {routing}": partial(
            processes.run, advance, directory=str(directory), tasks=tasks, routing=routing, repeats=scale.repeats
        )
        for tasks in scale.tasks
        for routing in ("broadcast", "aggregate")
    }
    answers = alternated(contenders, scale.rounds, "control messages")
    results = []
    for name, of in answers.items():
        messages = int(of[0]["messages"])
        results += [
            Result(
                f"control: {name}",
                "messages",
                messages,
                limit=of[0]["expected"],
                notes="Messages that the log holds after one watermark advance; limit: n·m or n + m − 1.",
                demands=[Demand("no more than the design's", at_most=of[0]["expected"], of_ours=True)],
            ),
            Result(
                f"control: {name}, reconciled",
                "s",
                middle(of, "reconciled"),
                notes=f"Every task applies what it hears to its bookkeeping, {messages:,} messages in one process; median of"
                f" {scale.repeats} advances in each of {scale.rounds} processes.",
                demands=[Demand("well under a second", at_most=0.5, of_ours=True)],
            ),
            Result(
                f"control: {name}, through the log",
                "s",
                middle(of, "through_log"),
                notes="From the reports of all tasks through the log's commit, the plan, work orders as JSON and the"
                " reconciliation, until every task has the new watermark; one process, no Spark.",
            ),
        ]
    return results


def advance(directory: str, tasks: int, routing: str, repeats: int, **_: Any) -> dict[str, Any]:
    """Advance the watermark of an intermediate stream `repeats` times, once without and once with the log."""
    from workbench.systems.log import StreamLog

    log = StreamLog(Path(directory, f"control-{routing}-{tasks}-{time.time_ns()}"))
    log.create(_STREAM, tasks)
    alone = [_timed(partial(_reconcile, tasks, routing))(turn) for turn in range(repeats + 1)][1:]
    job = _Job(log, tasks, routing)
    before = sum(log.stream(_STREAM).heads())
    through = [_timed(job.advance)(turn) for turn in range(repeats + 1)][1:]
    messages = (sum(log.stream(_STREAM).heads()) - before) / (repeats + 1)
    return {
        "messages": messages,
        "expected": tasks * tasks if routing == "broadcast" else 2 * tasks - 1,
        "reconciled": median(alone),
        "through_log": median(through),
    }


def _timed(work: Callable[[int], Callable[[], None]]) -> Callable[[int], float]:
    """Seconds of what `work(turn)` returns; what it does before is preparation."""

    def timed(turn: int) -> float:
        prepared = work(turn)
        started = time.perf_counter()
        prepared()
        return time.perf_counter() - started

    return timed


def _reconcile(tasks: int, routing: str, turn: int) -> Callable[[], None]:
    """All tasks' bookkeeping, which have heard one watermark before, and the run of messages that reaches them now."""
    from workbench.messages import ControlRun, WatermarkMessage
    from workbench.names import SSP, task_name
    from workbench.reconciliation import Reconciliation, aggregate_partition

    def heard(timestamp: int) -> ControlRun:
        return ControlRun.from_messages(WatermarkMessage(timestamp, task_name(task), tasks) for task in range(tasks))

    reconciliations = [Reconciliation(SSP("log", _STREAM, partition)) for partition in range(tasks)]
    for reconciliation in reconciliations:
        reconciliation.apply_run(heard(turn))
    named, direct = heard(turn + 1), ControlRun.from_messages([WatermarkMessage(turn + 1)])
    owner = aggregate_partition(_STREAM, tasks)

    def reconcile() -> None:
        for partition, reconciliation in enumerate(reconciliations):
            reconciliation.apply_run(named if routing == "broadcast" or partition == owner else direct)
        assert all(reconciliation.watermark == turn + 1 for reconciliation in reconciliations)

    return reconcile


class _Job:
    """The part of a job that control messages pass: reports, the sink's commit, plan, work orders, reconciliation."""

    def __init__(self, log: Any, tasks: int, routing: str) -> None:
        from workbench.engine.batch_plan import BatchPlan
        from workbench.engine.sink import SinkSettings
        from workbench.engine.source import InputLanes, JobReader, SourceSettings
        from workbench.names import SSP
        from workbench.reconciliation import Aggregator, Reconciliation, aggregate_partition
        from workbench.telemetry.recorder import Recorder

        self.tasks, self.routing = tasks, routing
        self.owner = aggregate_partition(_STREAM, tasks)
        self.sink = SinkSettings(str(log.directory), "bench", "bench", "bench", log.raise_epoch("bench"), [_STREAM])
        Recorder(log, "bench", "bench").prepare()
        settings = SourceSettings(
            job="bench",
            run_id="bench",
            log=str(log.directory),
            checkpoint_id="bench",
            epoch=1,
            slots=list(range(tasks)),
            inputs=[InputLanes(_STREAM, intermediate=True, lanes=[(task, task) for task in range(tasks)])],
            initial=BatchPlan(0, {_STREAM: log.stream(_STREAM).heads()}),
            limit=1_000_000,
        )
        self.reader = JobReader(settings)
        self.offset: dict[str, Any] = self.reader.initialOffset()
        self.reconciliations = [Reconciliation(SSP("log", _STREAM, partition)) for partition in range(tasks)]
        self.aggregators = {self.owner: Aggregator(self.reconciliations[self.owner])} if routing == "aggregate" else {}
        self.batch = 0

    def advance(self, turn: int) -> Callable[[], None]:
        from workbench.messages import WatermarkMessage
        from workbench.names import task_name

        timestamp = turn + 1
        to = None if self.routing == "broadcast" else self.owner
        sent = [
            [(to, WatermarkMessage(timestamp, task_name(task), self.tasks).to_json())] for task in range(self.tasks)
        ]

        def until_all_know() -> None:
            self._commit(sent)
            while any(of.watermark != timestamp for of in self.reconciliations):
                told = self._hear()
                if any(told):
                    self._commit(told)

        return until_all_know

    def _commit(self, sent: list[list[tuple[int | None, dict[str, Any]]]]) -> None:
        from workbench.engine.sink import commit_batch
        from workbench.engine.work import Report

        reports = [
            Report(task, self.batch, controls=[[_STREAM, partition, message] for partition, message in messages])
            for task, messages in enumerate(sent)
        ]
        reports = [Report.from_json(report.to_json()) for report in reports]
        assert commit_batch(self.sink, self.batch, reports)
        self.batch += 1

    def _hear(self) -> list[list[tuple[int | None, dict[str, Any]]]]:
        from workbench.engine.work import WorkOrder
        from workbench.messages import ControlRun

        end = self.reader.latestOffset(self.offset, None)
        assert end != self.offset, "nothing more to hear, and not all tasks know"
        told: list[list[tuple[int | None, dict[str, Any]]]] = [[] for _ in range(self.tasks)]
        for _, text in self.reader.work(self.offset, end):
            order = WorkOrder.from_json(text)
            for step in order.steps:
                for ref in step.refs:
                    self.reconciliations[order.task].apply_run(ControlRun.from_json(ref["ctl"]))
        for owner, aggregator in self.aggregators.items():
            told[owner] = [
                (other, message.to_json())
                for message in aggregator.to_rebroadcast()
                for other in range(self.tasks)
                if other != owner
            ]
        self.offset = end
        return told
