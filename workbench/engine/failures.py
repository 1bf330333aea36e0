"""How an error in a task reaches the user: short, with what they need, across two processes and a JVM.

A worker's exception arrives at the driver as text inside a JVM trace. So every error of a task is raised as `TaskFailed`,
whose message carries a report in a form that survives the journey; the driver finds it again with `from_trace`.
"""

from __future__ import annotations

import base64
import json
import re
import traceback
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from workbench.errors import TidemarkError

if TYPE_CHECKING:
    import pandas as pd

_MARK = re.compile(r"tidemark-failure:([A-Za-z0-9+/=]+):")
_MOST_LINES = 24
_LONGEST_VALUE = 60

_WORKER_LOST = (
    "A Python process that ran tasks has ended without a word: most likely the system killed it because memory ran out, or"
    " a library or a function of the application ended it. What was committed is safe. Deploy again to go on from"
    " there, with a smaller max_messages if memory is short."
)
_JVM_LOST = (
    "Spark's Java process has ended: most likely it was killed, or memory ran out. What was committed is safe. Start a"
    " new session and deploy again: the run goes on from there."
)


@dataclass(frozen=True)
class Failure:
    """What went wrong in a run. `str()` is the short form, under 25 lines; `trace` is the whole Python traceback."""

    message: str
    operator: str = ""
    stage: str = ""
    task: str = ""
    stream: str = ""
    line: str = ""
    values: str = ""
    trace: str = ""

    def __str__(self) -> str:
        named = {"operator": self.operator, "stage": self.stage, "task": self.task, "stream": self.stream}
        where = [f"  {what:<9} {name}" for what, name in named.items() if name]
        lines = [self.message, *where]
        if self.line:
            lines += ["  your line", *(f"    {line}" for line in self.line.splitlines())]
        if self.values:
            lines += ["  first offending row", *(f"    {line}" for line in self.values.splitlines())]
        if len(lines) > _MOST_LINES:
            lines = [*lines[: _MOST_LINES - 1], "    …"]
        return "\n".join(lines)


class TaskFailed(Exception):
    """An error in a task, on its way from a worker to the driver."""

    def __init__(self, failure: Failure) -> None:
        packed = base64.b64encode(json.dumps(asdict(failure)).encode()).decode()
        super().__init__(f"{failure}\n\ntidemark-failure:{packed}:")
        self.failure = failure

    def __reduce__(self) -> tuple[type[TaskFailed], tuple[Failure]]:
        return type(self), (self.failure,)


def from_trace(text: str) -> Failure:
    """The failure inside a JVM trace; without one, the most telling line of the trace itself."""
    found = _MARK.search(text)
    if found:
        return Failure(**json.loads(base64.b64decode(found[1])))
    if "Python worker exited unexpectedly" in text:
        return Failure(message=_WORKER_LOST, trace=text)
    telling = [line.strip() for line in text.splitlines() if re.match(r"\s*([\w.]*(Error|Exception))\b.*:", line)]
    return Failure(message=(telling[-1] if telling else text.strip().splitlines()[0])[:500], trace=text)


def of_lost_jvm(error: BaseException) -> Failure:
    """The report of a run whose JVM does not answer any more."""
    return Failure(message=_JVM_LOST, trace="".join(traceback.format_exception(error)))


def of_user_function(error: BaseException, *, operator: str, stage: str, task: str, stream: str, row: str) -> Failure:
    """The report of an exception that a user's function raised."""
    return Failure(
        message=f"{type(error).__name__} in a function of the application: {_first_line(error)}",
        operator=operator,
        stage=stage,
        task=task,
        stream=stream,
        line=user_line(error.__traceback__),
        values=row,
        trace="".join(traceback.format_exception(error)),
    )


def of_platform(
    error: BaseException, *, task: str = "", stream: str = "", operator: str = "", stage: str = ""
) -> Failure:
    """The report of any other error: our own sentences as they are, the rest with its type."""
    sentence = str(error) if isinstance(error, TidemarkError) else f"{type(error).__name__}: {_first_line(error)}"
    # An error of ours needs no line, unless it tells of one that the user's own code has raised (a chooser's, say).
    origin = error.__cause__ if isinstance(error, TidemarkError) else error
    return Failure(
        message=sentence,
        task=task,
        stream=stream,
        operator=operator,
        stage=stage,
        line="" if origin is None else user_line(origin.__traceback__),
        trace="".join(traceback.format_exception(error)),
    )


def user_line(trace: TracebackType | None) -> str:
    """The innermost line of the user's own code, with its place; libraries and this package are not the user's."""
    frames = traceback.extract_tb(trace)
    own = [
        frame
        for frame in frames
        if (frame.filename.startswith(("/", "<")) and not frame.filename.startswith("<frozen"))
        and "/site-packages/" not in frame.filename
        and "/workbench/" not in frame.filename
        and "/lib/python3" not in frame.filename
    ]
    if not own:
        return ""
    frame = own[-1]
    place = f"{frame.filename}:{frame.lineno}, in {frame.name}"
    return f"{place}\n  {frame.line}" if frame.line else place


def shown_row(row: pd.DataFrame) -> str:
    """One row as `column = value` lines, long values shortened, at most eight columns."""
    lines = []
    for column in list(row.columns)[:8]:
        value = repr(row[column].iloc[0])
        shortened = value if len(value) <= _LONGEST_VALUE else value[: _LONGEST_VALUE - 1] + "…"
        lines.append(f"{column} = {shortened}")
    if len(row.columns) > 8:
        lines.append(f"… and {len(row.columns) - 8} more columns")
    return "\n".join(lines)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else "(no message)"
