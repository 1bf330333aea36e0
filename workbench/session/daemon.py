"""The process from which Spark forks its Python workers, with what every worker needs imported before the fork.

Spark's own daemon imports nothing, because an import may start threads, and threads do not survive a fork. Each task's
first batch then waits until as many workers as there are cores have imported pandas and PyArrow side by side. What is
imported here starts no thread that a worker would miss: OpenBLAS is told to use one, and the helper of Arrow's allocator
is switched off by the fork itself, after which each worker does that work as it goes.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from importlib import import_module

import pyspark.daemon

_spark_worker = pyspark.daemon.worker
_FOR_TASKS = (
    "pandas",
    "pyarrow",
    "pyspark.worker",
    "pyspark.sql.streaming.stateful_processor_util",
    "workbench.engine.task",
)


def main() -> None:
    """Import, then become Spark's daemon."""
    pyspark.daemon.worker = _worker
    if sys.argv[1:] == ["pyspark.worker"]:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        for name in _FOR_TASKS:
            # What is missing here is missing in the worker too, and is told there, to the user.
            with contextlib.suppress(ImportError):
                import_module(name)
    pyspark.daemon.manager()


def _worker(sock: socket.socket, authenticated: bool) -> int:
    """Spark's worker, which leaves without a trace on the screen when Java has closed the connection.

    That happens after a task failed or was cancelled; Java knows the reason already, this process knows none.
    """
    try:
        return _spark_worker(sock, authenticated)
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    main()
