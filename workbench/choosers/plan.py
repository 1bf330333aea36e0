"""The order of a whole batch at once. What runs; the choosers, asked message by message, are its specification.

Each built-in rule takes, again and again, the lane whose next message has the least of some key. Where a lane's keys do
not fall, that is a merge, which is a stable sort. Round robin: the key is the round. Starting alignment: the messages
gained since the start, one more with each message. Time alignment: the event time may fall within a lane, but a message
that is earlier than one that went before it in its lane goes right after it, as every other lane is at that time or
later; so its key is the latest time of its lane so far.

With batches, the same holds for each lane's messages taken `batch_size` at a time, by the key of the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from workbench.choosers.lanes import LaneArrivals, checked_lanes
from workbench.choosers.policy import OWN, ROUND_ROBIN, TIME_ALIGNED, ChooserPolicy
from workbench.choosers.reasons import with_reasons
from workbench.choosers.runs import BatchChoice, Integers
from workbench.choosers.standing import Standing
from workbench.errors import InvalidChooser
from workbench.times import NO_TIME

_Pieces = list[tuple[Integers, Integers]]
"""Lanes, and how many messages of each, in the order taken."""


def plan_runs(
    policy: ChooserPolicy, lanes: Sequence[LaneArrivals], limit: int, state: Mapping[str, Any] | None = None
) -> BatchChoice:
    """The order in which one task takes at most `limit` of the messages that wait in its lanes.

    Lanes that lack messages of their bootstrap go alone first, with all lanes of bootstrap streams; then higher
    priorities go before lower ones, which get what those leave. `state` is that of the choice before, None at the start
    of a run. A function of its arguments: a replay gives the same. Event times are read only of lanes that have to be
    compared. Raises `InvalidChooser` for a policy of a user's own (see `ChooserDriver`), for an SSP given twice, for
    too few event times.
    """
    checked_lanes(lanes, limit)
    if policy.kind == OWN:
        raise InvalidChooser.message_by_message(policy.name)
    planner = _Planner(policy, lanes, Standing.from_state(state, lanes))
    missing = {index: lane.missing for index, lane in enumerate(lanes) if lane.missing}
    bootstrapped = 0
    if missing:
        bootstrap = [index for index, lane in enumerate(lanes) if lane.bootstrap]
        before = planner.standing.copy()
        pieces = planner.take(bootstrap, limit)
        caught_up = _caught_up_after(pieces, missing)
        bootstrapped = sum(int(counts.sum()) for _, counts in pieces) if caught_up is None else caught_up
        if caught_up is not None:
            planner.standing = before
            pieces = planner.take(bootstrap, caught_up)
            planner.standing.let_in([index for index in range(len(lanes)) if index not in bootstrap], _last(pieces))
            pieces += planner.take(range(len(lanes)), limit - caught_up)
    else:
        pieces = planner.take(range(len(lanes)), limit)
    runs = with_reasons(pieces, lanes, policy.word, bootstrapped)
    return BatchChoice(runs, planner.standing.to_state(policy.kind == ROUND_ROBIN))


class _Planner:
    def __init__(self, policy: ChooserPolicy, lanes: Sequence[LaneArrivals], standing: Standing) -> None:
        self._policy = policy
        self._lanes = lanes
        self.standing = standing

    def take(self, lanes: Sequence[int], limit: int) -> _Pieces:
        """Take up to `limit` messages of some lanes, higher priorities first."""
        pieces: _Pieces = []
        waiting = [index for index in lanes if self.standing.left(index)]
        for priority in sorted({self._lanes[index].priority for index in waiting}, reverse=True):
            if limit:
                tier = [index for index in waiting if self._lanes[index].priority == priority]
                found = self._take_tier(priority, tier, limit)
                limit -= sum(int(counts.sum()) for _, counts in found)
                pieces += found
        return pieces

    def _take_tier(self, priority: int, tier: list[int], limit: int) -> _Pieces:
        pieces: _Pieces = []
        size, standing = self._policy.batch_size, self.standing
        begun = standing.batch(priority)
        if begun is not None and begun[0] in tier:
            lane, count = begun
            taken = min(size - count, standing.left(lane), limit)
            pieces.append(_run(lane, taken))
            standing.took(*pieces[-1])
            standing.stay(priority, lane, count + taken, size)
            limit -= taken
            tier = [index for index in tier if standing.left(index)]
        if not limit or not tier:
            return pieces
        if len(tier) == 1:
            taken = min(standing.left(tier[0]), limit)
            pieces.append(_run(tier[0], taken))
            in_last = (taken - 1) % size + 1
        else:
            lanes, counts = self._merged(standing.in_turn(tier), limit)
            pieces.append((lanes, counts))
            in_last = int(counts[-1])
        standing.took(*pieces[-1])
        standing.stay(priority, int(pieces[-1][0][-1]), in_last, size)
        return pieces

    def _merged(self, tier: list[int], limit: int) -> tuple[Integers, Integers]:
        """Batches of lanes of equal priority, in their order."""
        size = self._policy.batch_size
        if self._policy.kind != ROUND_ROBIN:
            tier = sorted(tier, key=lambda index: self._lanes[index].ssp)
        waiting = [min(self.standing.left(index), limit) for index in tier]
        keys = [self._keys(index, count) for index, count in zip(tier, waiting, strict=True)]
        order = np.argsort(np.concatenate(keys), kind="stable")[:limit]
        lanes = np.repeat(np.array(tier), [len(each) for each in keys])[order]
        counts = np.full(sum(map(len, keys)), size)
        counts[np.cumsum([len(each) for each in keys]) - 1] = [(count - 1) % size + 1 for count in waiting]
        counts = counts[order]
        ends = np.cumsum(counts)
        last = min(int(np.searchsorted(ends, limit)), len(ends) - 1)
        counts[last] -= max(0, int(ends[last]) - limit)
        return lanes[: last + 1], counts[: last + 1]

    def _keys(self, index: int, count: int) -> Integers:
        """What decides when each batch of a lane goes; does not fall."""
        size, lane, taken = self._policy.batch_size, self._lanes[index], self.standing.taken[index]
        batches = np.arange(-(-count // size))
        if self._policy.kind == ROUND_ROBIN:
            return batches
        if self._policy.kind == TIME_ALIGNED:
            times = lane.times(taken + count)
            first = np.full(len(batches), NO_TIME) if times is None else times[taken::size]
            return np.maximum.accumulate(first)
        lag = lane.current_head - lane.start_offset - taken
        return (lane.starting_head - lane.first_offset) - lag + size * batches


def _run(lane: int, count: int) -> tuple[Integers, Integers]:
    return np.array([lane]), np.array([count])


def _last(pieces: _Pieces) -> int:
    return int(pieces[-1][0][-1])


def _caught_up_after(pieces: _Pieces, missing: Mapping[int, int]) -> int | None:
    """After how many messages no lane lacks any; None if that is not so at the end."""
    if not pieces:
        return None
    lanes = np.concatenate([lanes for lanes, _ in pieces])
    counts = np.concatenate([counts for _, counts in pieces])
    starts = np.cumsum(counts) - counts
    latest = 0
    for lane, needed in missing.items():
        runs = np.flatnonzero(lanes == lane)
        ends = np.cumsum(counts[runs])
        if not len(ends) or ends[-1] < needed:
            return None
        last = int(np.searchsorted(ends, needed))
        before = int(ends[last] - counts[runs[last]])
        latest = max(latest, int(starts[runs[last]]) + needed - before)
    return latest
