"""What every job makes the JVM load once, loaded while the user's next line runs."""

from __future__ import annotations

import contextlib
from typing import Any

from py4j.protocol import Py4JError
from pyspark import InheritableThread
from pyspark.sql import SparkSession


def warm_up(session: SparkSession) -> InheritableThread:
    """Load it in a thread of its own, which takes about 0.3 s of one core, and return the thread.

    A job's first batch is planned by one thread of the JVM, and would wait for each of these. None of it is a query:
    what the session shows of itself stays as it is.
    """
    thread = InheritableThread(target=_load, args=(session._jvm,), name="tidemark-warm-up", daemon=True)
    thread.start()
    return thread


def _load(java: Any) -> None:
    # The state store's library, unpacked from its archive; the messages between state store and worker; the memory in
    # which rows travel; and the compiler of the code that Spark generates. The session may stop meanwhile.
    with contextlib.suppress(Py4JError, OSError, TypeError):
        java.org.rocksdb.RocksDB.loadLibrary()
        java.org.apache.spark.sql.execution.streaming.state.StateMessage.getDescriptor()
        java.org.apache.spark.sql.util.ArrowUtils.rootAllocator().buffer(1).close()
        java.org.codehaus.janino.ClassBodyEvaluator().cook("static int one() { return 1; }")
