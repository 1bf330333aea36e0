"""An error's way from a task to the user."""

from __future__ import annotations

import pickle

import pandas as pd

from workbench.engine.failures import Failure, TaskFailed, from_trace, of_platform, of_user_function, shown_row
from workbench.errors import UnknownColumn

TRACE = """org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2856)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/pyspark/worker.py", line 3421, in main
workbench.engine.failures.TaskFailed: {message}
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


def user_error() -> ZeroDivisionError:
    try:
        1 / 0  # noqa: B018
    except ZeroDivisionError as error:
        return error
    raise AssertionError


def test_a_failure_survives_the_jvm_and_pickling() -> None:
    where = {"operator": "map f", "stage": "stage 1: s", "task": "Partition 0", "stream": "s <b>'\"\n"}
    failure = of_user_function(user_error(), **where, row="x = 1")
    failed = pickle.loads(pickle.dumps(TaskFailed(failure)))
    assert from_trace(TRACE.format(message=failed)) == failure
    assert failure.message == "ZeroDivisionError in a function of the application: division by zero"
    assert "test_failures.py" in failure.line and "1 / 0" in failure.line
    assert "Traceback" in failure.trace


def test_the_short_form_stays_short_whatever_the_error_is() -> None:
    wide = shown_row(pd.DataFrame({f"c{n}": ["v" * 500] for n in range(40)}))
    assert len(wide.splitlines()) == 9
    assert max(map(len, wide.splitlines())) < 80
    failure = Failure("m", "o", "s", "t", "u", line="l\n" * 10, values="v\n" * 30)
    assert len(str(failure).splitlines()) < 25


def test_a_trace_without_a_report_gives_its_most_telling_line() -> None:
    failure = from_trace("org.apache.spark.SparkException: x\n\tat a.b\nCaused by: y\nMemoryError: too much\n\tat c.d")
    assert failure.message == "MemoryError: too much"
    assert "a.b" in failure.trace


def test_our_own_errors_are_shown_as_their_sentence() -> None:
    error = UnknownColumn.from_known("colour", ["color"], "the rows")
    assert (
        of_platform(error).message == "There is no column 'colour' in the rows. It has: 'color'. Did you mean 'color'?"
    )
    assert of_platform(KeyError("x")).message == "KeyError: 'x'"
