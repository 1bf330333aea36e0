"""How much is measured: everything, or just enough to see that the measuring works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    rounds: int
    events: int
    """Of the throughput benchmark."""
    warm_events: int
    """Of the run before it in the same process."""
    batch_events: int
    """How many source events one batch admits."""
    memory_events: tuple[int, ...]
    batches: int
    """Small batches that are measured, after `warm_batches`."""
    warm_batches: int
    open_pairs: int
    tasks: tuple[int, ...]
    repeats: int
    """Of what is measured within a process."""
    drain_tasks: tuple[int, ...]
    drain_stages: tuple[int, ...]
    drain_backlog: int
    """Events at the source when a job that will be drained starts."""
    drain_repeats: int
    """Drains that are measured in one process, after a first one."""


FULL = Scale(
    rounds=3,
    events=4_000_000,
    warm_events=2_000_000,
    batch_events=1_000_000,
    memory_events=(1_000_000, 4_000_000, 16_000_000),
    batches=40,
    warm_batches=20,
    open_pairs=1_000_000,
    tasks=(8, 64, 256),
    repeats=5,
    drain_tasks=(4, 16, 64),
    drain_stages=(1, 2, 4),
    drain_backlog=240_000,
    drain_repeats=2,
)

QUICK = Scale(
    rounds=1,
    events=40_000,
    warm_events=20_000,
    batch_events=10_000,
    memory_events=(20_000, 40_000),
    batches=4,
    warm_batches=2,
    open_pairs=10_000,
    tasks=(4, 8),
    repeats=2,
    drain_tasks=(4,),
    drain_stages=(1, 2),
    drain_backlog=80_000,
    drain_repeats=1,
)

PARTITIONS = 8
KEYS = 1_000
DISORDER_MS = 60_000
HOUR_MS = 3_600_000
SMALL_BATCH_ROWS = 1_000
SMALL_BATCH_MS = 300_000
"""Event time that a small batch covers: with hourly windows, one batch in twelve closes some."""
CONTAINERS = 2
