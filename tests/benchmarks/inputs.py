"""The input of the benchmarks, the same rows for each contender in the form it reads best."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks.scale import DISORDER_MS, HOUR_MS, KEYS, PARTITIONS, SMALL_BATCH_MS, SMALL_BATCH_ROWS

if TYPE_CHECKING:
    import pyarrow as pa

LOG, PARQUET, ARROW = "log", "parquet", "arrow"
STREAM = "events"
_SEGMENT_ROWS = 125_000
_FLUSH_AHEAD_MS = 10 * 24 * HOUR_MS


def write_events(directory: str, events: int, batch_events: int, **_: Any) -> dict[str, Any]:
    """A day of events: a log of eight partitions, Parquet files that make batches of `batch_events`, Arrow files."""
    from datasets import synthetic

    parts = synthetic.events(events, keys=KEYS, partitions=PARTITIONS, disorder_ms=DISORDER_MS)
    _write_log(directory, parts, _SEGMENT_ROWS, end=True)
    files = write_parquet(Path(directory, PARQUET), parts, max(1, batch_events // PARTITIONS))
    _write_arrow(Path(directory, ARROW), parts)
    return {"rows": sum(map(len, parts)), "files": files}


def write_small_batches(directory: str, batches: int, **_: Any) -> dict[str, Any]:
    """Batches of 1,000 rows: 125 rows per partition in the log, one Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from datasets import synthetic

    parts = synthetic.events(
        batches * SMALL_BATCH_ROWS,
        keys=KEYS,
        partitions=PARTITIONS,
        disorder_ms=DISORDER_MS,
        duration_ms=batches * SMALL_BATCH_MS,
    )
    share = SMALL_BATCH_ROWS // PARTITIONS
    _write_log(directory, parts, share, end=False)
    target = Path(directory, PARQUET)
    target.mkdir(parents=True)
    for batch in range(batches):
        rows = pa.concat_tables([part.slice(batch * share, share) for part in parts])
        _write_dated(rows, target / f"{batch:05d}.parquet", batch, pq)
    return {"rows": batches * SMALL_BATCH_ROWS}


def write_parquet(target: Path, parts: tuple[pa.Table, ...], slice_rows: int) -> int:
    """Files of `slice_rows` in order of arrival, one per partition side by side, then one row from the far future.

    Spark has no end of stream. The last row pushes the watermark past all windows of the others, so that it emits them.
    Returns the number of files before that row's.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    target.mkdir(parents=True)
    count = 0
    for start in range(0, max(map(len, parts)), slice_rows):
        for part in parts:
            _write_dated(part.slice(start, slice_rows), target / f"{count:05d}.parquet", count, pq)
            count += 1
    last = parts[0].slice(0, 1)
    future = pa.array([last["event_time"][0].value + _FLUSH_AHEAD_MS * 1000], last["event_time"].type)
    flush = last.set_column(last.schema.get_field_index("event_time"), "event_time", future)
    _write_dated(flush, target / f"{count:05d}.parquet", count, pq)
    return count


def _write_log(directory: str, parts: tuple[pa.Table, ...], segment_rows: int, *, end: bool) -> None:
    from datasets import synthetic
    from workbench.systems.log import StreamLog

    synthetic.write(StreamLog(Path(directory, LOG)), parts, STREAM, end=end, batch_rows=segment_rows)


def _write_arrow(target: Path, parts: tuple[pa.Table, ...]) -> None:
    import pyarrow as pa

    target.mkdir(parents=True)
    for index, part in enumerate(parts):
        with pa.OSFile(str(target / f"{index}.arrow"), "wb") as sink, pa.ipc.new_file(sink, part.schema) as writer:
            writer.write_table(part, max_chunksize=_SEGMENT_ROWS)


def _write_dated(rows: pa.Table, path: Path, number: int, pq: Any) -> None:
    """Spark reads a directory's files by their date: these are a second apart, in order."""
    pq.write_table(rows, path)
    date = 1_700_000_000 + number
    os.utime(path, (date, date))
