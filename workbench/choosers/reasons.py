"""Why a message went before the others that waited: read off the order, so that every planner tells it in the same words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from workbench.choosers.lanes import LaneArrivals
from workbench.choosers.runs import Integers, Runs
from workbench.choosers.tiers import HIGHEST_PRIORITY

_BOOTSTRAP, _ALONE, _PRIORITY, _TIE, _BOTH = range(5)


def with_reasons(
    pieces: Sequence[tuple[Integers, Integers]], lanes: Sequence[LaneArrivals], word: str, bootstrapped: int
) -> Runs:
    """Runs from an order of lanes and counts.

    The first `bootstrapped` messages go by 'bootstrap'. Others by 'priority 5' if one of a lower priority waits, by
    `word` if another of the same priority does ('priority 5, round robin' if both), and 'alone' if nothing else waits.
    """
    if not pieces:
        return Runs.of([])
    taken = np.concatenate([taken for taken, _ in pieces])
    counts = np.concatenate([counts for _, counts in pieces])
    starts = np.cumsum(counts) - counts
    begins = np.flatnonzero((np.diff(taken, prepend=-1) != 0) | (starts == bootstrapped))
    taken, starts = taken[begins], starts[begins]
    counts = np.diff(starts, append=counts.sum())
    lower, equal = _others_until(_waits_until(taken, starts + counts, counts, lanes), lanes)
    reasons = _ALONE + (starts < lower[taken]) + 2 * (starts < equal[taken])
    codes = np.where(starts < bootstrapped, _BOOTSTRAP, reasons) + 5 * taken
    used, whys = np.unique(codes, return_inverse=True)
    sayings = [_saying(code % 5, lanes[code // 5].priority, word) for code in used.tolist()]
    words = tuple(dict.fromkeys(sayings))
    return Runs(taken, counts, np.array([words.index(saying) for saying in sayings])[whys], words)


def _waits_until(taken: Integers, ends: Integers, counts: Integers, lanes: Sequence[LaneArrivals]) -> list[int]:
    """Per lane the number of messages after which nothing of it waits: 0 if nothing did, beyond all if something is left."""
    beyond = int(ends[-1]) + 1
    last = np.zeros(len(lanes), dtype=np.int64)
    last[taken] = ends  # of several the last stays
    sums = np.bincount(taken, weights=counts, minlength=len(lanes)).astype(np.int64)
    exhausted = sums == [lane.count for lane in lanes]
    until: list[int] = np.where(exhausted, last, beyond).tolist()
    return until


def _others_until(until: list[int], lanes: Sequence[LaneArrivals]) -> tuple[Integers, Integers]:
    """Per lane until when one of lower priority waits, and until when another of the same priority does."""
    tiers: dict[int, list[int]] = defaultdict(list)
    for lane, end in zip(lanes, until, strict=True):
        tiers[lane.priority].append(end)
    below: dict[int, int] = {}
    latest = 0
    for priority in sorted(tiers):
        below[priority] = latest
        tiers[priority].sort(reverse=True)
        latest = max(latest, tiers[priority][0])
    lower = [below[lane.priority] for lane in lanes]
    equal = [
        next(iter(tier[1:] if tier[0] == end else tier), 0)
        for tier, end in ((tiers[lane.priority], end) for lane, end in zip(lanes, until, strict=True))
    ]
    return np.array(lower), np.array(equal)


def _saying(reason: int, priority: int, word: str) -> str:
    rank = "highest priority" if priority == HIGHEST_PRIORITY else f"priority {priority}"
    return ("bootstrap", "alone", rank, word, f"{rank}, {word}")[reason]
