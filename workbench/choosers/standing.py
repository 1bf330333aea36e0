"""Where the planning of a batch stands: what has been taken, whose turn it is, and which batches are begun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from workbench.choosers.lanes import LaneArrivals
from workbench.choosers.runs import Integers
from workbench.names import SSP


class Standing:
    """`taken[i]` messages of lane *i* have been taken in this batch. Goes into the next batch as plain JSON types."""

    def __init__(
        self, lanes: Sequence[LaneArrivals], taken: list[int], turns: list[int], begun: dict[int, tuple[SSP, int]]
    ) -> None:
        self._lanes = lanes
        self._index = {lane.ssp: index for index, lane in enumerate(lanes)}
        self._turns = turns
        """Lanes with messages; whose turn is next comes first."""
        self._begun = begun
        """Priority → the SSP that a batch has been begun with, and how many of its messages have gone."""
        self.taken = taken

    @classmethod
    def from_state(cls, state: Mapping[str, Any] | None, lanes: Sequence[LaneArrivals]) -> Standing:
        """Who is new, or had nothing to give, comes last, in the order of the lanes."""
        state = state or {}
        waiting = {lane.ssp: index for index, lane in enumerate(lanes) if lane.count}
        kept = [waiting.pop(ssp) for ssp in map(_ssp, state.get("turns", ())) if ssp in waiting]
        begun = {priority: (_ssp(ssp), count) for priority, ssp, count in state.get("begun", ())}
        return cls(lanes, [0] * len(lanes), kept + list(waiting.values()), begun)

    def to_state(self, in_turn: bool) -> dict[str, Any]:
        """`in_turn` is False where turns decide nothing, so that they need not be kept."""
        turns = [list(self._lanes[index].ssp) for index in self._turns if self.left(index)] if in_turn else []
        begun = [[priority, list(ssp), count] for priority, (ssp, count) in sorted(self._begun.items())]
        return {key: value for key, value in (("turns", turns), ("begun", begun)) if value}

    def copy(self) -> Standing:
        return Standing(self._lanes, list(self.taken), list(self._turns), dict(self._begun))

    def left(self, lane: int) -> int:
        return self._lanes[lane].count - self.taken[lane]

    def in_turn(self, lanes: Sequence[int]) -> list[int]:
        chosen = set(lanes)
        return [index for index in self._turns if index in chosen]

    def took(self, lanes: Integers, counts: Integers) -> None:
        """Messages have been taken in this order: the lanes they are of have their next turn after all others."""
        latest = np.full(len(self._lanes), -1)
        latest[lanes] = np.arange(len(lanes))
        sums = np.bincount(lanes, weights=counts, minlength=len(self._lanes))
        served = sorted(np.flatnonzero(latest >= 0).tolist(), key=latest.__getitem__)
        for lane in served:
            self.taken[lane] += int(sums[lane])
        self._turns = [index for index in self._turns if latest[index] < 0] + served

    def let_in(self, lanes: Sequence[int], last: int) -> None:
        """Lanes that were kept back get their turn after the others and before the one that was taken last."""
        kept_back = self.in_turn(lanes)
        others = [index for index in self._turns if index != last and index not in kept_back]
        self._turns = [*others, *kept_back, last]

    def batch(self, priority: int) -> tuple[int, int] | None:
        """The lane that a batch of this priority has been begun with, if it is there, and the messages that went."""
        ssp, count = self._begun.get(priority, (None, 0))
        lane = None if ssp is None else self._index.get(ssp)
        return None if lane is None else (lane, count)

    def stay(self, priority: int, lane: int, count: int, size: int) -> None:
        """The last `count` messages of this priority were a batch of `lane`; it is over when it has `size`."""
        if count < size:
            self._begun[priority] = self._lanes[lane].ssp, count
        else:
            self._begun.pop(priority, None)


def _ssp(parts: Sequence[Any]) -> SSP:
    return SSP(*parts)
