"""A private temporary directory that is gone when its owner is, however the owner ended."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
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
        unlocked = Path(tempfile.mkdtemp(prefix=f".{prefix}")).resolve()
        lock = (unlocked / _LOCK).open("wb")
        fcntl.flock(lock, fcntl.LOCK_EX)
        # It gets its name when it has its lock: whatever has such a name and no lock was left behind, however new it is.
        path = unlocked.rename(unlocked.with_name(unlocked.name[1:]))
        for other in (*path.parent.glob(f"{prefix}*"), *path.parent.glob(f".{prefix}*")):
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
    try:
        state = path.lstat()
        if state.st_uid != os.getuid() or not stat.S_ISDIR(state.st_mode):
            return
        has_lock = (path / _LOCK).exists()
        if (path.name.startswith(".") or not has_lock) and time.time() - state.st_mtime < _SETTLED_SECONDS:
            return  # on the way to its lock, or being removed
        with (path / _LOCK).open("rb") if has_lock else contextlib.nullcontext() as lock:
            if lock is not None:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
    except OSError:
        return
