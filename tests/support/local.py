"""A driver without Spark: the job's own source, tasks and sink, called in a loop. State is in a dictionary.

For tests of what a job computes. That Spark calls the same parts in the same way is for the tests with Spark.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from workbench.engine.deployment import Deployment, prepare
from workbench.engine.sink import commit_batch
from workbench.engine.source import JobReader
from workbench.engine.task import Task
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
    """A deployed job, stepped batch by batch."""

    def __init__(self, application: Application, log: StreamLog, **options: Any) -> None:
        self.deployment: Deployment = prepare(application, log, **options)
        self.reader = JobReader(json.loads(self.deployment.source["job"]))
        self.offset: dict[str, Any] = self.reader.initialOffset()
        self.stores = [MemoryStore() for _ in range(self.deployment.plan.tasks)]
        self.recorder = self.deployment.recorder

    def step(self, *, commit: bool = True) -> list[Report]:
        """Run one batch; [] if there is nothing to do. Without `commit`, crash before the commit: nothing is kept."""
        end = self.reader.latestOffset(self.offset, None)
        if end == self.offset:
            return []
        reports = self.run_tasks(end, self.stores if commit else copy.deepcopy(self.stores))
        if commit:
            commit_batch(self.deployment.sink, self.offset["batch"], reports)
            self.offset = end
        return reports

    def run_tasks(self, end: dict[str, Any], stores: list[MemoryStore]) -> list[Report]:
        orders = [WorkOrder.from_json(work) for _, work in self.reader.work(self.offset, end)]
        return [
            Report.from_json(Task(self.deployment.tasks, order.task, stores[order.task]).run(order).to_json())
            for order in orders
        ]

    def batches(self) -> Iterator[list[Report]]:
        """Step until nothing is left to do."""
        while reports := self.step():
            yield reports

    def run_to_end(self) -> LocalJob:
        """Step until nothing is left, check that all tasks are done, let go of the lock."""
        for _ in self.batches():
            pass
        done = self.recorder.done_tasks()
        assert done == set(range(self.deployment.plan.tasks)), f"only the tasks {sorted(done)} have ended"
        self.deployment.lock.release()
        return self
