"""A private temporary directory that is gone when its owner is, however the owner ended."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import IO

_LOCK = "lock"
_SETTLED_SECONDS = 60


class PrivateDirectory:
    """A directory that only this user can read. Its owner holds a lock in it for as long as it lives."""

    def __init__(self, path: Path, lock: IO[bytes]) -> None:
        self.path = path
        self._lock = lock
        self._owner = os.getpid()

    @classmethod
    def create(cls, prefix: str) -> PrivateDirectory:
        """Make one, and remove those that killed owners left behind."""
        path = Path(tempfile.mkdtemp(prefix=prefix)).resolve()
        lock = (path / _LOCK).open("wb")
        fcntl.flock(lock, fcntl.LOCK_EX)
        for other in path.parent.glob(f"{prefix}*"):
            if other != path:
                _remove_if_abandoned(other)
        return cls(path, lock)

    def remove(self) -> None:
        """Remove it with all it holds. Idempotent; does nothing in a forked child, whose parent still needs it."""
        if self._owner != os.getpid():
            return
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _remove_if_abandoned(path: Path) -> None:
    # A directory that was made just now may not be locked yet.
    try:
        if time.time() - path.stat().st_mtime < _SETTLED_SECONDS or path.stat().st_uid != os.getuid():
            return
        with (path / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
    except OSError:
        return
