"""How far each lane advances in a batch. Pure functions of positions, heads and a limit: a replay plans the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workbench.engine.batch_plan import Positions

INTERMEDIATE_FACTOR = 4
"""Intermediate streams may admit this many times the limit: they must be able to catch up with what a stage expands."""


def advance(
    positions: Mapping[str, Sequence[int]],
    heads: Mapping[str, Sequence[int]],
    *,
    intermediate: frozenset[str],
    limit: int,
    draining: bool = False,
) -> Positions:
    """The positions at the end of the next batch, at most `limit` messages ahead in all; `heads` lane by lane.

    Intermediate streams go first, as they have the highest priority; sources get what they leave, shared evenly among
    the lanes that have messages, so that a short partition leaves its share to the others. A draining job takes nothing
    from sources, and all that lies between the stages: that was admitted before.
    """
    inner = {stream: offsets for stream, offsets in positions.items() if stream in intermediate}
    outer = {stream: offsets for stream, offsets in positions.items() if stream not in intermediate}
    if draining:
        return {stream: list(heads[stream]) for stream in inner} | {stream: list(outer[stream]) for stream in outer}
    advanced = _share(inner, heads, limit * INTERMEDIATE_FACTOR)
    admitted = sum(sum(advanced[stream]) - sum(inner[stream]) for stream in inner)
    remaining = max(0, limit * INTERMEDIATE_FACTOR - admitted)
    return advanced | _share(outer, heads, min(limit, remaining))


def _share(positions: Mapping[str, Sequence[int]], heads: Mapping[str, Sequence[int]], limit: int) -> Positions:
    waiting = {
        (stream, lane): heads[stream][lane] - offset
        for stream, offsets in positions.items()
        for lane, offset in enumerate(offsets)
    }
    granted = _water_fill(waiting, limit)
    return {
        stream: [offset + granted[stream, lane] for lane, offset in enumerate(offsets)]
        for stream, offsets in positions.items()
    }


def _water_fill(waiting: Mapping[tuple[str, int], int], limit: int) -> dict[tuple[str, int], int]:
    """Even shares of `limit`, none larger than what waits; what one does not need goes to the others."""
    granted = dict.fromkeys(waiting, 0)
    open_lanes = sorted((count, lane) for lane, count in waiting.items() if count > 0)
    remaining = limit
    while open_lanes:
        share = remaining // len(open_lanes)
        if share == 0:
            for _, lane in open_lanes[:remaining]:
                granted[lane] += 1
            break
        count, lane = open_lanes[0]
        granted[lane] = min(count, share)
        remaining -= granted[lane]
        open_lanes.pop(0)
    return granted
