"""How every data set gets into a log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from workbench.errors import StreamEnded

if TYPE_CHECKING:
    from workbench.systems.log import Stream, StreamLog


def append(
    log: StreamLog,
    stream: str,
    table: pa.Table,
    partition_of: npt.NDArray[np.int64],
    partitions: int,
    *,
    end: bool,
    batch_rows: int = 50_000,
    time_column: str | None = "event_time",
) -> int:
    """Append row *i* of `table` to partition `partition_of[i]`, `batch_rows` rows of the table per round of appends.

    So the partitions grow side by side in the order of the table, as they would if someone wrote it live. Creates the
    stream if need be, ends it if `end`. Returns the number of rows. Raises `StreamEnded` if the stream has ended.
    """
    target = _opened(log, stream, partitions)
    for start in range(0, table.num_rows, batch_rows):
        rows = table.slice(start, batch_rows)
        theirs = partition_of[start : start + batch_rows]
        for partition in np.unique(theirs).tolist():
            target.append(rows.filter(pa.array(theirs == partition)), partition=partition, time_column=time_column)
    if end:
        target.end()
    return len(partition_of)


def append_each(
    log: StreamLog,
    stream: str,
    parts: Sequence[pa.Table],
    *,
    end: bool,
    batch_rows: int,
    time_column: str | None = "event_time",
) -> int:
    """Append `parts[i]` to partition *i*, `batch_rows` rows of each partition per round; return the number of rows."""
    target = _opened(log, stream, len(parts))
    for start in range(0, max(part.num_rows for part in parts), batch_rows):
        for partition, part in enumerate(parts):
            if start < part.num_rows:
                target.append(part.slice(start, batch_rows), partition=partition, time_column=time_column)
    if end:
        target.end()
    return sum(part.num_rows for part in parts)


def _opened(log: StreamLog, stream: str, partitions: int) -> Stream:
    target = log.create(stream, partitions, exist_ok=True)
    # A notebook cell is easily run twice, and nobody would notice that everything is there twice.
    if any(target.ended()):
        raise StreamEnded.already(stream)
    return target
