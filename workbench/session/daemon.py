"""The process from which Spark forks its Python workers, with what every worker needs imported before the fork.

Where the fork server started it, all of that is there already.
"""

from __future__ import annotations

import os
import socket
import sys

import pyspark.daemon

from workbench.session.forkserver.preload import FOR_TASKS, preload

_spark_worker = pyspark.daemon.worker


def main() -> None:
    """Import, then become Spark's daemon."""
    pyspark.daemon.worker = _worker
    if sys.argv[1:] == ["pyspark.worker"]:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        preload(FOR_TASKS)
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
