"""Arrivals for tests of choosers: what a few SSPs hold, batch after batch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from workbench.choosers import BatchChoice, ChooserPolicy, LaneArrivals, plan_runs, slow_runs
from workbench.messages import MessageType
from workbench.names import SSP
from workbench.times import NO_TIME

Message = int | MessageType
"""An event time (`NO_TIME` for a row without one), or a control message."""


@dataclass
class Feed:
    """One SSP: its log from offset 0 on, what is read of it, and when it appears and is trimmed."""

    ssp: SSP
    priority: int = 0
    bootstrap: bool = False
    start: int = 0
    messages: list[Message] = field(default_factory=list)
    appears: int = 0
    head_at_start: int | None = None
    oldest: int = 0
    position: int = 0

    def begin(self) -> None:
        self.position = max(self.start, self.oldest)
        self.head_at_start = None if self.appears else len(self.messages)

    def lane(self) -> LaneArrivals:
        waiting = self.messages[self.position :]
        times = [NO_TIME if isinstance(each, MessageType) else each for each in waiting]
        kinds = [int(each) if isinstance(each, MessageType) else 0 for each in waiting]
        return LaneArrivals(
            self.ssp,
            len(waiting),
            self.position,
            self.priority,
            self.bootstrap,
            started_at=self.start,
            head_at_start=self.head_at_start,
            event_times=np.array(times, dtype=np.int64),
            kinds=np.array(kinds, dtype=np.uint8),
        )


@dataclass
class Round:
    """What happens before a batch: messages appended to each feed; then the batch takes up to `limit`."""

    limit: int
    appended: list[list[Message]]


def both(
    policy: ChooserPolicy, feeds: Sequence[Feed], rounds: Sequence[Round]
) -> tuple[list[BatchChoice], list[BatchChoice]]:
    """The choices of `plan_runs`, its state carried as JSON, and those of the choosers, message by message."""
    return list(_planned(policy, _copies(feeds), rounds)), list(_asked(policy, _copies(feeds), rounds))


def _copies(feeds: Sequence[Feed]) -> list[Feed]:
    return [replace(feed, messages=list(feed.messages)) for feed in feeds]


def _planned(policy: ChooserPolicy, feeds: list[Feed], rounds: Sequence[Round]) -> Iterator[BatchChoice]:
    state = None
    for index, round_ in enumerate(rounds):
        lanes = _arrived(feeds, index, round_)
        choice = plan_runs(policy, [feed.lane() for feed in lanes], round_.limit, state)
        state = json.loads(json.dumps(choice.state))
        _advance(lanes, choice)
        yield choice


def _asked(policy: ChooserPolicy, feeds: list[Feed], rounds: Sequence[Round]) -> Iterator[BatchChoice]:
    present: list[Feed] = []

    def batches() -> Iterator[tuple[list[LaneArrivals], int]]:
        for index, round_ in enumerate(rounds):
            present[:] = _arrived(feeds, index, round_)
            yield [feed.lane() for feed in present], round_.limit

    for choice in slow_runs(policy, batches()):
        _advance(present, choice)
        yield choice


def _arrived(feeds: list[Feed], index: int, round_: Round) -> list[Feed]:
    for feed, messages in zip(feeds, round_.appended, strict=True):
        feed.messages += messages
        if feed.appears == index:
            feed.begin()
    return [feed for feed in feeds if feed.appears <= index]


def _advance(feeds: list[Feed], choice: BatchChoice) -> None:
    for feed, taken in zip(feeds, choice.runs.taken(len(feeds)), strict=True):
        feed.position += taken
