"""The index of a log: one SQLite database, and connections to it that threads and forks can not mix up.

Journal: WAL, so that readers and one writer never wait for each other. `synchronous=FULL`: a commit is on the disk when
it returns, also after a power failure; it costs 0.17 ms instead of 0.01 ms here, and Spark's checkpoint, which may not
be ahead of the log, is not rewound by a crash of the machine either.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workbench.errors import LogUnavailable
from workbench.systems.log._errors import BUSY_SECONDS, translated

VERSION = 1
"""Written to `user_version`. A database of a later version is not touched."""

APPLICATION_ID = 0x54494445
"""Written to `application_id` ("TIDE"), so that a log is told from any other database."""

_SCHEMA = """
CREATE TABLE stream (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, partitions INTEGER NOT NULL,
    schema BLOB, created INTEGER NOT NULL);
CREATE TABLE partition (stream INTEGER NOT NULL, partition INTEGER NOT NULL, oldest INTEGER NOT NULL,
    head INTEGER NOT NULL, appended INTEGER NOT NULL, PRIMARY KEY (stream, partition)) WITHOUT ROWID;
CREATE TABLE file (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE);
CREATE TABLE control (id INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL, ends INTEGER NOT NULL);
CREATE TABLE entry (stream INTEGER NOT NULL, partition INTEGER NOT NULL, start INTEGER NOT NULL,
    count INTEGER NOT NULL, appended INTEGER NOT NULL, control INTEGER, file INTEGER, position INTEGER,
    length INTEGER, crc INTEGER, recast INTEGER, time_column TEXT, min_time INTEGER, max_time INTEGER,
    PRIMARY KEY (stream, partition, start)) WITHOUT ROWID;
CREATE INDEX entry_of_file ON entry (file) WHERE file IS NOT NULL;
CREATE INDEX entry_of_control ON entry (stream, partition, start, control) WHERE control IS NOT NULL;
CREATE INDEX control_of_entry ON entry (control) WHERE control IS NOT NULL;
CREATE TABLE committed (writer TEXT NOT NULL, batch INTEGER NOT NULL, PRIMARY KEY (writer, batch)) WITHOUT ROWID;
CREATE TABLE epoch (application TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE metadata (namespace TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (namespace, key));
"""


class _Connection(sqlite3.Connection):
    """A connection that can be held weakly."""


_open: weakref.WeakSet[_Connection] = weakref.WeakSet()
_while_forking: list[_Connection] = []


def _keep_over_fork() -> None:
    _while_forking.extend(_open)


def _forget_after_fork_in_parent() -> None:
    _while_forking.clear()


def _abandon_in_child() -> None:
    # A connection of the parent must be neither used nor closed in a child: closing could remove the journal that the
    # parent writes. So it gets a reference that nothing ever gives back.
    for connection in _while_forking:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
    _while_forking.clear()
    _open.clear()


os.register_at_fork(
    before=_keep_over_fork, after_in_parent=_forget_after_fork_in_parent, after_in_child=_abandon_in_child
)


class Database:
    """Connections to one database, one for each process and thread, opened when first used. Picklable."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._local = threading.local()

    def __getstate__(self) -> Path:
        return self.path

    def __setstate__(self, path: Path) -> None:
        self.__init__(path)  # type: ignore[misc]

    def connection(self) -> sqlite3.Connection:
        """This thread's connection, in autocommit mode. Raises `LogUnavailable`."""
        kept: tuple[int, _Connection] | None = getattr(self._local, "kept", None)
        if kept is None or kept[0] != os.getpid():
            with translated(self.path):
                kept = (os.getpid(), _opened(self.path))
            self._local.kept = kept
        return kept[1]

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection whose reads all see the same state; inside `writing`, that one."""
        connection = self.connection()
        if connection.in_transaction:
            yield connection
            return
        with translated(self.path):
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.execute("ROLLBACK")

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: committed at the end, rolled back if anything is raised. Inside another one, part of it."""
        connection = self.connection()
        if connection.in_transaction:
            yield connection
            return
        with translated(self.path):
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                # SQLite itself has rolled back after some errors, a full disk among them.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close this thread's connection; the next use opens a new one."""
        kept = getattr(self._local, "kept", None)
        if kept is not None and kept[0] == os.getpid():
            kept[1].close()
        self._local.kept = None


def create(path: Path) -> None:
    """Make the database if it is not there, or find that it is one. Several processes may do so at once."""
    with translated(path), open(path.parent / ".create.lock", "ab") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        connection = _connected(path)
        try:
            version = _checked_version(connection, path)
            if version == 0:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.executescript(
                    f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA application_id = {APPLICATION_ID};"
                    f"PRAGMA user_version = {VERSION}; COMMIT;"
                )
        finally:
            connection.close()


def _opened(path: Path) -> _Connection:
    if not path.exists():
        raise LogUnavailable.not_there(str(path.parent))
    connection = _connected(path)
    if _checked_version(connection, path) == 0:
        connection.close()
        raise LogUnavailable.not_there(str(path.parent))
    _open.add(connection)
    return connection


def _connected(path: Path) -> _Connection:
    # Not bound to the thread that opened it: a thread that has ended leaves the closing to whoever collects garbage.
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, factory=_Connection
    )
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _checked_version(connection: sqlite3.Connection, path: Path) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    application = int(connection.execute("PRAGMA application_id").fetchone()[0])
    if application != APPLICATION_ID and connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise LogUnavailable.foreign(str(path))
    if version > VERSION:
        raise LogUnavailable.newer(str(path), version, VERSION)
    return version
