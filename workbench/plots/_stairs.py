"""Stairs with a bounded number of points, cut where their state changes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_BATCHES = 2_000
"""Longer stairs are thinned."""
_POINTS_PER_FIGURE = 24_000
_KEPT_PER_BUCKET = 6


def points_per_line(lines: int) -> int:
    """How many points each of so many lines may have, so that a figure stays quick to load and to draw."""
    return max(240, min(MOST_BATCHES, _POINTS_PER_FIGURE // max(lines, 1)))


def corners(times: NDArray[np.datetime64], state: NDArray[np.int8], most: int) -> NDArray[np.int64]:
    """Positions, in order, that suffice to draw the stairs of `times`, at most `most` (but at least 6) of them.

    Always kept are the first and the last. Up to `most` positions nothing but repetition goes: a step is drawn by its
    corners. Beyond, each of equally many neighbours keeps its first and last, lowest and highest position, its first gap
    and its first change of state, so that every jump stays in sight.
    """
    changed = np.ones(len(times), dtype=bool)
    changed[1:] = (times[1:] != times[:-1]) & ~(np.isnat(times[1:]) & np.isnat(times[:-1]))
    turned = np.zeros(len(times), dtype=bool)
    turned[1:] = state[1:] != state[:-1]
    keep = changed | turned
    keep[-1:] = True
    positions = np.flatnonzero(keep)
    if len(positions) <= most:
        return positions
    kept: set[int] = set()
    for bucket in np.array_split(positions, max(1, most // _KEPT_PER_BUCKET)):
        values, gaps, turns = times[bucket], np.isnat(times[bucket]), turned[bucket]
        kept.update((int(bucket[0]), int(bucket[-1])))
        if not gaps.all():
            numbers = values.astype(np.int64)
            kept.add(int(bucket[np.where(gaps, np.iinfo(np.int64).max, numbers).argmin()]))
            kept.add(int(bucket[np.where(gaps, np.iinfo(np.int64).min, numbers).argmax()]))
        kept.update(int(bucket[mask.argmax()]) for mask in (gaps, turns) if mask.any())
    return np.array(sorted(kept), dtype=np.int64)


def stretch(x: list[Any], y: list[str | None], drawn: NDArray[np.bool_]) -> tuple[list[Any], list[str | None]]:
    """The parts of stairs that start at the positions `drawn`, each up to the next position, with gaps between them.

    A step belongs to the state at its start: it is drawn to where the next step begins and up to its height if that is
    known, so that parts in different dashes join. A part ends in None.
    """
    xs: list[Any] = []
    ys: list[str | None] = []
    for index, here in enumerate(drawn.tolist()):
        before = index > 0 and bool(drawn[index - 1])
        if here and y[index] is not None:
            xs.append(x[index])
            ys.append(y[index])
        elif before and y[index - 1] is not None:
            xs += [x[index], None]
            ys += [y[index] if y[index] is not None else y[index - 1], None]
    return xs, ys


def band(x: list[Any], low: list[str | None], high: list[str | None]) -> tuple[list[Any], list[str | None]]:
    """Closed outlines around the area between two stairs, one for each stretch in which both are known."""
    xs: list[Any] = []
    ys: list[str | None] = []
    start = 0
    while start < len(x):
        if low[start] is None or high[start] is None:
            start += 1
            continue
        end = start
        while end + 1 < len(x) and low[end + 1] is not None and high[end + 1] is not None:
            end += 1
        # The last step reaches to where the gap begins.
        edges = [*x[start : end + 1], x[min(end + 1, len(x) - 1)]]
        there = [(edges[i + k], high[start + i]) for i in range(end - start + 1) for k in (0, 1)]
        back = [(edges[i + k], low[start + i]) for i in reversed(range(end - start + 1)) for k in (1, 0)]
        outline = [*there, *back, there[0]]
        xs += [*(point[0] for point in outline), None]
        ys += [*(point[1] for point in outline), None]
        start = end + 1
    return xs, ys
