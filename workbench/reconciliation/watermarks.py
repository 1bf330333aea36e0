"""Watermark bookkeeping of one SSP: {task → timestamp}, total, timestamp of the last emission.

Source: "Control messages" design document, section on reconciliation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.messages import MAX_TIMESTAMP, MIN_TIMESTAMP
from workbench.messages.tasks import stored_task, task_of_stored
from workbench.reconciliation.idle import IdlePolicy, Silence

_BEFORE_ALL_TIME = MIN_TIMESTAMP - 1


@dataclass(slots=True)
class WatermarkBookkeeping:
    """What the upstream tasks have said of their watermarks. Milliseconds since the epoch; None is not yet known.

    Once as many tasks as `total` have reported, they agree on the minimum of what they said. `total` is the largest
    task count that any of them gave: counts come in any order. More tasks than that freeze nothing, they join the
    minimum. A direct message stands for all of them. What is emitted never goes back.
    """

    tasks: dict[str, int] = field(default_factory=dict)
    total: int = 0
    agreed: int | None = None
    """The largest minimum that the named tasks have agreed on."""
    direct: int | None = None
    """The largest timestamp of a direct message."""
    emitted: int | None = None
    silence: Silence = field(default_factory=Silence)
    _unsettled: bool = False

    def hear(self, timestamp: int, task: str | None, count: int | None, elapsed: int = 0) -> None:
        """The specification: one message, from `task` of `count` (None: it does not say), at a time of the idle clock.

        A timestamp older than, or equal to, what the task said before lowers nothing, but shows that the task lives.
        """
        if task is None:
            self.direct = _later(self.direct, timestamp)
            return
        if count is not None and count > self.total:
            self.total = count
            self.silence.expect_more(elapsed)
        self.tasks[task] = max(timestamp, self.tasks.get(task, timestamp))
        self.silence.hear(task, elapsed)
        self.agree()

    def hear_all(
        self,
        timestamps: Sequence[int],
        tasks: Sequence[str | None],
        counts: Sequence[int | None],
        elapsed: int = 0,
    ) -> None:
        """The same for many messages, with one look at the minimum. Call `settle` before `advance`.

        While the same tasks count, timestamps only rise and so does their minimum: the last one is the largest. What
        changes who counts (a task not heard before or left out until now, a larger total, a task that has said all
        while others are left out) is rare. There the agreement so far is settled and the message is heard by itself.
        """
        known, silent = self.tasks, self.silence.silent
        total, lowest = self.total, _or_before_all(self.agreed)
        left_out = self.silence.anyone_left_out
        for timestamp, task, count in zip(timestamps, tasks, counts, strict=True):
            before = known.get(task)  # type: ignore[arg-type]
            if (
                before is None
                or (count is not None and count > total)
                or (left_out and (task in silent or timestamp == MAX_TIMESTAMP))
            ):
                self.settle()
                self.hear(timestamp, task, count, elapsed)
                total, lowest = self.total, _or_before_all(self.agreed)
                left_out = self.silence.anyone_left_out
            elif timestamp > before:
                known[task] = timestamp  # type: ignore[index]
                if before <= lowest:  # A task above the agreement is not the one that holds it.
                    self._unsettled = True
        self.silence.hear_all(tasks, elapsed)

    def settle(self) -> None:
        if self._unsettled:
            self.agree()

    def agree(self) -> None:
        """InputWatermark = min { OutputWatermark(task) for each upstream task }, once all have reported."""
        self._unsettled = False
        counted = self.silence.heard_timestamps(self.tasks, self.total) if self.total else None
        if counted is not None:
            self.agreed = _later(self.agreed, min(counted))
        elif 0 < self.total <= len(self.tasks):
            self.agreed = _later(self.agreed, min(self.tasks.values()))

    def expect(self, total: int, elapsed: int = 0) -> None:
        """Wait for at least `total` tasks: for messages that do not carry their count."""
        if total > self.total:
            self.total = total
            self.silence.expect_more(elapsed)

    def tick(self, elapsed: int) -> None:
        """Time has passed: leave out who has become silent, if the policy says so."""
        self.silence.look(self.tasks, elapsed)
        self.agree()

    def advance(self) -> int | None:
        """The reconciled watermark if it has moved on since the last call, else None."""
        value = self.agreed if self.direct is None else _later(self.agreed, self.direct)
        if value is None or value <= _or_before_all(self.emitted):
            return None
        self.emitted = value
        return value

    def holders(self) -> list[str]:
        """The tasks that were heard, are not left out, and said the least."""
        counting = {task: time for task, time in self.tasks.items() if task not in self.silence.silent} or self.tasks
        lowest = min(counting.values(), default=None)
        return [task for task, time in counting.items() if time == lowest]

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "tasks": [*map(stored_task, self.tasks)],
            "times": [*self.tasks.values()],
            "total": self.total,
            "agreed": self.agreed,
            "direct": self.direct,
            "emitted": self.emitted,
        }
        if self.silence.watching:
            data["silence"] = self.silence.to_json()
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any], policy: IdlePolicy | None = None) -> WatermarkBookkeeping:
        policy = policy or IdlePolicy()
        silence = Silence.from_json(data["silence"], policy) if "silence" in data else Silence(policy)
        names = [str(task_of_stored(task)) for task in data["tasks"]]
        tasks = dict(zip(names, data["times"], strict=True))
        return cls(tasks, data["total"], data["agreed"], data["direct"], data["emitted"], silence)


def _later(one: int | None, other: int) -> int:
    return other if one is None or other > one else one


def _or_before_all(timestamp: int | None) -> int:
    return _BEFORE_ALL_TIME if timestamp is None else timestamp
