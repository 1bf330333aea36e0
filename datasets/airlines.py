"""The names of the sixteen airlines: a small table that a job reads whole before anything else (a bootstrap stream)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from datasets import _nycflights, _streams

if TYPE_CHECKING:
    from workbench.systems.log import StreamLog


def table() -> pa.Table:
    """`carrier` (two characters) and `name`, in order of carrier. There is no event time."""
    return _nycflights.read("airlines.csv", {"carrier": pa.string(), "name": pa.string()}).sort_by("carrier")


def write(log: StreamLog, stream: str = "airlines", *, end: bool = True) -> int:
    """Append the airlines to the one partition of `stream`; return their number."""
    airlines = table()
    only = np.zeros(airlines.num_rows, np.int64)
    return _streams.append(log, stream, airlines, only, 1, end=end, time_column=None)
