"""`python -m workbench.session.forkserver DESCRIPTOR`: import, then serve the listening socket until stdin is closed."""

from __future__ import annotations

import gc
import os
import resource
import socket
import sys

from workbench.session.forkserver.preload import FOR_QUERIES, FOR_TASKS, preload
from workbench.session.forkserver.request import Interpreter, Request
from workbench.session.forkserver.server import Server

_LIFELINE = 0
_FOR_THE_SERVER = ("OPENBLAS_NUM_THREADS", "JE_ARROW_MALLOC_CONF")


def main() -> Request | None:
    """Returns None in the server, at its end, and in each forked child the request that it is to become."""
    environment = {name: value for name, value in os.environ.items() if name not in _FOR_THE_SERVER}
    interpreter = Interpreter.started_with(os.getcwd(), environment)
    listener = socket.socket(fileno=int(sys.argv[1]))
    listener.set_inheritable(False)
    # Java opens as many files as it may, and so may the processes that it starts.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # What lives after the imports lives as long as the server: collections neither look for garbage in it now, nor visit
    # it in children later and so copy its memory.
    gc.disable()
    preload([*FOR_TASKS, *FOR_QUERIES])
    gc.freeze()
    gc.enable()
    if len(os.listdir("/proc/self/task")) > 1:
        # Some installed package started a thread when it was imported. A fork of that is not a fresh Python.
        return None
    return Server(listener, _LIFELINE, interpreter).serve()


if __name__ == "__main__":
    become = main()
    if become is not None:
        become.become()
