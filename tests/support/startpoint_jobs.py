"""An application that copies what its tasks consume, so that its output tells which offsets that were, in which order."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from tests.support.jobs import EPOCH_MS
from tests.support.local import LocalJob
from workbench.graph import Application
from workbench.names import SSP
from workbench.systems.log import StreamLog

NAME = "copier"
SOURCE, EVERYWHERE = "events", "everywhere"
COPIES = {SOURCE: "out", EVERYWHERE: "out everywhere"}
MINUTE_MS = 60_000


def copier(*, broadcast: bool = True) -> Application:
    """events → out, and events → a broadcast stream, which every task reads → out everywhere. Task *i* writes partition *i*."""
    app = Application(NAME)
    stream = app.input(SOURCE, event_time="at")
    stream.send_to(COPIES[SOURCE])
    if broadcast:
        stream.broadcast(name=EVERYWHERE).send_to(COPIES[EVERYWHERE])
    return app


def ssp(partition: int, stream: str = SOURCE) -> SSP:
    return SSP("log", stream, partition)


def append_rows(log: StreamLog, count: int) -> None:
    """`count` more rows to each partition of "events"; a row's `offset` is its own, its time `offset` minutes on."""
    stream = log.stream(SOURCE)
    for partition, head in enumerate(stream.heads()):
        offsets = range(head, head + count)
        times = [EPOCH_MS + offset * MINUTE_MS for offset in offsets]
        table = pa.table(
            {
                "at": pa.array(times, pa.timestamp("ms", "UTC")),
                "partition": pa.array([partition] * count, pa.int64()),
                "offset": pa.array(offsets, pa.int64()),
            }
        )
        stream.append(table, partition, time_column="at")


Row = tuple[int, int]
"""(partition, offset) of a row of "events"."""


def copied(log: StreamLog, stream: str, task: int, since: int = 0) -> list[Row]:
    """The rows that a task has consumed from an input stream, in the order in which it did, from its copy `since` on."""
    rows = log.stream(COPIES[stream]).to_pandas(task, position=True)
    if rows.empty:
        return []  # one to which nothing was ever written has no columns
    rows = rows[rows["_offset"] >= since]
    return [(int(partition), int(offset)) for partition, offset in zip(rows["partition"], rows["offset"], strict=True)]


def held(log: StreamLog, stream: str, partition: int, start: int) -> list[Row]:
    """The rows that a partition of an input stream holds from an offset on."""
    rows = log.stream(stream).to_pandas(partition, position=True)
    rows = rows[rows["_offset"] >= start]
    return [(int(of), int(offset)) for of, offset in zip(rows["partition"], rows["offset"], strict=True)]


def copies(log: StreamLog) -> Mapping[str, list[int]]:
    """Input stream → for each task how much it has copied."""
    return {stream: log.stream(copy).heads() for stream, copy in COPIES.items() if copy in log}


def until_idle(job: LocalJob) -> LocalJob:
    """Step until nothing is left to do."""
    list(job.batches())
    return job
