"""What a client asks for, and how a process that was just forked becomes it."""

from __future__ import annotations

import atexit
import importlib
import marshal
import os
import re
import runpy
import socket
import sys
import threading
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from workbench.session.forkserver.client import NUMBER

_READ_AT_START = re.compile(
    r"PYTHON(?!_)\w*|LD_\w+|LC_\w+|LANG|LANGUAGE|TZ|MALLOC_\w+|GLIBC_\w+|GOTO_NUM_THREADS|OPENBLAS_\w+"
    r"|ARROW_\w+|PROTOCOL_BUFFERS_\w+|PANDAS_\w+|PYSPARK_ENABLE_NAMEDTUPLE_PATCH|SPARK_TESTING"
)
"""Variables that the interpreter or an imported library reads once, when it is loaded."""

_ONLY_SET_OR_NOT = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")
_UNSET_MEANS = {"OPENBLAS_NUM_THREADS": "1"}
_STREAMS = 3
_FLUSH_FAILED = 120
"""Python's own exit code for it."""


class Interpreter(NamedTuple):
    """What a process is given before its first line runs and cannot change later."""

    directory: str
    variables: dict[str, str]

    @classmethod
    def started_with(cls, directory: str, environment: Mapping[str, str]) -> Interpreter:
        """The interpreter that starts in `directory` with `environment`."""
        variables = _UNSET_MEANS | {name: of for name, of in environment.items() if _READ_AT_START.fullmatch(name)}
        return cls(
            directory, {name: "set" if name in _ONLY_SET_OR_NOT and of else of for name, of in variables.items()}
        )


class Request(NamedTuple):
    """`python arguments`, to be run in `directory` with `environment` on the streams `streams`: descriptors, ours."""

    directory: str
    arguments: list[str]
    environment: dict[str, str]
    streams: list[int]

    @classmethod
    def receive(cls, connection: socket.socket) -> Request:
        """Read a request. Raises `OSError`, `EOFError` or `ValueError` if there is none to be read."""
        head, streams, _, _ = socket.recv_fds(connection, NUMBER, _STREAMS)
        try:
            if len(head) < NUMBER or len(streams) < _STREAMS:
                raise EOFError
            size = int.from_bytes(head, sys.byteorder)
            body = bytearray()
            while len(body) < size:
                more = connection.recv(size - len(body))
                if not more:
                    raise EOFError
                body += more
            directory, arguments, environment = marshal.loads(body)
        except BaseException:
            for stream in streams:
                os.close(stream)
            raise
        return cls(
            os.fsdecode(directory),
            [os.fsdecode(argument) for argument in arguments],
            {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()},
            streams,
        )

    @property
    def interpreter(self) -> Interpreter:
        """The interpreter that this would start."""
        return Interpreter.started_with(self.directory, self.environment)

    @property
    def is_module(self) -> bool:
        """Whether it is of the form `-m MODULE …`, the only one that is served."""
        return len(self.arguments) > 1 and self.arguments[0] == "-m"

    def close(self) -> None:
        """Close the streams."""
        for stream in self.streams:
            os.close(stream)

    def become(self) -> NoReturn:
        """In a forked child: be `python -m MODULE …` from here on, and end as that does."""
        for target, stream in enumerate(self.streams):
            os.dup2(stream, target)
        self.close()
        os.environ.clear()
        os.environ.update(self.environment)
        _, module, *arguments = self.arguments
        sys.orig_argv = [sys.executable, *self.arguments]
        sys.argv = [module, *arguments]
        # What runs as the main module is not at the same time imported; and files may be new since the server started.
        sys.modules.pop(module, None)
        importlib.invalidate_caches()
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
            status = 0
        except SystemExit as wish:
            status = _status(wish.code)
        except BaseException as error:
            # As Python would print it: without the frames that called.
            trace = error.__traceback__ and error.__traceback__.tb_next
            sys.excepthook(type(error), error.with_traceback(trace), trace)
            status = 1
        _end(status)


def _status(code: object) -> int:
    """What Python makes of the argument of `sys.exit`."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _end(status: int) -> NoReturn:
    """Exit like Python, but let the system free the memory.

    Python would take apart each imported module, and to do so copy all that is shared: 50 ms and 70 MB for nothing.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are to be waited for
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError:
            status = status or _FLUSH_FAILED
    os._exit(status)
