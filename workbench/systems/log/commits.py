"""What happens inside the transaction of a commit: rows and control messages become part of their streams."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import pyarrow as pa

from workbench.errors import UnknownPartition, UnstagedRows
from workbench.messages import ControlRun, MessageType
from workbench.systems.log import index, schemas
from workbench.systems.log.segments import SegmentWriter, StagedRows, read_ref


@dataclass(frozen=True, slots=True)
class ControlAppend:
    """Control messages for one partition of a stream, or (None) the same for all of them."""

    stream: str
    partition: int | None
    run: ControlRun


Appends = Sequence[StagedRows | ControlAppend]

_ROWS = """
INSERT INTO entry (stream, partition, start, count, appended, file, position, length, crc, recast, time_column,
    min_time, max_time) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_CONTROLS = "INSERT INTO entry (stream, partition, start, count, appended, control) VALUES (?, ?, ?, ?, ?, ?)"


@dataclass
class Commit:
    """One transaction's appends. Offsets are given out here: all rows of a partition first, then its control messages."""

    connection: sqlite3.Connection
    segments: Path
    where: str
    now: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    replaced: list[StagedRows] = field(default_factory=list)
    """Staged rows that were written anew to fit their stream; what was staged is no longer needed."""
    rewritten: list[SegmentWriter] = field(default_factory=list)
    _streams: dict[str, index.StreamRow] = field(default_factory=dict)
    _heads: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    _files: dict[str, int] = field(default_factory=dict)

    def apply(self, appends: Appends) -> None:
        """Raises `UnknownStream`, `UnknownPartition`, `SchemaMismatch` or `UnstagedRows`; then nothing is to be kept."""
        self._add_rows([append for append in appends if isinstance(append, StagedRows)])
        controls = [append for append in appends if isinstance(append, ControlAppend) and len(append.run)]
        for name, of_stream in groupby(
            sorted(controls, key=lambda append: append.stream), lambda append: append.stream
        ):
            self._add_controls(self._stream(name), list(of_stream))
        self.connection.executemany(
            "UPDATE partition SET head = ?, appended = ? WHERE stream = ? AND partition = ?",
            [(head, appended, *key) for key, (head, appended) in self._heads.items()],
        )

    def _add_rows(self, staged: list[StagedRows]) -> None:
        rows = []
        for item in staged:
            stream = self._stream(item.stream)
            if not 0 <= item.partition < stream.partitions:
                raise UnknownPartition.from_count(stream.name, item.partition, stream.partitions)
            for fitting, recast in self._fitted(item):
                start, appended = self._take(stream.id, fitting.partition, fitting.rows)
                rows.append(
                    (stream.id, fitting.partition, start, fitting.rows, appended, self._file(fitting.file),
                     fitting.position, fitting.length, fitting.crc, recast, fitting.time_column, fitting.min_time,
                     fitting.max_time)
                )  # fmt: skip
        self.connection.executemany(_ROWS, rows)

    def _fitted(self, staged: StagedRows) -> list[tuple[StagedRows, bool]]:
        """The rows in the stream's schema, and whether a reader has to cast columns of nothing but nulls."""
        stream = self._stream(staged.stream)
        encoded = bytes.fromhex(staged.schema)
        if stream.schema is None:
            self._set_schema(stream, encoded)
            return [(staged, False)]
        if stream.schema == encoded:
            return [(staged, False)]
        rows, have = schemas.from_bytes(encoded), schemas.from_bytes(stream.schema)
        schemas.check_castable(stream.name, have, rows)
        target = schemas.refined(have, rows)
        if not target.equals(have):
            self._set_schema(stream, schemas.to_bytes(target))
            self.connection.execute("UPDATE entry SET recast = 1 WHERE stream = ? AND file IS NOT NULL", (stream.id,))
        if rows.equals(target):
            return [(staged, False)]
        if _only_nulls_differ(rows, target):
            return [(staged, True)]
        self._check_there(staged.file)
        writer = SegmentWriter(self.segments)
        self.rewritten.append(writer)
        table = read_ref(self.segments, staged.ref(), staged.stream, staged.partition)
        writer.add(staged.stream, staged.partition, table, staged.time_column, target)
        self.replaced.append(staged)
        return [(item, False) for item in writer.close()]

    def _add_controls(self, stream: index.StreamRow, appends: list[ControlAppend]) -> None:
        addressed = {append.partition for append in appends if append.partition is not None}
        for partition in addressed:
            index.check_partition(stream, partition)
        # Partitions that nobody addressed alone get the very same messages, so one run serves them all.
        shared = tuple(append.run for append in appends if append.partition is None)
        kept: dict[tuple[int, ...], tuple[int, int]] = {}
        rows = []
        for partition in range(stream.partitions):
            runs = shared
            if partition in addressed:
                runs = tuple(append.run for append in appends if append.partition in (None, partition))
            if not runs:
                continue
            key = (len(shared), -1) if runs is shared else tuple(map(id, runs))
            if key not in kept:
                kept[key] = self._keep(runs)
            control, count = kept[key]
            start, appended = self._take(stream.id, partition, count)
            rows.append((stream.id, partition, start, count, appended, control))
        self.connection.executemany(_CONTROLS, rows)

    def _keep(self, runs: tuple[ControlRun, ...]) -> tuple[int, int]:
        run = runs[0] if len(runs) == 1 else ControlRun.from_messages(message for run in runs for message in run)
        text = json.dumps(run.to_json(), separators=(",", ":"))
        ends = run.types[-1] == MessageType.END_OF_STREAM
        cursor = self.connection.execute("INSERT INTO control (run, ends) VALUES (?, ?)", (text, ends))
        assert cursor.lastrowid is not None
        return cursor.lastrowid, len(run)

    def _take(self, stream: int, partition: int, count: int) -> tuple[int, int]:
        """Give out `count` offsets: the first, and the time of appending, which never goes back within a partition."""
        key = (stream, partition)
        if key not in self._heads:
            statement = "SELECT head, appended FROM partition WHERE stream = ? AND partition = ?"
            self._heads[key] = self.connection.execute(statement, key).fetchone()
        head, appended = self._heads[key]
        appended = max(appended, self.now)
        self._heads[key] = (head + count, appended)
        return head, appended

    def _file(self, path: str) -> int:
        if path not in self._files:
            self._check_there(path)
            self.connection.execute("INSERT OR IGNORE INTO file (path) VALUES (?)", (path,))
            self._files[path] = self.connection.execute("SELECT id FROM file WHERE path = ?", (path,)).fetchone()[0]
        return self._files[path]

    def _check_there(self, path: str) -> None:
        if not (self.segments / path).is_file():
            raise UnstagedRows.of_file(path)

    def _stream(self, name: str) -> index.StreamRow:
        if name not in self._streams:
            self._streams[name] = index.find_stream(self.connection, name, self.where)
        return self._streams[name]

    def _set_schema(self, stream: index.StreamRow, schema: bytes) -> None:
        self.connection.execute("UPDATE stream SET schema = ? WHERE id = ?", (schema, stream.id))
        self._streams[stream.name] = stream._replace(schema=schema)


def _only_nulls_differ(rows: pa.Schema, target: pa.Schema) -> bool:
    return rows.names == target.names and all(
        pa.types.is_null(field.type) or field.type.equals(target.field(field.name).type) for field in rows
    )
