"""The loop of the server: forks a child for each request, tells its client how it ends, and ends what is left over."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
import time
from dataclasses import dataclass, field

from workbench.session.forkserver.client import NUMBER, REFUSED
from workbench.session.forkserver.request import Interpreter, Request

_LEAVE_SECONDS = 3.0
_CLIENT_SECONDS = 5.0


@dataclass
class _Child:
    pid: int
    connection: socket.socket | None
    ends: list[tuple[float, signal.Signals]] = field(default_factory=list)
    """Signals that it still gets, and when: seconds of the monotonic clock."""


class Server:
    """Serves `listener` as `interpreter` until the other end of the pipe `lifeline` is closed and no child is left."""

    def __init__(self, listener: socket.socket, lifeline: int, interpreter: Interpreter) -> None:
        self._listener: socket.socket | None = listener
        self._lifeline = lifeline
        self._interpreter = interpreter
        self._children: dict[int, _Child] = {}
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = os.pipe()

    def serve(self) -> Request | None:
        """Serve. Returns twice and more: None in the server at its end, and in each child what it is to become."""
        for end in (self._woken, self._waker):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        assert self._listener is not None
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._lifeline, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        while self._listener is not None or self._children:
            for key, _ in self._selector.select(self._patience()):
                if key.fileobj is self._listener:
                    request = self._accept()
                    if request is not None:
                        return request
                elif key.fileobj == self._lifeline:
                    self._leave()
                elif key.fileobj == self._woken:
                    self._reap()
                elif isinstance(key.data, _Child):
                    self._abandoned(key.data)
            self._end_overdue()
        return None

    def _accept(self) -> Request | None:
        """Take a request and fork. Returns the request in the child only."""
        assert self._listener is not None
        connection, _ = self._listener.accept()
        try:
            connection.settimeout(_CLIENT_SECONDS)
            request = Request.receive(connection)
        except (OSError, EOFError, ValueError):
            connection.close()
            return None
        try:
            fits = request.is_module and request.interpreter == self._interpreter
            pid = os.fork() if fits else REFUSED
        except OSError:
            # No memory or no process left: then the client finds out whether Python starts.
            fits, pid = False, REFUSED
        if fits and pid == 0:
            self._forget(connection)
            return request
        request.close()
        # A client that is gone is noticed when its connection is read.
        with contextlib.suppress(OSError):
            connection.sendall(pid.to_bytes(NUMBER, sys.byteorder, signed=True))
        if pid == REFUSED:
            connection.close()
        else:
            child = self._children[pid] = _Child(pid, connection)
            self._selector.register(connection, selectors.EVENT_READ, child)
        return None

    def _forget(self, connection: socket.socket) -> None:
        """In a child: drop what is the server's."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for child in self._children.values():
            if child.connection is not None:
                child.connection.close()
        self._children.clear()
        connection.close()
        assert self._listener is not None
        self._listener.close()
        for end in (self._woken, self._waker):
            os.close(end)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._woken, 512):
                pass
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            child = self._children.pop(pid)
            if child.connection is not None:
                self._selector.unregister(child.connection)
                with contextlib.suppress(OSError):
                    code = os.waitstatus_to_exitcode(status)
                    child.connection.sendall(code.to_bytes(NUMBER, sys.byteorder, signed=True))
                child.connection.close()

    def _abandoned(self, child: _Child) -> None:
        """The client is gone, as Spark ends a process: by a signal to what it started."""
        assert child.connection is not None
        self._selector.unregister(child.connection)
        child.connection.close()
        child.connection = None
        self._end(child, after=0)

    def _leave(self) -> None:
        """The driver is gone. Its children are about to notice; who does not is ended."""
        assert self._listener is not None
        self._selector.unregister(self._lifeline)
        self._selector.unregister(self._listener)
        self._listener.close()
        self._listener = None
        for child in self._children.values():
            self._end(child, after=_LEAVE_SECONDS)

    def _end(self, child: _Child, after: float) -> None:
        first = time.monotonic() + after
        if not child.ends or first < child.ends[0][0]:
            child.ends = [(first, signal.SIGTERM), (first + _LEAVE_SECONDS, signal.SIGKILL)]

    def _end_overdue(self) -> None:
        now = time.monotonic()
        for child in self._children.values():
            while child.ends and child.ends[0][0] <= now:
                # It is ours until it is reaped, so the number is still its own.
                os.kill(child.pid, child.ends.pop(0)[1])

    def _patience(self) -> float | None:
        """Seconds until the next signal is due; None to wait for events only."""
        due = [child.ends[0][0] for child in self._children.values() if child.ends]
        return max(0.0, min(due) - time.monotonic()) if due else None
