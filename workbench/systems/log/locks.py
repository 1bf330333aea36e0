"""One run of an application at a time: a lock that the operating system gives back when its holder dies."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
import weakref
from hashlib import sha256
from pathlib import Path
from types import TracebackType

from workbench.errors import LogInUse
from workbench.systems.log._errors import translated

_held: weakref.WeakSet[LogLock] = weakref.WeakSet()

_ASKING_SECONDS = 0.3


class LogLock:
    """Holds the lock of an application on a log until `release`, the end of a `with`, or the death of the process.

    Forked children do not hold it. Raises `LogInUse` naming the holder if it is taken, also by this process.
    """

    def __init__(self, directory: Path, application: str, run_id: str = "") -> None:
        self.application = application
        # Named by a digest: names of applications are data, never paths.
        path = directory / f"{sha256(application.encode()).hexdigest()[:24]}.lock"
        with translated(path):
            directory.mkdir(exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            if not _locked(descriptor):
                holder = _holder(os.pread(descriptor, 4096, 0))
                os.close(descriptor)
                raise LogInUse.by(application, holder, str(directory.parent))
            content = {
                "pid": os.getpid(),
                "host": socket.gethostname(),
                "run": run_id,
                "application": application,
                "since": time.time_ns() // 1_000_000,
            }
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(content).encode(), 0)
        self._descriptor: int | None = descriptor
        _held.add(self)

    def release(self) -> None:
        """Give the lock back; a second time does nothing."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)

    def __enter__(self) -> LogLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            self.release()


def _locked(descriptor: int) -> bool:
    """Take the lock, if it is free within moments: somebody may just be asking whether it is held."""
    deadline = time.monotonic() + _ASKING_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_ASKING_SECONDS / 10)


def _release_in_child() -> None:
    # The lock belongs to the open file, which a child shares: it would outlive its parent's death.
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_release_in_child)


def _holder(content: bytes) -> str:
    try:
        holder = json.loads(content)
        run = f" (run {holder['run']})" if holder["run"] else ""
        return f"process {holder['pid']} on {holder['host']}{run}"
    except (ValueError, KeyError, TypeError):
        return "a process that is just starting"
