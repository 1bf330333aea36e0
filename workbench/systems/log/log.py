"""The embedded system of streams: a directory with segment files and one SQLite index."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from workbench.errors import LogUnavailable, PartitionCountMismatch, StaleEpoch, StreamEnded, StreamExists
from workbench.metadata import SqliteMetadataStore
from workbench.names import checked_name
from workbench.systems.log import database, index
from workbench.systems.log._errors import translated
from workbench.systems.log.commits import Appends, Commit
from workbench.systems.log.locks import LogLock
from workbench.systems.log.segments import StagedRows
from workbench.systems.log.stream import Stream

_MOST_PARTITIONS = 65_536
_STAGED_SECONDS = 3600.0
"""No commit takes longer than this after its rows were staged."""


class StreamLog:
    """Streams in a directory: `log.sqlite` (the index), `segments/` (rows) and `locks/`.

    Cheap to make and picklable; usable from several threads and processes at once, forked ones included. What `commit`
    and `Stream.append` have done survives the death of the process and of the machine. With `create=False` the log must
    be there. Raises `LogUnavailable`, here and everywhere, when files can not be used or `directory` is empty text, and
    `DiskFull` when there is no room; then nothing of what was asked for has happened.
    """

    MARKER = "log.sqlite"
    """The file that makes a directory a log."""

    def __init__(self, directory: str | os.PathLike[str], create: bool = True) -> None:
        if not str(directory).strip():
            raise LogUnavailable.without_name()
        self.directory = Path(directory).expanduser().absolute()
        self._database = database.Database(self.directory / self.MARKER)
        with translated(self.directory):
            if create:
                self.segments_directory.mkdir(parents=True, exist_ok=True)
                database.create(self._database.path)
            elif not self._database.path.is_file():
                raise LogUnavailable.not_there(str(self.directory))

    @property
    def segments_directory(self) -> Path:
        """All that executors need of a log."""
        return self.directory / "segments"

    @property
    def metadata(self) -> SqliteMetadataStore:
        """The metadata store, shared with external tools; inside `transaction` it is part of that."""
        return SqliteMetadataStore(self._database)

    def create(self, name: str, partitions: int, *, exist_ok: bool = False) -> Stream:
        """Make a stream. Raises `InvalidName`, `StreamExists`, or `PartitionCountMismatch` (also with `exist_ok`)."""
        checked_name(name)
        if not isinstance(partitions, int) or isinstance(partitions, bool) or not 1 <= partitions <= _MOST_PARTITIONS:
            raise PartitionCountMismatch.not_positive(name, partitions, _MOST_PARTITIONS)
        with self._database.writing() as connection:
            if name in self:
                existing = self.stream(name)
                if not exist_ok:
                    raise StreamExists.with_partitions(name, existing.partitions)
                if existing.partitions != partitions:
                    raise PartitionCountMismatch.of_stream(name, existing.partitions, partitions)
                return existing
            number = connection.execute(
                "INSERT INTO stream (name, partitions, created) VALUES (?, ?, ?)", (name, partitions, _now())
            ).lastrowid
            connection.executemany(
                "INSERT INTO partition (stream, partition, oldest, head, appended) VALUES (?, ?, 0, 0, 0)",
                [(number, partition) for partition in range(partitions)],
            )
            return self.stream(name)

    def stream(self, name: str) -> Stream:
        """Raises `UnknownStream`, listing what is there."""
        with self.reading() as connection:
            return Stream(self, index.find_stream(connection, name, str(self.directory)))

    def streams(self) -> list[str]:
        """The names of all streams, sorted."""
        with self.reading() as connection:
            return index.stream_names(connection)

    def __contains__(self, name: object) -> bool:
        return name in self.streams()

    def resolve(self, name: str, partition: int, start: int | None = None, end: int | None = None) -> list[index.Ref]:
        """Where the messages from offset `start` up to, not including, `end` are: refs in JSON types (see `index.Ref`).

        For the driver; executors give them to `segments.read_ref`. Raises `OffsetOutOfRange`.
        """
        with self.reading() as connection:
            stream = index.find_stream(connection, name, str(self.directory))
            return index.resolve(connection, stream, partition, start, end)

    def commit(
        self,
        writer_key: str,
        batch: int,
        appends: Appends,
        *,
        fence: tuple[str, int] | None = None,
        also: Callable[[sqlite3.Connection], None] | None = None,
        behind_ends: bool = True,
    ) -> bool:
        """Append staged rows and control messages in one transaction, exactly once for each (writer_key, batch).

        Within a partition all rows come first, in the given order, then all control messages in theirs. Returns False,
        and deletes the staged files, if the key was committed before. `fence` is (application, epoch): `StaleEpoch` if
        a later deployment has raised the epoch. `also` may write to the index in the same transaction. Without
        `behind_ends`, rows for a partition that has ended raise `StreamEnded`; several tasks that write one stream each
        say their own end, and go on behind those of others. Whatever is raised, nothing has been appended, and the
        staged rows can be committed again or discarded.
        """
        return self._commit((writer_key, batch), appends, fence, also, behind_ends)

    def commit_staged(self, appends: Appends, *, behind_ends: bool = True) -> None:
        """`commit` without a key: a second call with other staged rows appends again."""
        self._commit(None, appends, None, None, behind_ends)

    def discard(self, staged: Iterable[StagedRows]) -> None:
        """Delete staged files that no commit has made part of a stream."""
        files = sorted({item.file for item in staged})
        if files:
            self._delete_unreferenced([self.segments_directory / file for file in files])

    def sweep(self, older_than: float = _STAGED_SECONDS) -> int:
        """Delete what crashed writers left: files that no stream refers to, that nobody has open for writing, and that
        were last written more than `older_than` seconds ago. Returns how many."""
        limit = time.time() - older_than
        candidates = []
        with translated(self.segments_directory):
            for path in self.segments_directory.glob("*/*.arrow"):
                try:
                    if path.stat().st_mtime <= limit and not _being_written(path):
                        candidates.append(path)
                except FileNotFoundError:
                    continue
        return self._delete_unreferenced(candidates)

    def raise_epoch(self, application: str) -> int:
        """Begin a new deployment: from now on commits fenced by an older epoch are refused. Returns the new epoch."""
        statement = """
            INSERT INTO epoch VALUES (?, 1) ON CONFLICT (application) DO UPDATE SET epoch = epoch + 1 RETURNING epoch
        """
        with self._database.writing() as connection:
            return int(connection.execute(statement, (checked_name(application, "application"),)).fetchone()[0])

    def lock(self, application: str, run_id: str = "") -> LogLock:
        """Make this process the only one that runs `application` on this log. Raises `LogInUse` naming who does."""
        return LogLock(self.directory / "locks", checked_name(application, "application"), run_id)

    def connection(self) -> sqlite3.Connection:
        """This thread's connection to the index, for reading tables of one's own."""
        return self._database.connection()

    def transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        """A transaction that writes to the index; calls of this log and its metadata store inside are part of it."""
        return self._database.writing()

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """A transaction that only reads: all of it sees one state of the log."""
        return self._database.reading()

    def close(self) -> None:
        """Close this thread's connection. The log stays usable."""
        self._database.close()

    def trim_partition(self, stream: index.StreamRow, partition: int, before: int) -> int:
        """See `Stream.trim`."""
        with self._database.writing() as connection:
            kept_from, removed = self._trimmed(connection, stream, partition, before)
        # After the commit: a crash in between leaves files for `sweep`, never entries without a file.
        for path in removed:
            path.unlink(missing_ok=True)
        return kept_from

    def _trimmed(
        self, connection: sqlite3.Connection, stream: index.StreamRow, partition: int, before: int
    ) -> tuple[int, list[Path]]:
        """Forget messages inside a transaction: the oldest offset kept, and the files that nobody refers to any more."""
        oldest, head = index.bounds(connection, stream, partition)
        kept_from = min(max(before, oldest), head)
        key = (stream.id, partition)
        connection.execute("UPDATE partition SET oldest = ? WHERE stream = ? AND partition = ?", (kept_from, *key))
        files = connection.execute(
            "DELETE FROM entry WHERE stream = ? AND partition = ? AND start + count <= ? RETURNING file, control",
            (*key, kept_from),
        ).fetchall()
        connection.executemany(
            "DELETE FROM control WHERE id = ? AND NOT EXISTS (SELECT 1 FROM entry WHERE control = control.id)",
            [(control,) for control in {control for _, control in files if control is not None}],
        )
        removed = [
            self.segments_directory / path
            for file in {file for file, _ in files if file is not None}
            for (path,) in connection.execute(
                "DELETE FROM file WHERE id = ? AND NOT EXISTS (SELECT 1 FROM entry WHERE file = file.id) RETURNING path",
                (file,),
            ).fetchall()
        ]
        return kept_from, removed

    def renew(self, name: str, partitions: int) -> Stream:
        """Make a stream as if it were new, if it is there: without messages and schema, with so many partitions.

        The offsets of a partition go on where they were. For intermediate streams of which nothing is needed any more,
        after a drain.
        """
        if name not in self:
            return self.create(name, partitions)
        removed: list[Path] = []
        with self._database.writing() as connection:
            stream = index.find_stream(connection, name, str(self.directory))
            for partition in range(stream.partitions):
                head = index.bounds(connection, stream, partition)[1]
                removed += self._trimmed(connection, stream, partition, head)[1]
            connection.execute("UPDATE stream SET schema = NULL, partitions = ? WHERE id = ?", (partitions, stream.id))
            connection.execute("DELETE FROM partition WHERE stream = ? AND partition >= ?", (stream.id, partitions))
            connection.executemany(
                "INSERT INTO partition (stream, partition, oldest, head, appended) VALUES (?, ?, 0, 0, 0)",
                [(stream.id, partition) for partition in range(stream.partitions, partitions)],
            )
        for path in removed:
            path.unlink(missing_ok=True)
        return self.stream(name)

    def __repr__(self) -> str:
        return f"StreamLog({str(self.directory)!r})"

    def _commit(
        self,
        key: tuple[str, int] | None,
        appends: Appends,
        fence: tuple[str, int] | None,
        also: Callable[[sqlite3.Connection], None] | None,
        behind_ends: bool,
    ) -> bool:
        staged = [append for append in appends if isinstance(append, StagedRows)]
        commit: Commit | None = None
        try:
            with self._database.writing() as connection:
                if fence is not None:
                    _check_fence(connection, *fence)
                if key is not None and not _first_time(connection, *key):
                    commit = None
                else:
                    if not behind_ends:
                        _check_open(connection, staged, str(self.directory))
                    commit = Commit(connection, self.segments_directory, str(self.directory))
                    commit.apply(appends)
                    if also is not None:
                        also(connection)
        except BaseException:
            for writer in commit.rewritten if commit is not None else ():
                writer.discard()
            raise
        self.discard(staged if commit is None else commit.replaced)
        return commit is not None

    def _delete_unreferenced(self, paths: Sequence[Path]) -> int:
        removed = 0
        # With the write lock: a commit finds the file either referenced here or gone there, never half.
        with self._database.writing() as connection:
            for path in paths:
                file = path.relative_to(self.segments_directory).as_posix()
                if connection.execute("SELECT 1 FROM file WHERE path = ?", (file,)).fetchone() is None:
                    removed += path.exists()
                    path.unlink(missing_ok=True)
        return removed


def _check_fence(connection: sqlite3.Connection, application: str, epoch: int) -> None:
    row = connection.execute("SELECT epoch FROM epoch WHERE application = ?", (application,)).fetchone()
    if row is not None and row[0] > epoch:
        raise StaleEpoch.of_application(application, epoch, row[0])


def _check_open(connection: sqlite3.Connection, staged: Iterable[StagedRows], where: str) -> None:
    for name in sorted({rows.stream for rows in staged}):
        ended = index.ends(connection, index.find_stream(connection, name, where))
        if any(rows.stream == name and rows.partition < len(ended) and ended[rows.partition] for rows in staged):
            raise StreamEnded.already(name)


def _first_time(connection: sqlite3.Connection, writer_key: str, batch: int) -> bool:
    return connection.execute("INSERT OR IGNORE INTO committed VALUES (?, ?)", (writer_key, batch)).rowcount > 0


def _being_written(path: Path) -> bool:
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _now() -> int:
    return time.time_ns() // 1_000_000
