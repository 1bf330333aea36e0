"""Seeded events in any number: keys, values, and event times that are out of order by a known bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from datasets import _streams
from datasets._random import Draws, Integers

if TYPE_CHECKING:
    from workbench.systems.log import StreamLog

START_MS = 1_356_998_400_000
"""2013-01-01 00:00 UTC, in milliseconds since the epoch."""

DAY_MS = 86_400_000


def events(
    n: int,
    keys: int = 1_000,
    partitions: int = 8,
    disorder_ms: int = 60_000,
    seed: int = 0,
    *,
    duration_ms: int = DAY_MS,
    start_ms: int = START_MS,
) -> tuple[pa.Table, ...]:
    """`n` events in order of arrival, one table per partition, the same bytes for the same arguments.

    Columns: `event_time` (`timestamp[us, UTC]`), `key` (text, `keys` different ones, each in every partition) and
    `value` (float64 in [0, 100), two decimals). Events arrive at an even pace during `duration_ms` from `start_ms`;
    each arrives less than `disorder_ms` after its event time, half of them within an eighth of that. So an event time
    is always less than `disorder_ms` behind the largest one before it in its partition.
    """
    names = pa.array([f"key-{key:06d}" for key in range(keys)])
    parts = []
    for partition in range(partitions):
        share = n // partitions + (partition < n % partitions)
        draws = Draws(seed, partition)
        chosen = draws.below(keys, share)
        values = draws.below(10_000, share) / 100
        times = disordered(even_times(share, start_ms, duration_ms), disorder_ms, draws)
        parts.append(pa.table({"event_time": instants(times), "key": names.take(pa.array(chosen)), "value": values}))
    return tuple(parts)


def write(
    log: StreamLog, parts: tuple[pa.Table, ...], stream: str = "events", *, end: bool = True, batch_rows: int = 100_000
) -> int:
    """Append `parts` (of `events`, or tables alike) to `stream`, one partition each; return the number of events."""
    return _streams.append_each(log, stream, parts, end=end, batch_rows=batch_rows)


def even_times(n: int, start_ms: int, duration_ms: int) -> Integers:
    """`n` times at an even pace in [start, start + duration), in milliseconds."""
    return start_ms + np.arange(n, dtype=np.int64) * duration_ms // max(n, 1)


def disordered(arrival_ms: Integers, disorder_ms: int, draws: Draws) -> Integers:
    """The event times of messages that arrive at these times, each delayed by less than `disorder_ms`."""
    return arrival_ms - draws.below(disorder_ms, len(arrival_ms), skew=3)


def instants(times_ms: Integers) -> pa.Array:
    """Milliseconds since the epoch as `timestamp[us, UTC]`, the type of every event time here."""
    return pa.array(times_ms * 1000, pa.timestamp("us", "UTC"))
