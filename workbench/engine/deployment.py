"""Deploying an application: check it against the log, take the lock, start the query."""

from __future__ import annotations

import time
import uuid
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.query import StreamingQuery

from workbench.engine.checkpoint import Checkpoint, checkpoint_directory, containers_of, open_checkpoint
from workbench.engine.planning import Positions
from workbench.engine.processor import TaskProcessor
from workbench.engine.run import Run
from workbench.engine.sink import REPORT_SCHEMA, JobSink, SinkSettings
from workbench.engine.slots import slots
from workbench.engine.source import HOLD_NAMESPACE, JobSource, source_options
from workbench.engine.task import Routing, TaskSettings
from workbench.errors import InvalidOption, UnknownColumn
from workbench.graph.application import Application
from workbench.graph.job_plan import plan_job, source_streams
from workbench.graph.stages import JobPlan
from workbench.systems.log import LogLock, StreamLog
from workbench.telemetry.recorder import Recorder
from workbench.times import check_time_type

MAX_MESSAGES = 1_000_000
"""Default of `max_messages`: large enough for Arrow to be at its best, small enough for a few hundred MB of memory."""

_TRIGGER = "100 milliseconds"
_QUERY_CONF = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
}


@dataclass(frozen=True)
class Deployment:
    """A job that is checked and locked and may start: what its source, its tasks and its sink are told."""

    run_id: str
    plan: JobPlan
    lock: LogLock
    recorder: Recorder
    checkpoint: Checkpoint
    containers: int
    started: int
    source: dict[str, str]
    tasks: TaskSettings
    sink: SinkSettings


def deploy(
    application: Application,
    spark: SparkSession,
    log: StreamLog,
    *,
    containers: int | None = None,
    max_messages: int = MAX_MESSAGES,
    routing: Routing | Mapping[str, str] | None = None,
    checkpoint: str | Path | None = None,
    run_id: str | None = None,
) -> Run:
    """Start a run and return its handle at once.

    containers: Spark partitions that host the tasks; by default as the checkpoint has them, in a new one one
        for each core; at most one for each task.
    max_messages: how many source messages one batch may admit over all tasks.
    routing: "broadcast" or "aggregate" for `watermark`, `end_of_stream` and `drain` (see `Routing`).
    checkpoint: directory of the checkpoint; by default one in the log's directory, found by the application's name.
    run_id: names this deployment; by default a new unique one.

    Raises before anything runs: `UnknownStream`, `UnknownColumn`, `InvalidGraph` (partition counts that do not match),
    `LogInUse` (another run of the same application), `IncompatibleCheckpoint`, `InvalidOption`.
    """
    if containers is not None and containers < 1:
        raise InvalidOption.not_positive("containers", containers)
    deployment = prepare(
        application,
        log,
        containers=containers,
        cores=spark.sparkContext.defaultParallelism,
        max_messages=max_messages,
        routing=routing,
        checkpoint=checkpoint,
        run_id=run_id,
    )
    try:
        query = _start(deployment, spark, application.name)
    except BaseException:
        deployment.lock.release()
        raise
    return Run(
        run_id=deployment.run_id,
        plan=deployment.plan,
        log=log,
        recorder=deployment.recorder,
        query=query,
        lock=deployment.lock,
        started=deployment.started,
        checkpoint=deployment.checkpoint.directory,
    )


def prepare(
    application: Application,
    log: StreamLog,
    *,
    containers: int | None = None,
    cores: int = 1,
    max_messages: int = MAX_MESSAGES,
    routing: Routing | Mapping[str, str] | None = None,
    checkpoint: str | Path | None = None,
    run_id: str | None = None,
) -> Deployment:
    """All of a deployment that needs no Spark: check the application against the log, lock it, open its checkpoint."""
    started = time.time_ns() // 1_000_000
    run_id = run_id or f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:6]}"
    if max_messages < 1:
        raise InvalidOption.not_positive("max_messages", max_messages)
    chosen_routing = routing if isinstance(routing, Routing) else Routing(**(routing or {}))
    sources = {name: log.stream(name).partitions for name in source_streams(application.nodes)}
    existing = {name: log.stream(name).partitions for name in log.streams()}
    plan = plan_job(application.name, application.nodes, existing | sources)
    _check_event_times(plan, log)

    lock = log.lock(application.name, run_id)
    try:
        directory = Path(checkpoint) if checkpoint else checkpoint_directory(log, application.name)
        hosts = min(containers or containers_of(directory) or cores, plan.tasks)
        opened = open_checkpoint(directory, plan, hosts)
        epoch = log.raise_epoch(application.name)
        log.sweep()
        for output in plan.outputs:
            log.create(output.stream, output.partitions, exist_ok=True)
        log.metadata.delete(HOLD_NAMESPACE, application.name)
        recorder = Recorder(log, application.name, opened.id)
        if (
            opened.fresh
            and checkpoint is None
            and any(run.plan["checkpoint_id"] != opened.id for run in recorder.runs())
        ):
            warnings.warn(
                f"The application {application.name!r} ran on this log before, but its checkpoint in {directory} is gone:"
                " it starts from the beginning, and what it sends comes a second time.",
                stacklevel=3,
            )
        recorder.prepare()
        recorder.start_run(run_id, started, {"checkpoint_id": opened.id, "outline": plan.outline.to_json()})
    except BaseException:
        lock.release()
        raise
    return Deployment(
        run_id=run_id,
        plan=plan,
        lock=lock,
        recorder=recorder,
        checkpoint=opened,
        containers=hosts,
        started=started,
        source=source_options(
            job=application.name,
            log=log,
            slots=slots(plan.tasks, hosts),
            inputs=_intermediate_first(plan),
            initial=_initial_positions(plan, log),
            limit=max_messages,
        ),
        tasks=TaskSettings(plan, log.segments_directory, run_id, chosen_routing),
        sink=SinkSettings(str(log.directory), application.name, opened.id, run_id, epoch),
    )


def _start(deployment: Deployment, spark: SparkSession, name: str) -> StreamingQuery:
    register_once(spark, JobSource)
    register_once(spark, JobSink)
    with _settings(spark, deployment.containers):
        work = spark.readStream.format(JobSource.name()).options(**deployment.source).load()
        processor = TaskProcessor(deployment.tasks)
        reports = work.groupBy("slot").transformWithState(processor, REPORT_SCHEMA, "append", "none")
        return (
            reports.writeStream.format(JobSink.name())
            .queryName(f"{name} {deployment.run_id}")
            .outputMode("append")
            .trigger(processingTime=_TRIGGER)
            .option("checkpointLocation", str(deployment.checkpoint.directory))
            .options(**deployment.sink.options())
            .start()
        )


def _intermediate_first(plan: JobPlan) -> list[dict[str, Any]]:
    """The inputs in the order in which a task processes them: intermediate streams have the highest priority."""
    return [
        {"stream": read.stream, "intermediate": read.intermediate, "broadcast": read.broadcast}
        for read in sorted(plan.inputs, key=lambda read: not read.intermediate)
    ]


@contextmanager
def _settings(spark: SparkSession, containers: int) -> Iterator[None]:
    """The job's own settings, while its query starts: the query keeps a copy, the user's session gets its own back."""
    wanted = {**_QUERY_CONF, "spark.sql.shuffle.partitions": str(containers)}
    before = {key: spark.conf.get(key, None) for key in wanted}
    for key, value in wanted.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


def register_once(session: SparkSession, source: type[DataSource]) -> None:
    """Make a data source known to a session; nothing happens where it is known."""
    try:
        session.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def _initial_positions(plan: JobPlan, log: StreamLog) -> Positions:
    """Where a new checkpoint begins: sources at their oldest message; intermediate streams at their head, because what
    they hold then was for an earlier checkpoint of this job. A checkpoint that has a plan ignores this."""
    return {
        read.stream: log.stream(read.stream).heads() if read.intermediate else log.stream(read.stream).oldest()
        for read in plan.inputs
    }


def _check_event_times(plan: JobPlan, log: StreamLog) -> None:
    for stage in plan.stages:
        for node in stage.inputs:
            if node.is_intermediate or node.event_time is None:
                continue
            schema: pa.Schema | None = log.stream(node.stream).schema
            if schema is None:
                continue
            if node.event_time not in schema.names:
                raise UnknownColumn.from_known(node.event_time, schema.names, f"the stream {node.stream!r}")
            check_time_type(schema.field(node.event_time).type, node.event_time)
