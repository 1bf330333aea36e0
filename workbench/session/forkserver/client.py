"""Where Spark starts Python: asks the fork server for the process, and stands in for it until it ends.

Run as a file, isolated and without `site`, with the session's private directory, the Python to fall back on, and the arguments that
Python was to get. Nothing is imported that costs milliseconds: this start is what remains of each process's start.

Where the server is not to be had, this process becomes the Python that was asked for: slower, not wrong.
"""

from __future__ import annotations

import _socket
import marshal
import os
import sys
from typing import NoReturn

REFUSED = 0
"""The server's first answer instead of the number of a process."""

NUMBER = 8
"""Bytes of a number on the connection, signed, in the machine's order."""

_LONGEST_WAIT_SECONDS = 60


_NAME = "forks"


class Address:
    """The path of the server's socket in `directory`, for as long as the context lasts.

    A socket's path may have 107 bytes, and directories of users have more. This one goes by the number of the directory.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = directory

    def __enter__(self) -> str:
        self._number = os.open(self._directory, os.O_DIRECTORY)
        return f"/proc/self/fd/{self._number}/{_NAME}"

    def __exit__(self, *_: object) -> None:
        os.close(self._number)


def main(directory: str, python: str, arguments: list[str]) -> NoReturn:
    """Have `python arguments` run, with this process's environment, directory and standard streams; end as it does."""
    connection = _ask(directory, arguments)
    pid = None if connection is None else _number(connection)
    if connection is None or not pid:
        os.execv(python, [python, *arguments])
    # As long as this process held the ends of Spark's pipes, nobody would see them close.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nowhere, stream)
    connection.settimeout(None)
    status = _number(connection)
    _end_as(_outlive_server(pid) if status is None else status)


def _ask(directory: str, arguments: list[str]) -> _socket.socket | None:
    try:
        request = marshal.dumps((os.getcwdb(), [os.fsencode(each) for each in arguments], dict(os.environb)))
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        connection.settimeout(_LONGEST_WAIT_SECONDS)
        with Address(directory) as path:
            connection.connect(path)
        streams = b"".join(stream.to_bytes(4, sys.byteorder) for stream in (0, 1, 2))
        connection.sendmsg(
            [len(request).to_bytes(NUMBER, sys.byteorder)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)]
        )
        connection.sendall(request)
    except OSError:
        return None
    return connection


def _number(connection: _socket.socket) -> int | None:
    """The next number from the server; None if the server is gone or says nothing for too long."""
    received = b""
    while len(received) < NUMBER:
        try:
            more = connection.recv(NUMBER - len(received))
        except OSError:
            return None
        if not more:
            return None
        received += more
    return int.from_bytes(received, sys.byteorder, signed=True)


def _outlive_server(pid: int) -> int:
    """The server is gone and its child is not: wait for it, and pass on the signal by which Spark ends it.

    How a process ends only its parent is told, so this says it failed.
    """
    import select
    import signal

    signal.signal(signal.SIGTERM, lambda number, _: os.kill(pid, number))
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return 1
    ended = select.poll()
    ended.register(process, select.POLLIN)
    ended.poll()
    return 1


def _end_as(status: int) -> NoReturn:
    """Exit with `status`, or die of signal -`status` if it is negative."""
    if status < 0:
        os.kill(os.getpid(), -status)
        # This one is ignored here; a shell would say it so.
        status = 128 - status
    os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
