"""Deploying an application: check it against the log, take the lock, start the query."""

from __future__ import annotations

import time
import uuid
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.query import StreamingQuery

from workbench.choosers import ChooserOption, ChooserPolicy
from workbench.engine import hold
from workbench.engine.beginning import beginning, containers_for, moved
from workbench.engine.checkpoint import (
    Checkpoint,
    checkpoint_directory,
    finish_replacing,
    open_checkpoint,
    replace_checkpoint,
)
from workbench.engine.checks import check_sources
from workbench.engine.choosing import ChooserSettings, settings_for
from workbench.engine.drains import clean_up_carried_out, forgotten_drains
from workbench.engine.failures import from_trace
from workbench.engine.lanes import InputLanes
from workbench.engine.left import left_behind
from workbench.engine.other_jobs import check_readers
from workbench.engine.processor import TaskProcessor
from workbench.engine.run import Run
from workbench.engine.sink import REPORT_SCHEMA, JobSink, SinkSettings
from workbench.engine.slots import slots
from workbench.engine.source import JobSource, SourceSettings
from workbench.engine.startpoints import TakenStartpoints, consumed_by, take_startpoints, waiting_startpoints
from workbench.engine.task import Routing, TaskSettings
from workbench.errors import InvalidGraph, InvalidOption, SplitConflict
from workbench.graph.application import Application
from workbench.graph.job_plan import plan_job, source_streams
from workbench.graph.joins import described_streams
from workbench.graph.parts import plan_parts
from workbench.graph.stages import JobOutline, JobPlan
from workbench.graph.tables import sources_of_tables_only
from workbench.names import LOG_SYSTEM, SSP
from workbench.session.workers import check_workers
from workbench.systems.log import LogLock, StreamLog
from workbench.telemetry.recorder import Recorder

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
    generation: int
    """The generation in which this run finishes or drains."""
    source: SourceSettings
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
    on_rewind: str | None = None,
    chooser: ChooserPolicy | ChooserOption = None,
    batch_size: int | None = None,
) -> Run:
    """Start a run and return its handle at once.

    containers: Spark partitions that host the tasks; by default as the checkpoint has them, in a new one one
        for each core; at most one for each task.
    max_messages: how many source messages one batch may admit over all tasks.
    routing: "broadcast" or "aggregate" for `watermark`, `end_of_stream` and `drain` (see `Routing`).
    checkpoint: directory of the checkpoint; by default one in the log's directory, found by the application's name.
    run_id: names this deployment; by default a new unique one. With the id of a run that died, its drain goes on.
    on_rewind: what becomes of what the tasks keep when a startpoint leads back (see `workbench.startpoints`). "keep":
        what comes again is counted again in windows that are still open; windows that were emitted are emitted once
        more, with what comes again only. "reset": windows, stores and unread messages between the stages are dropped
        first, also what they hold of partitions that are not moved. Either way time starts anew, so nothing that comes
        again is late. Without it a start that would lead back is refused.
    chooser: which of a task's inputs of equal priority goes first: "round_robin" (the default), "time_aligned",
        "starting_alignment", or one of one's own (see `workbench.choosers`).
    batch_size: with how many messages of one input it stays before it looks at the others. By default turns are long,
        and single messages where the order is decided by time or by a chooser of one's own: each turn costs about 1 ms.

    Raises before anything runs: `UnknownStream`, `UnknownColumn`, `InvalidGraph` (partition counts that do not match),
    `LogInUse` (another run of the same application), `IncompatibleCheckpoint`, `InvalidOption`, `SessionConflict` (a
    session of the user's own whose workers can not run tasks), `UnresolvableStartpoint`, `RewindUndecided`.
    """
    if containers is not None and containers < 1:
        raise InvalidOption.not_positive("containers", containers)
    check_workers(spark)
    deployment = prepare(
        application,
        log,
        containers=containers,
        cores=spark.sparkContext.defaultParallelism,
        max_messages=max_messages,
        routing=routing,
        checkpoint=checkpoint,
        run_id=run_id,
        on_rewind=on_rewind,
        chooser=chooser,
        batch_size=batch_size,
    )
    try:
        query = _start(deployment, spark, application.name)
    except BaseException as error:
        now = time.time_ns() // 1_000_000
        failure = asdict(from_trace(f"{type(error).__name__}: {error}"))
        deployment.recorder.end_run(deployment.run_id, now, "failed", failure)
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
        generation=deployment.generation,
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
    on_rewind: str | None = None,
    chooser: ChooserPolicy | ChooserOption = None,
    batch_size: int | None = None,
) -> Deployment:
    """All of a deployment that needs no Spark: check the application against the log, lock it, open its checkpoint."""
    started = time.time_ns() // 1_000_000
    run_id = run_id or f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:6]}"
    if max_messages < 1:
        raise InvalidOption.not_positive("max_messages", max_messages)
    chooses = chooser is not None or batch_size is not None
    choosing = ChooserSettings.from_options(chooser, batch_size) if chooses else None
    chosen_routing = routing if isinstance(routing, Routing) else Routing(**(routing or {}))
    name, nodes = application.name, application.nodes
    sources = {stream: log.stream(stream).partitions for stream in source_streams(nodes)}
    check_sources(nodes, log)
    lock = log.lock(name, run_id)
    try:
        directory = Path(checkpoint) if checkpoint else checkpoint_directory(log, name)
        finish_replacing(directory)
        left = left_behind(log, name, directory)
        existing = {stream: log.stream(stream).partitions for stream in log.streams()}
        if left.is_replaceable:
            existing = {stream: count for stream, count in existing.items() if stream not in left.intermediate}
        plans = _plans(application, existing | sources)
        plan = plans[application.stage or 0]
        _check_family(log, name, application)
        _check_own(log, Recorder(log, name, ""), plan)
        hosts = min(containers or containers_for(directory, left, plan) or cores, plan.tasks)
        if left.abandoned and left.carried is not None:
            opened = replace_checkpoint(directory, plan, hosts, asdict(chosen_routing), left.carried)
        else:
            opened = open_checkpoint(directory, plan, hosts, asdict(chosen_routing), left.carried)
        if opened.fresh or left.is_clean:
            check_readers(log, name, plan.outputs)
        epoch = log.raise_epoch(name)
        log.sweep()
        for read in plan.inputs:
            if read.external:  # whoever comes first makes it
                log.create(read.stream, read.partitions, exist_ok=True)
        for output in plan.outputs:
            anew = opened.fresh or (left.is_clean and output.reader)
            if anew and output.stream in left.intermediate:
                log.renew(output.stream, output.partitions)
            log.create(output.stream, output.partitions, exist_ok=True)
        hold.clear(log.metadata, name)
        recorder = Recorder(log, name, opened.id)
        recorder.prepare()
        if (
            opened.fresh
            and opened.carried is None
            and checkpoint is None
            and any(run.plan["checkpoint_id"] != opened.id for run in recorder.runs())
        ):
            warnings.warn(
                f"The application {name!r} ran on this log before, but its checkpoint in {directory} is gone:"
                " it starts from the beginning, and what it sends comes a second time.",
                stacklevel=3,
            )
        recorder.settle(started, "drained" if left.drained else "finished" if left.finished else "lost")
        if left.is_clean:
            clean_up_carried_out(log.metadata, recorder, left.drain_of)
        initial, restart = beginning(plan, log, opened, left, sources_of_tables_only(nodes))
        current = opened.plan or initial
        consumed = {
            SSP(LOG_SYSTEM, read.stream, partition)
            for job in plans
            for read in job.inputs
            for partition in range(read.partitions)
        }
        with log.transaction():  # so that a start that is refused takes nothing
            taken = (
                TakenStartpoints(notices=waiting_startpoints(log, application.family))
                if current.drain is not None and not left.drained
                else take_startpoints(log, application.family, plan.inputs, plan.tasks, current, on_rewind, consumed)
            )
            if taken.rewinds:
                check_readers(log, name, plan.outputs)
        if taken.moves:
            restart = moved(restart, current, taken, reset=on_rewind == "reset")
        if restart is not None:
            holds = left.holds if left.is_clean else {read.stream for read in plan.inputs if read.external}
            restart = replace(restart, holds=sorted(holds))
        taken_up = {run_id, current.drain.run_id if current.drain is not None else run_id}
        for notice in (*taken.notices, *forgotten_drains(log.metadata, recorder, taken_up)):
            warnings.warn(notice, stacklevel=3)
        recorder.start_run(
            run_id,
            started,
            {
                "checkpoint_id": opened.id,
                "checkpoint": str(directory.absolute()),
                "outline": plan.outline.to_json(),
                "routing": asdict(chosen_routing),
                "application": application.family,
                "generation": (restart or current).generation,
            },
        )
    except BaseException:
        lock.release()
        raise
    inputs = _intermediate_first(plan)
    generation = restart.generation if restart else (opened.plan or initial).generation
    return Deployment(
        run_id=run_id,
        plan=plan,
        lock=lock,
        recorder=recorder,
        checkpoint=opened,
        containers=hosts,
        started=started,
        generation=generation,
        source=SourceSettings(
            job=name,
            run_id=run_id,
            log=str(log.directory),
            checkpoint_id=opened.id,
            epoch=epoch,
            slots=list(slots(plan.tasks, hosts)),
            inputs=inputs,
            initial=initial,
            limit=max_messages,
            restart=restart,
            writers={read.stream: read.writer for read in plan.inputs if read.external},
            chooser=settings_for(choosing, inputs),
            described=described_streams(plan.stages),
        ),
        tasks=TaskSettings(plan, log.segments_directory, run_id, chosen_routing),
        sink=SinkSettings(
            str(log.directory),
            name,
            opened.id,
            run_id,
            epoch,
            [output.stream for output in plan.outputs if output.intermediate],
            consumed_by(restart.token if restart else "", taken, current),
            application.family,
        ),
    )


def _start(deployment: Deployment, spark: SparkSession, name: str) -> StreamingQuery:
    register_once(spark, JobSource)
    register_once(spark, JobSink)
    with _settings(spark, deployment.containers):
        work = spark.readStream.format(JobSource.name()).options(**deployment.source.options()).load()
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


def _plans(application: Application, partitions: dict[str, int]) -> list[JobPlan]:
    """Those of all jobs of the application, in the order of the stages; of one that is not split, its only one."""
    if application.stage is None:
        return [plan_job(application.name, application.nodes, partitions)]
    return plan_parts(application.family, application.nodes, partitions, application.stage)


def _check_family(log: StreamLog, job: str, application: Application) -> None:
    """An application that ran on the log as one job can not go on in parts, nor the other way round: see `SplitConflict`."""
    recorder = Recorder(log, job, "")
    recorder.prepare()
    others = [
        other
        for other in recorder.jobs_of(application.family)
        if (other == application.family) is (application.stage is not None)
    ]
    if others:
        raise SplitConflict.ran_otherwise(job, others)


def _intermediate_first(plan: JobPlan) -> list[InputLanes]:
    """The inputs in the order in which a task processes them: intermediate streams have the highest priority."""
    return [
        InputLanes(
            read.stream,
            read.intermediate,
            read.lanes(plan.tasks),
            node.priority,
            node.bootstrap,
            node.event_time,
            read.external,
        )
        for read in sorted(plan.inputs, key=lambda read: not read.intermediate)
        for node in plan.stages[read.stage].inputs
        if node.stream == read.stream
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


def _check_own(log: StreamLog, recorder: Recorder, plan: JobPlan) -> None:
    """Streams between the stages are the application's own: rows of others in them would be read as its own."""
    written = {stream for run in recorder.runs() for stream in JobOutline.from_json(run.plan["outline"]).written}
    known = set(log.streams())
    for output in plan.outputs:
        name = output.stream
        if output.intermediate and name not in written and name in known and any(log.stream(name).heads()):
            raise InvalidGraph.stream_of_others(name, f"The application {plan.application!r}")
