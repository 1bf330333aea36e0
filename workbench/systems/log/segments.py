"""Segment files: record batches one after the other, each a complete Arrow IPC stream in a byte range of its own.

A file is written by one attempt of one task and never changed. The index names ranges of it, so that a reader maps just
the range that it needs, checks it once, and copies nothing. Files lie in numbered directories below `segments`; their
names are random, so that two attempts never meet. This module opens no index: executors need nothing else.
"""

from __future__ import annotations

import fcntl
import os
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from workbench.errors import CorruptSegment, UnknownColumn
from workbench.systems.log import schemas
from workbench.systems.log._errors import translated
from workbench.times import event_times, time_range

_DIRECTORIES = 256
_ALIGNMENT = 64
_LARGEST_ROWS = 1 << 18
_LARGEST_BYTES = 16 << 20
"""A range is checked as a whole, so this bounds what a reader must touch, and map, to read a single row."""

_VERIFIED_KEPT = 65_536
_verified: OrderedDict[tuple[str, int, int, int], None] = OrderedDict()


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Rows in a segment file that belong to no stream yet. `StreamLog.commit` makes them part of one.

    `file` is relative to the directory of segments; `position` and `length` are bytes; the times are milliseconds since
    the epoch, None where the rows have no event time. `schema` is hexadecimal Arrow IPC.
    """

    stream: str
    partition: int
    file: str
    position: int
    length: int
    crc: int
    rows: int
    schema: str
    time_column: str | None = None
    min_time: int | None = None
    max_time: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StagedRows:
        return cls(**data)

    def ref(self) -> dict[str, Any]:
        """What `read_ref` takes, as long as the rows have no offset."""
        return {"f": self.file, "b": self.position, "n": self.length, "crc": self.crc, "s": 0, "c": self.rows, "o": 0}


class SegmentWriter:
    """Stages rows in one file that nobody else knows. Nothing is created before the first row.

    While it is open its file is locked, so that no sweep takes it for left over. As a context manager it discards what
    was not closed. Raises `DiskFull` and `LogUnavailable`.
    """

    def __init__(self, segments: str | os.PathLike[str]) -> None:
        self._segments = Path(segments)
        name = uuid.uuid4()
        self._file = f"{name.int % _DIRECTORIES:03d}/{name.hex}.arrow"
        self._path = self._segments / self._file
        self._descriptor: int | None = None
        self._position = 0
        self._staged: list[StagedRows] = []

    def add(
        self,
        stream: str,
        partition: int,
        rows: pa.Table | pa.RecordBatch,
        time_column: str | None = None,
        schema: pa.Schema | None = None,
    ) -> None:
        """Write rows for one partition; no rows, nothing written.

        Giving the stream's `schema` (None before its first rows) casts the rows here, where many can work at once, and
        not at the commit. Raises `SchemaMismatch`, `UnknownColumn` or `InvalidTime` (time column).
        """
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        if not table.num_rows:
            return
        table = schemas.conform(table, stream, schema)
        if time_column is not None and time_column not in table.column_names:
            raise UnknownColumn.from_known(time_column, table.column_names, f"the rows for {stream!r}")
        encoded_schema = schemas.to_bytes(table.schema).hex()
        at_once = max(1, min(_LARGEST_ROWS, _LARGEST_BYTES * table.num_rows // max(1, table.nbytes)))
        for first in range(0, table.num_rows, at_once):
            part = table.slice(first, at_once)
            times = None if time_column is None else time_range(event_times(part.column(time_column), time_column))
            position, length, crc = self._write(_encoded(part))
            self._staged.append(
                StagedRows(
                    stream, partition, self._file, position, length, crc, part.num_rows, encoded_schema, time_column,
                    *(times or (None, None)),
                )
            )  # fmt: skip

    def close(self) -> list[StagedRows]:
        """Bring the file to the disk and return what it holds, in the order it was added."""
        if self._descriptor is not None:
            with translated(self._path):
                os.fsync(self._descriptor)
                self._release()
                _sync_directory(self._path.parent)
        return self._staged

    def discard(self) -> None:
        """Remove the file."""
        self._release()
        self._path.unlink(missing_ok=True)
        self._staged = []

    def __enter__(self) -> SegmentWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            self.discard()

    def _write(self, data: pa.Buffer) -> tuple[int, int, int]:
        with translated(self._path):
            if self._descriptor is None:
                self._descriptor = self._created()
            padding = -self._position % _ALIGNMENT
            self._write_all(memoryview(bytes(padding)))
            position = self._position
            self._write_all(memoryview(data))
        return position, data.size, zlib.crc32(data)

    def _created(self) -> int:
        if not self._path.parent.is_dir():
            self._path.parent.mkdir(exist_ok=True)
            _sync_directory(self._segments)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return descriptor

    def _write_all(self, data: memoryview) -> None:
        assert self._descriptor is not None
        while data:
            written = os.write(self._descriptor, data)
            self._position += written
            data = data[written:]

    def _release(self) -> None:
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)


def read_ref(
    segments: str | os.PathLike[str], ref: Mapping[str, Any], stream: str | None = None, partition: int | None = None
) -> pa.Table:
    """The rows that a range of `StreamLog.resolve` names, mapped into memory, not copied.

    Raises `CorruptSegment` naming the file and offset, and `stream` and `partition` if given, when the file is gone,
    too short or not what was written.
    """
    path = Path(segments) / ref["f"]
    try:
        table = _mapped(path, ref["b"], ref["n"], ref["crc"])
    except FileNotFoundError as error:
        raise CorruptSegment.missing(str(path), ref["o"], stream, partition) from error
    except (OSError, pa.ArrowException, ValueError) as error:
        raise CorruptSegment.damaged(str(error), str(path), ref["o"], stream, partition) from error
    first, count = ref["s"], ref["c"]
    if first or count != table.num_rows:
        if first + count > table.num_rows:
            why = f"{table.num_rows} rows where {first + count} were written"
            raise CorruptSegment.damaged(why, str(path), ref["o"], stream, partition)
        table = table.slice(first, count)
    if "as" in ref:
        table = table.cast(schemas.from_bytes(bytes.fromhex(ref["as"])))
    return table


def _mapped(path: Path, position: int, length: int, crc: int) -> pa.Table:
    with pa.memory_map(str(path)) as file:
        if position + length > file.size():
            raise ValueError(f"the file ends at byte {file.size()}, {position + length} were written")
        file.seek(position)
        data = file.read_buffer(length)
    # A batch that is read in many small ranges is checked once by each process, not once for each range.
    key = (str(path), position, length, crc)
    if key not in _verified:
        found = zlib.crc32(data)
        if found != crc:
            raise ValueError(f"its checksum is {found:08x}, written was {crc:08x}")
        _verified[key] = None
        if len(_verified) > _VERIFIED_KEPT:
            _verified.popitem(last=False)
    return pa.ipc.open_stream(data).read_all()


def _encoded(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue()


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
