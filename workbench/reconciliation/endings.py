"""End-of-stream and drain bookkeeping of one SSP: {set of tasks, total}.

Sources: "Control messages" and "Drain" design documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.messages.tasks import stored_task, task_of_stored

_MOST_OTHER_RUNS = 16


@dataclass(slots=True)
class EndOfStreamBookkeeping:
    """Which upstream tasks have ended. Reached once as many as `total` have, or by one direct message; then for good.

    `total` is the largest task count that any of them gave. Neither a repeated message nor a task too many undoes it.
    """

    tasks: set[str] = field(default_factory=set)
    total: int = 0
    agreed: bool = False
    """The named tasks have all ended."""
    direct: bool = False

    @property
    def reached(self) -> bool:
        return self.agreed or self.direct

    def hear(self, task: str | None, count: int | None) -> bool:
        """Book the end of `task` of `count`. True if the end of the stream is reached by it."""
        before = self.reached
        if task is None:
            self.direct = True
        else:
            self.total = max(self.total, count or 0)
            self.tasks.add(task)
            self.agreed = self.agreed or 0 < self.total <= len(self.tasks)
        return self.reached and not before

    def expect(self, total: int) -> None:
        """Wait for at least `total` tasks: for messages that do not carry their count."""
        self.total = max(self.total, total)

    def to_json(self) -> dict[str, Any]:
        return {
            "tasks": [stored_task(task) for task in sorted(self.tasks)],
            "total": self.total,
            "agreed": self.agreed,
            "direct": self.direct,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EndOfStreamBookkeeping:
        return cls(_tasks(data["tasks"]), data["total"], data["agreed"], data["direct"])


@dataclass(slots=True)
class DrainBookkeeping:
    """Which upstream tasks have drained in the run `run_id`. Drains of other runs are counted and change nothing.

    A task that has ended sends no drain any more. So it is not waited for: the drain is reached once as many tasks as
    `total` have drained or ended, and at least one has drained.
    """

    run_id: str | None = None
    tasks: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    """Those that ended and have not drained."""
    total: int = 0
    agreed: bool = False
    direct: bool = False
    other_runs: dict[str, int] = field(default_factory=dict)
    """Run id → drain messages ignored, for the latest 16 of them."""

    @property
    def reached(self) -> bool:
        return self.agreed or self.direct

    def hear(self, run_id: str, task: str | None, count: int | None) -> bool:
        """Book the drain of `task` of `count`. True if the drain is reached by it."""
        if run_id != self.run_id:
            self.other_runs[run_id] = self.other_runs.pop(run_id, 0) + 1
            if len(self.other_runs) > _MOST_OTHER_RUNS:
                del self.other_runs[next(iter(self.other_runs))]
            return False
        before = self.reached
        if task is None:
            self.direct = True
        else:
            self.total = max(self.total, count or 0)
            self.tasks.add(task)
            self.ended.discard(task)
            self._agree()
        return self.reached and not before

    def hear_end(self, task: str | None, count: int | None) -> bool:
        """Book that `task` has ended. True if the drain is reached by it."""
        before = self.reached
        if task is not None:
            self.total = max(self.total, count or 0)
            if task not in self.tasks:
                self.ended.add(task)
            self._agree()
        return self.reached and not before

    def expect(self, total: int) -> None:
        """Wait for at least `total` tasks: for messages that do not carry their count."""
        self.total = max(self.total, total)

    def _agree(self) -> None:
        accounted = len(self.tasks) + len(self.ended)
        self.agreed = self.agreed or (bool(self.tasks) and 0 < self.total <= accounted)

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.run_id,
            "tasks": [stored_task(task) for task in sorted(self.tasks)],
            "total": self.total,
            "agreed": self.agreed,
            "direct": self.direct,
            "others": dict(self.other_runs),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], ended: set[str]) -> DrainBookkeeping:
        tasks = _tasks(data["tasks"])
        return cls(
            data["run"], tasks, ended - tasks, data["total"], data["agreed"], data["direct"], dict(data["others"])
        )


def _tasks(stored: list[int | str]) -> set[str]:
    return {str(task_of_stored(task)) for task in stored}
