"""Questions to the index of a log: which entries hold an offset or a time."""

from __future__ import annotations

import json
import sqlite3
from functools import lru_cache
from typing import Any, NamedTuple

from workbench.errors import OffsetOutOfRange, UnknownPartition, UnknownStream
from workbench.messages import ControlRun

Ref = dict[str, Any]
"""One range to read, in JSON types. Rows: `f` file below the segments, `b` first byte, `n` bytes, `crc`, `s` first row,
`c` rows, `o` offset of the first, and `as` the schema to cast to (hexadecimal) where it differs. Control messages:
`ctl` a run as JSON, `o` offset of the first."""


class StreamRow(NamedTuple):
    """A stream as the index has it."""

    id: int
    name: str
    partitions: int
    schema: bytes | None


def find_stream(connection: sqlite3.Connection, name: str, where: str) -> StreamRow:
    """Raises `UnknownStream`, listing what is there."""
    row = connection.execute("SELECT id, name, partitions, schema FROM stream WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise UnknownStream.from_known(name, stream_names(connection), where)
    return StreamRow(*row)


def stream_names(connection: sqlite3.Connection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM stream ORDER BY name")]


def check_partition(stream: StreamRow, partition: object) -> None:
    if not isinstance(partition, int) or isinstance(partition, bool) or not 0 <= partition < stream.partitions:
        raise UnknownPartition.from_count(stream.name, partition, stream.partitions)


def bounds(connection: sqlite3.Connection, stream: StreamRow, partition: int) -> tuple[int, int]:
    """(oldest, head) of a partition. Raises `UnknownPartition`."""
    check_partition(stream, partition)
    statement = "SELECT oldest, head FROM partition WHERE stream = ? AND partition = ?"
    oldest, head = connection.execute(statement, (stream.id, partition)).fetchone()
    return oldest, head


_ENTRIES = """
SELECT entry.start, entry.count, control.run, file.path, position, length, crc, recast
FROM entry LEFT JOIN file ON file.id = entry.file LEFT JOIN control ON control.id = entry.control
WHERE stream = :stream AND partition = :partition AND start < :end AND start >= coalesce(
    (SELECT max(start) FROM entry WHERE stream = :stream AND partition = :partition AND start <= :start), 0)
ORDER BY start
"""


def resolve(
    connection: sqlite3.Connection, stream: StreamRow, partition: int, start: int | None, end: int | None
) -> list[Ref]:
    """The ranges that hold the offsets from `start` (None: the oldest) up to, not including, `end` (None: the head).

    Raises `OffsetOutOfRange` if some of them are not there.
    """
    oldest, head = bounds(connection, stream, partition)
    first = oldest if start is None else start
    last = head if end is None else end
    if first < oldest or last > head or first > head:
        raise OffsetOutOfRange.of_range(stream.name, partition, first, end, oldest, head)
    if first >= last:
        return []
    values = {"stream": stream.id, "partition": partition, "start": first, "end": last}
    refs: list[Ref] = []
    for begin, count, run, file, position, length, crc, recast in connection.execute(_ENTRIES, values):
        skip = max(first - begin, 0)
        take = min(last - begin, count) - skip
        if run is not None:
            whole = take == count
            refs.append(
                {"ctl": json.loads(run) if whole else parsed_run(run)[skip : skip + take].to_json(), "o": begin + skip}
            )
            continue
        ref = {"f": file, "b": position, "n": length, "crc": crc, "s": skip, "c": take, "o": begin + skip}
        if recast and stream.schema is not None:
            ref["as"] = stream.schema.hex()
        refs.append(ref)
    return refs


@lru_cache(maxsize=256)
def parsed_run(text: str) -> ControlRun:
    """A run as it lies in the index. Many partitions share one, so it is parsed once."""
    return ControlRun.from_json(json.loads(text))


def ends(connection: sqlite3.Connection, stream: StreamRow) -> list[bool]:
    """Per partition whether its last control message is an end of stream."""
    statement = """
        SELECT control.ends FROM entry JOIN control ON control.id = entry.control
        WHERE stream = ? AND partition = ? AND entry.control IS NOT NULL ORDER BY start DESC LIMIT 1
    """
    rows = [connection.execute(statement, (stream.id, p)).fetchone() for p in range(stream.partitions)]
    return [row is not None and bool(row[0]) for row in rows]


def first_entry_at(
    connection: sqlite3.Connection, stream: StreamRow, partition: int, column: str, timestamp: int, from_offset: int
) -> tuple[int, int, str | None] | None:
    """(start, count, time column) of the first entry at `from_offset` or later whose `column` reaches `timestamp`."""
    assert column in ("appended", "max_time")
    statement = f"""
        SELECT start, count, time_column FROM entry
        WHERE stream = ? AND partition = ? AND start + count > ? AND {column} >= ? ORDER BY start LIMIT 1
    """
    row: tuple[int, int, str | None] | None = connection.execute(
        statement, (stream.id, partition, from_offset, timestamp)
    ).fetchone()
    return row


def has_event_times(connection: sqlite3.Connection, stream: StreamRow, partition: int) -> bool:
    statement = """
        SELECT EXISTS (SELECT 1 FROM entry WHERE stream = ? AND partition = ? AND file IS NOT NULL)
            <= EXISTS (SELECT 1 FROM entry WHERE stream = ? AND partition = ? AND time_column IS NOT NULL)
    """
    key = (stream.id, partition)
    return bool(connection.execute(statement, (*key, *key)).fetchone()[0])
