"""How far each SSP advances in a batch. A pure function of positions, heads and a limit: a replay plans the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Positions = dict[str, list[int]]
"""Next offset to read, for each partition of each input stream."""

INTERMEDIATE_FACTOR = 4
"""Intermediate streams may admit this many times the limit: they must be able to catch up with what a stage expands."""


def advance(
    positions: Mapping[str, Sequence[int]],
    heads: Mapping[str, Sequence[int]],
    *,
    intermediate: frozenset[str],
    limit: int,
) -> Positions:
    """The positions at the end of the next batch, at most `limit` messages ahead in all.

    Intermediate streams go first, as they have the highest priority; sources get what they leave, shared evenly among
    the partitions that have messages, so that a short partition leaves its share to the others.
    """
    inner = {stream: offsets for stream, offsets in positions.items() if stream in intermediate}
    outer = {stream: offsets for stream, offsets in positions.items() if stream not in intermediate}
    advanced = _share(inner, heads, limit * INTERMEDIATE_FACTOR)
    admitted = sum(sum(advanced[stream]) - sum(inner[stream]) for stream in inner)
    remaining = max(0, limit * INTERMEDIATE_FACTOR - admitted)
    return advanced | _share(outer, heads, min(limit, remaining))


def _share(positions: Mapping[str, Sequence[int]], heads: Mapping[str, Sequence[int]], limit: int) -> Positions:
    waiting = {
        (stream, partition): heads[stream][partition] - offset
        for stream, offsets in positions.items()
        for partition, offset in enumerate(offsets)
    }
    granted = _water_fill(waiting, limit)
    return {
        stream: [offset + granted[stream, partition] for partition, offset in enumerate(offsets)]
        for stream, offsets in positions.items()
    }


def _water_fill(waiting: Mapping[tuple[str, int], int], limit: int) -> dict[tuple[str, int], int]:
    """Even shares of `limit`, none larger than what waits; what one does not need goes to the others."""
    granted = dict.fromkeys(waiting, 0)
    open_ssps = sorted((count, ssp) for ssp, count in waiting.items() if count > 0)
    remaining = limit
    while open_ssps:
        share = remaining // len(open_ssps)
        if share == 0:
            for _, ssp in open_ssps[:remaining]:
                granted[ssp] += 1
            break
        count, ssp = open_ssps[0]
        granted[ssp] = min(count, share)
        remaining -= granted[ssp]
        open_ssps.pop(0)
    return granted
