"""A driver without Spark: the job's own source, tasks and sink, called in a loop. State is in a dictionary.

For tests of what a job computes. That Spark calls the same parts in the same way is for the tests with Spark.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any, ClassVar

from workbench.drain import clean_up
from workbench.engine.batch_plan import BatchPlan, read_plan
from workbench.engine.deployment import Deployment, prepare
from workbench.engine.sink import commit_batch
from workbench.engine.source import JobReader, SourceSettings
from workbench.engine.task import Task
from workbench.engine.views import Record
from workbench.engine.work import Report, WorkOrder
from workbench.graph import Application
from workbench.systems.log import StreamLog


class MemoryStore:
    """A task's part of a checkpoint, in memory."""

    def __init__(self) -> None:
        self.state: str | None = None
        self.kept: dict[int, dict[str, bytes]] = {}

    def load(self) -> str | None:
        return self.state

    def save(self, state: str) -> None:
        self.state = state

    def chunks(self, operator: int) -> MemoryChunks:
        return MemoryChunks(self.kept.setdefault(operator, {}))


class MemoryChunks:
    def __init__(self, kept: dict[str, bytes]) -> None:
        self.kept = kept

    def get(self, id: str) -> bytes:
        return self.kept[id]

    def put(self, id: str, data: bytes) -> None:
        self.kept[id] = data

    def delete(self, id: str) -> None:
        del self.kept[id]


class LocalJob:
    """A deployed job, stepped batch by batch. Its plans are logged where Spark would log them, its state is kept by the
    checkpoint's id; so a second one goes on where the first was left."""

    _states: ClassVar[dict[str, list[MemoryStore]]] = {}

    def __init__(self, application: Application, log: StreamLog, **options: Any) -> None:
        self.log = log
        self.deployment: Deployment = prepare(application, log, **options)
        self.reader = JobReader(SourceSettings.from_json(self.deployment.source.options()["job"]))
        self.directory = self.deployment.checkpoint.directory
        logged = self.deployment.checkpoint.plan
        self.unfinished: dict[str, Any] | None = None
        """A plan that was logged and whose batch Spark has not noted as done: it comes first, as it is."""
        if logged is not None and not (self.directory / "commits" / str(logged.batch - 1)).exists():
            self.unfinished = logged.to_json()
            logged = read_plan(self.directory, logged.batch - 2)
        self.offset: dict[str, Any] = self.reader.initialOffset() if logged is None else logged.to_json()
        tasks = range(self.deployment.plan.tasks)
        self.stores = self._states.setdefault(self.deployment.checkpoint.id, [MemoryStore() for _ in tasks])
        self.recorder = self.deployment.recorder

    def step(self, *, commit: bool = True) -> list[Report]:
        """Run one batch; [] if there is nothing to do. Without `commit`, crash before the commit: nothing is kept."""
        end = self._planned()
        if end == self.offset:
            return []
        reports = self.run_tasks(end, self.stores if commit else copy.deepcopy(self.stores))
        if commit:
            commit_batch(self.deployment.sink, self.offset["batch"], reports)
            self._note("offsets", f"v1\n{{}}\n{json.dumps(end)}\n")
            self._note("commits", "v1\n{}\n")
            self.offset, self.unfinished = end, None
        return reports

    def crash(self, after: str) -> None:
        """Carry the next batch out as far as `after`, then die: "plan" is logged, "tasks" have run, "commit" means the log's,
        which Spark has not noted."""
        end = self._planned()
        assert end != self.offset, "there is no batch to die in"
        self._note("offsets", f"v1\n{{}}\n{json.dumps(end)}\n")
        if after in ("tasks", "commit"):
            reports = self.run_tasks(end, copy.deepcopy(self.stores))
            if after == "commit":
                commit_batch(self.deployment.sink, self.offset["batch"], reports)
        self.release()

    def _planned(self) -> dict[str, Any]:
        return self.unfinished or self.reader.latestOffset(self.offset, None)

    def _note(self, kind: str, text: str) -> None:
        """What Spark writes about the batch."""
        (self.directory / kind).mkdir(exist_ok=True)
        (self.directory / kind / str(self.offset["batch"])).write_text(text)

    def run_tasks(self, end: dict[str, Any], stores: list[MemoryStore]) -> list[Report]:
        orders = [WorkOrder.from_json(work) for _, work in self.reader.work(self.offset, end)]
        return [
            Report.from_json(Task(self.deployment.tasks, order, stores[order.task]).run().to_json()) for order in orders
        ]

    def batches(self) -> Iterator[list[Report]]:
        """Step until nothing is left to do."""
        while reports := self.step():
            yield reports

    def run_to_end(self, crashes: frozenset[int] = frozenset()) -> LocalJob:
        """Step until nothing is left, check that all tasks are done, let go of the lock.

        Before the batches numbered in `crashes` (from 0) everything is done but the commit, and lost.
        """
        batches = 0
        while True:
            if batches in crashes:
                self.step(commit=False)
            if not self.step():
                break
            batches += 1
        done = self.recorder.done_tasks(self.deployment.generation)
        assert set(done) == set(range(self.deployment.plan.tasks)), f"only the tasks {sorted(done)} are done"
        clean_up(self.log.metadata, self.deployment.run_id)
        self.release()
        return self

    def release(self) -> None:
        """Let go of the lock, as a driver that ends does."""
        self.deployment.lock.release()

    @property
    def plan(self) -> BatchPlan:
        """The newest plan that was carried out."""
        return BatchPlan.from_json(self.offset)

    @property
    def status(self) -> str:
        """As `Run.status` would have it."""
        done = self.recorder.done_tasks(self.deployment.generation)
        if len(done) < self.deployment.plan.tasks:
            return "running"
        return "drained" if "drained" in done.values() else "finished"

    @property
    def record(self) -> Record:
        return Record(self.log, self.deployment.plan.outline, self.recorder)
