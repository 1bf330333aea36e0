"""How disordered a stream is: what a bounded out-of-orderness would cost in late rows.

A partition's watermark is the largest event time so far minus the bound. A row is late when its event time is below the
watermark that the rows before it have made. A job moves its watermark once per batch, not once per row, so it finds at
most as many late rows as are counted here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Lateness:
    """The rows of one partition that a bound makes late."""

    bound_ms: int
    rows: int
    """Rows behind the watermark."""
    window_closed: int
    """Those among them whose tumbling window had already closed: the rows that a window aggregate really misses."""


def event_times_ms(table: pa.Table, column: str = "event_time") -> npt.NDArray[np.int64]:
    """The event times of `table` in milliseconds since the epoch."""
    times = table[column].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    return np.asarray(times.to_numpy(), dtype=np.int64)


def behind_ms(times_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How far each event time is behind the largest one up to there: 0 for a row that sets a new maximum."""
    return np.maximum.accumulate(times_ms) - times_ms


def lateness(times_ms: npt.NDArray[np.int64], bounds_ms: Iterable[int], *, window_ms: int = _HOUR_MS) -> list[Lateness]:
    """What each bound would make late in a partition with these event times, in order of arrival."""
    behind = behind_ms(times_ms)
    until_close = window_ms - times_ms % window_ms
    return [
        Lateness(bound, int((behind > bound).sum()), int((behind >= bound + until_close).sum())) for bound in bounds_ms
    ]


def by_partition(table: pa.Table, column: str) -> dict[str, pa.Table]:
    """The rows of `table` for each value of `column`, in their order: the partitions of a stream, by name."""
    values = sorted(pc.unique(table[column]).to_pylist())
    return {value: table.filter(pc.equal(table[column], value)) for value in values}


def report(partitions: Mapping[str, pa.Table], bounds_ms: Sequence[int], *, window_ms: int = _HOUR_MS) -> str:
    """The disorder of a stream's partitions as two Markdown tables: how far rows are behind, and what bounds cost.

    Times are whole minutes, rounded up; bounds must be multiples of a minute. The last column counts the rows whose
    window of `window_ms` had closed already.
    """
    times = {name: event_times_ms(table) for name, table in partitions.items()}
    lines = ["| partition | rows | p50 | p99 | max |", "|---|---:|---:|---:|---:|"]
    for name, part in times.items():
        behind = np.percentile(behind_ms(part), [50, 99, 100], method="higher")
        lines.append(
            "| " + " | ".join([name, f"{len(part):,}", *(f"{-(-int(ms) // _MINUTE_MS)}" for ms in behind)]) + " |"
        )

    late = {name: lateness(part, bounds_ms, window_ms=window_ms) for name, part in times.items()}
    lines += ["", "| bound | " + " | ".join(late) + " | all | share | window closed |", "|---:" * (len(late) + 4) + "|"]
    for index, bound in enumerate(bounds_ms):
        rows = [of[index].rows for of in late.values()]
        share = sum(rows) / sum(map(len, times.values()))
        closed = sum(of[index].window_closed for of in late.values())
        cells = [f"{bound // _MINUTE_MS} min", *(f"{n:,}" for n in (*rows, sum(rows))), f"{share:.1%}", f"{closed:,}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
