"""What Spark's Python processes need, imported before they are forked.

Spark's own daemon imports nothing, because an import may start threads, and threads do not survive a fork. Each task's
first batch then waits until as many workers as there are cores have imported pandas and PyArrow side by side. What is
imported here starts no thread that a worker would miss: OpenBLAS is told to use one, and Arrow's pools start with their
first work. The helper of Arrow's second allocator is switched off by a fork itself, after which each worker does that
work as it goes.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable
from importlib import import_module

FOR_TASKS = (
    "pandas",
    "pyarrow.acero",
    "pyarrow.pandas_compat",
    "pyspark.worker",
    "pyspark.sql.streaming.proto.StateMessage_pb2",
    "pyspark.sql.streaming.stateful_processor_util",
    "workbench.engine.task",
)
"""What the workers of a job's tasks import."""

FOR_QUERIES = (
    "pyspark.daemon",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "workbench.engine.connector_read",
    "workbench.engine.connector_write",
    "workbench.engine.processor",
    "workbench.engine.sink",
    "workbench.engine.source",
    "workbench.session.daemon",
)
"""What the processes import that Spark's driver starts to plan, read and commit a query."""


def preload(names: Iterable[str]) -> None:
    """Import `names`, and see to it that forked processes do not share one sequence of random numbers."""
    for name in names:
        # What is missing here is missing in the worker too, and is told there, to the user.
        with contextlib.suppress(ImportError):
            import_module(name)
    os.register_at_fork(after_in_child=_reseed)


def _reseed() -> None:
    # Python's own generator does this itself.
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
