"""From what SQLite and the operating system say to the errors of the log."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workbench.errors import DiskFull, LogUnavailable

BUSY_SECONDS = 60.0
"""How long a writer waits for others."""

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_ALLOWED = {errno.EROFS, errno.EACCES, errno.EPERM}


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn the errors of SQLite and the operating system about `path` into `LogUnavailable` and `DiskFull`."""
    try:
        yield
    except LogUnavailable:
        raise
    except sqlite3.Error as error:
        raise of_sqlite(error, path) from error
    except OSError as error:
        if error.errno is None:
            raise
        raise of_os(error, path) from error


def of_sqlite(error: sqlite3.Error, path: Path) -> Exception:
    """Programming errors (wrong SQL, closed connections) come back as they are."""
    name = getattr(error, "sqlite_errorname", "")
    match name.split("_")[1] if name.count("_") else "":
        case "FULL":
            return DiskFull.at(str(path), "the disk or the quota is full")
        case "READONLY" | "PERM" | "AUTH":
            return LogUnavailable.read_only(str(path), str(error))
        case "CORRUPT" | "NOTADB" | "FORMAT":
            return LogUnavailable.damaged(str(path), str(error))
        case "BUSY" | "LOCKED":
            return LogUnavailable.busy(str(path), BUSY_SECONDS)
        case "CANTOPEN" | "IOERR" | "NOLFS" | "PROTOCOL":
            return LogUnavailable.failed(str(path), f"{error} ({name})")
    return error


def of_os(error: OSError, path: Path) -> LogUnavailable:
    why = error.strerror or str(error)
    if error.errno in _NO_ROOM:
        return DiskFull.at(str(error.filename or path), why)
    if error.errno in _NOT_ALLOWED:
        return LogUnavailable.read_only(str(error.filename or path), why)
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return LogUnavailable.not_a_directory(str(error.filename or path))
    if error.errno == errno.ENOENT:
        return LogUnavailable.not_there(str(error.filename or path))
    return LogUnavailable.failed(str(error.filename or path), why)
