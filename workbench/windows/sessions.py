"""Sessions: neighbours in time, per key, found with one sort."""

from __future__ import annotations

import numpy as np

from workbench.windows.grouping import Numbers


def merge_sessions(keys: Numbers, first: Numbers, last: Numbers, gap: int) -> tuple[Numbers, Numbers, Numbers]:
    """Joins spans [first, last] of equal keys that are at most `gap` apart.

    Returns the session of each span, and the first and last time of each session.
    """
    if not len(keys):
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
    order = np.lexsort((first, keys))
    keys, begins = keys[order], first[order]
    reach = last[order] if first is last else _running_maximum(keys, last[order])
    opens = np.empty(len(keys), np.bool_)
    opens[0] = True
    opens[1:] = (keys[1:] != keys[:-1]) | (begins[1:] > reach[:-1] + gap)
    ids = np.empty(len(keys), np.int64)
    ids[order] = np.cumsum(opens) - 1
    heads = np.flatnonzero(opens)
    tails = np.append(heads[1:], len(keys)) - 1
    return ids, begins[heads], reach[tails]


def _running_maximum(keys: Numbers, values: Numbers) -> Numbers:
    """The greatest value so far within each key; `keys` are sorted."""
    levels, ranks = np.unique(values, return_inverse=True)
    # Ranks are small, so key and rank fit into one number, which never falls from one key to the next.
    highest = np.maximum.accumulate(keys * len(levels) + ranks)
    result: Numbers = levels[highest - keys * len(levels)]
    return result
