"""Silence: since when an upstream task has said nothing, and whether the others can go on without it.

Source: `WatermarkStates` of Apache Samza (idle timeout and quorum), with the time as a parameter, so that silence is
noticed by the clock and not only when somebody else speaks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.errors import InvalidIdlePolicy
from workbench.messages import MAX_TIMESTAMP
from workbench.messages.tasks import stored_task, task_of_stored


@dataclass(frozen=True, slots=True)
class IdlePolicy:
    """Leave out who has been silent for `timeout_ms`, as long as a part `quorum` of the others is heard.

    Raises `InvalidIdlePolicy` unless the timeout is a positive whole number or None (never), 0 < quorum ≤ 1.
    """

    timeout_ms: int | None = None
    quorum: float = 0.5

    def __post_init__(self) -> None:
        if self.timeout_ms is not None and (type(self.timeout_ms) is not int or self.timeout_ms < 1):
            raise InvalidIdlePolicy.timeout(self.timeout_ms)
        if isinstance(self.quorum, bool) or not isinstance(self.quorum, int | float) or not 0 < self.quorum <= 1:
            raise InvalidIdlePolicy.quorum(self.quorum)

    @property
    def watching(self) -> bool:
        return self.timeout_ms is not None

    def needed(self, tasks: int) -> int:
        """How many of `tasks` must be heard: at least one. (Rounded first: 0.1 × 30 is more than 3 for a computer.)"""
        return max(1, math.ceil(round(self.quorum * tasks, 9)))


@dataclass(slots=True)
class IdleClock:
    """Milliseconds in which somebody could have been heard. Stands still while held, and never goes back."""

    elapsed: int = 0
    last: int | None = None
    held: bool = False

    def observe(self, now_ms: int | None) -> int:
        """Go on to `now_ms` (None: it is as late as it was) and return the elapsed time."""
        if now_ms is not None:
            if not self.held and self.last is not None:
                self.elapsed += max(0, now_ms - self.last)
            self.last = now_ms
        return self.elapsed

    def hold(self, now_ms: int) -> None:
        self.observe(now_ms)
        self.held = True

    def release(self, now_ms: int) -> None:
        self.observe(now_ms)
        self.held = False

    def restart(self) -> None:
        """The time until the next observation does not count: nobody was there to hear."""
        self.last, self.held = None, False

    def to_json(self) -> list[Any]:
        return [self.elapsed, self.last, self.held]


@dataclass(slots=True)
class Silence:
    """Who among the upstream tasks is silent. Times are those of an `IdleClock`.

    Only `look` finds somebody silent, and only a message ends it. Messages that were read together are therefore heard
    together: nobody is passed over because another's message lay before theirs in the same batch.
    """

    policy: IdlePolicy = field(default_factory=IdlePolicy)
    heard: dict[str, int] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    waiting_since: int = 0
    """Since when those who were never heard are waited for."""
    given_up: bool = False
    """Whether those who were never heard are left out too."""

    @classmethod
    def starting(cls, policy: IdlePolicy, elapsed: int) -> Silence:
        """Nobody is silent yet, and everybody has their time from now on."""
        return cls(policy, waiting_since=elapsed if policy.watching else 0)

    @property
    def watching(self) -> bool:
        return self.policy.watching

    @property
    def anyone_left_out(self) -> bool:
        return bool(self.silent) or self.given_up

    def hear(self, task: str, elapsed: int) -> None:
        """A sign of life, whatever it says."""
        if self.watching:
            self.heard[task] = elapsed
            self.silent.discard(task)

    def hear_all(self, tasks: Iterable[str | None], elapsed: int) -> None:
        """The same for many tasks, none of which is silent."""
        if self.watching:
            self.heard.update((task, elapsed) for task in tasks if task is not None)

    def expect_more(self, elapsed: int) -> None:
        """The number of upstream tasks rose: who is missing now gets their time."""
        if self.watching:
            self.waiting_since, self.given_up = elapsed, False

    def look(self, timestamps: Mapping[str, int], elapsed: int) -> None:
        """Find out who is silent. Who has said everything (the largest timestamp) has nothing to add and is not."""
        timeout = self.policy.timeout_ms
        if timeout is None:
            return
        for task in timestamps:
            self.heard.setdefault(task, elapsed)
        self.silent = {
            task
            for task, timestamp in timestamps.items()
            if timestamp != MAX_TIMESTAMP and elapsed - self.heard[task] >= timeout
        }
        self.given_up = elapsed - self.waiting_since >= timeout

    def heard_timestamps(self, timestamps: Mapping[str, int], total: int) -> list[int] | None:
        """What those say that are still heard, or None where nobody can be left out.

        The quorum is of those that have not said everything: one that ended can not speak for one that is silent.
        """
        if not self.anyone_left_out or (len(timestamps) < total and not self.given_up):
            return None
        active, finished = [], 0
        for task, timestamp in timestamps.items():
            if timestamp == MAX_TIMESTAMP:
                finished += 1
            elif task not in self.silent:
                active.append(timestamp)
        unfinished = max(total, len(timestamps)) - finished
        return active if len(active) >= self.policy.needed(unfinished) else None

    def to_json(self) -> dict[str, Any]:
        return {
            "heard": [[stored_task(task), elapsed] for task, elapsed in self.heard.items()],
            "silent": [stored_task(task) for task in sorted(self.silent)],
            "since": self.waiting_since,
            "given_up": self.given_up,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], policy: IdlePolicy) -> Silence:
        heard = {str(task_of_stored(task)): elapsed for task, elapsed in data["heard"]}
        silent = {str(task_of_stored(task)) for task in data["silent"]}
        return cls(policy, heard, silent, data["since"], data["given_up"])
