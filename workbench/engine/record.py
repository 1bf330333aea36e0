"""Looking at a job that is not running here: its record in the log, and the bookkeeping in its checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession

from workbench.engine.batch_plan import read_plan
from workbench.engine.checkpoint import checkpoint_directory, read_identity
from workbench.engine.processor import TASK_STATE
from workbench.engine.views import Record
from workbench.errors import UnknownApplication
from workbench.graph.stages import JobOutline
from workbench.systems.log import StreamLog
from workbench.telemetry.frames import bookkeeping_frame
from workbench.telemetry.recorder import Recorder


def open_record(log: StreamLog, application: str) -> Record:
    """The record of an application's newest checkpoint, readable while it runs and after, from any process.

    Raises `UnknownApplication` if the log knows no run of that name.
    """
    runs = Recorder(log, application, "").runs()
    if not runs:
        raise UnknownApplication.from_log(application, str(log.directory))
    newest = runs[-1].plan
    recorder = Recorder(log, application, newest["checkpoint_id"])
    return Record(log, JobOutline.from_json(newest["outline"]), recorder)


def current_positions(log: StreamLog, application: str) -> dict[str, list[int]]:
    """Per input stream the next offsets to read, of the newest plan: one for each partition, or, where every task reads
    the whole stream (broadcast), one for each task.

    Before the first plan they are where it will begin. Raises `UnknownApplication`.
    """
    record = open_record(log, application)
    plan = read_plan(Path(record.last_run.plan["checkpoint"]))
    if plan is not None:
        return plan.positions
    found = {}
    for read in record.outline.inputs:
        stream = log.stream(read.stream)
        begin = stream.oldest() if read.entering else stream.heads()
        found[read.stream] = [begin[partition] for _, partition in read.lanes(record.outline.tasks)]
    return found


def read_bookkeeping(
    spark: SparkSession, log: StreamLog, application: str, *, checkpoint: str | Path | None = None
) -> pd.DataFrame:
    """The bookkeeping of all tasks as the checkpoint holds it, with the columns of `Run.bookkeeping`.

    This is what a restart would restore: Spark's state store is read, not the log's record. Raises `UnknownApplication`
    and `IncompatibleCheckpoint` where there is nothing to read.
    """
    record = open_record(log, application)
    directory = Path(checkpoint) if checkpoint else checkpoint_directory(log, application)
    read_identity(directory, application)
    with TemporaryDirectory(prefix="tidemark-") as private:
        # Spark's state reader does not find a directory whose path has spaces or quotes.
        link = Path(private) / "checkpoint"
        link.symlink_to(directory.resolve())
        stored = spark.read.format("statestore").option("path", str(link)).option("stateVarName", TASK_STATE).load()
        state = stored.selectExpr("value.state AS state").collect()
    kept: dict[int, dict[str, Any]] = {}
    for row in state:
        task = json.loads(row.state)
        kept[task["task"]] = task["inputs"]
    return bookkeeping_frame(record.outline, kept)
