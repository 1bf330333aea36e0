"""Which rows of two sides belong together: the same key, and times within a bound. Everything at once, in numpy.

The smaller side is sorted by key and time. The matches of a row of the other side are then one range of it, found by
two binary searches.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from workbench.joins.keys import Mask
from workbench.windows.grouping import Numbers

BLOCK = 500_000
"""About so many pairs at a time are made, however many there are."""


class Matching:
    """All pairs (left, right) with equal codes and `low` <= right time - left time <= `high` (both included).

    Codes are numbers from 0 on, equal where keys are; times are milliseconds. Costs O((n + m) log min(n, m)) and what
    the pairs cost that are asked for.
    """

    def __init__(
        self,
        left_codes: Numbers,
        left_times: Numbers,
        right_codes: Numbers,
        right_times: Numbers,
        low: int,
        high: int,
    ) -> None:
        self._swapped = len(left_codes) < len(right_codes)
        if self._swapped:
            left_codes, left_times, right_codes, right_times = right_codes, right_times, left_codes, left_times
            low, high = -high, -low
        # Key and time in one number: times by their place among the sorted side's, of which there are fewer than 2^31.
        times, places = np.unique(right_times, return_inverse=True)
        span = len(times) + 1
        composite = right_codes * span + places
        self._order = np.argsort(composite, kind="stable")
        composite = composite[self._order]
        first = np.searchsorted(times, left_times + low, side="left")
        last = np.searchsorted(times, left_times + high, side="right")
        self._starts = np.searchsorted(composite, left_codes * span + first)
        self._counts = np.searchsorted(composite, left_codes * span + last) - self._starts

    @property
    def pairs(self) -> int:
        return int(self._counts.sum())

    @property
    def left_matched(self) -> Mask:
        """The left rows that are in a pair."""
        return self._sorted_matched() if self._swapped else self._counts > 0

    @property
    def right_matched(self) -> Mask:
        return self._counts > 0 if self._swapped else self._sorted_matched()

    def blocks(self, most: int = BLOCK) -> Iterator[tuple[Numbers, Numbers]]:
        """Row numbers of the pairs, (left, right), in blocks of about `most`."""
        ends = np.cumsum(self._counts)
        begin = 0
        while begin < len(ends):
            done = int(ends[begin - 1]) if begin else 0
            end = max(begin + 1, int(np.searchsorted(ends, done + most, side="right")))
            counts = self._counts[begin:end]
            probing = np.repeat(np.arange(begin, end), counts)
            nth = np.arange(len(probing)) - np.repeat(np.cumsum(counts) - counts, counts)
            found = self._order[self._starts[probing] + nth]
            begin = end
            if len(probing):
                yield (found, probing) if self._swapped else (probing, found)

    def _sorted_matched(self) -> Mask:
        """Covered by any of the ranges: what begins up to a place less what ended before it."""
        begun = np.zeros(len(self._order) + 1, np.int64)
        hits = self._counts > 0
        np.add.at(begun, self._starts[hits], 1)
        np.add.at(begun, (self._starts + self._counts)[hits], -1)
        matched = np.zeros(len(self._order), np.bool_)
        matched[self._order] = np.cumsum(begun)[:-1] > 0
        return matched
