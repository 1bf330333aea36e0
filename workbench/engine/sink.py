"""JobSink: commits what the tasks of a batch staged and reported, in one transaction of the log."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from workbench.engine.failures import TaskFailed, of_platform
from workbench.engine.work import Report
from workbench.errors import SchemaMismatch
from workbench.messages import ControlMessage, ControlRun, control_from_json
from workbench.startpoints import Receipt, remove_consumed_in
from workbench.systems.log import ControlAppend, StagedRows, StreamLog
from workbench.telemetry.recorder import Recorder

REPORT_SCHEMA = "task int, report string"


@dataclass(frozen=True)
class SinkSettings:
    """The option of `JobSink`, as JSON."""

    log: str
    job: str
    checkpoint_id: str
    run_id: str
    epoch: int
    intermediate: list[str]
    """Streams between the stages of the job."""
    consumed: Mapping[str, list[Receipt]] = field(default_factory=dict)
    """Token of a restart → startpoints that are used up by the commit of a batch that began there."""
    application: str = ""
    """Whose startpoints they are: the application of which the job may be a part."""

    @classmethod
    def from_json(cls, text: str) -> SinkSettings:
        saved = json.loads(text)
        consumed = {token: [Receipt(*receipt) for receipt in of] for token, of in saved["consumed"].items()}
        return cls(**{**saved, "consumed": consumed})

    def options(self) -> dict[str, str]:
        return {"job": json.dumps(asdict(self))}


class JobSink(DataSource):
    """`format("tidemark-job-sink")`."""

    @classmethod
    def name(cls) -> str:
        return "tidemark-job-sink"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return JobWriter(SinkSettings.from_json(self.options["job"]))


@dataclass
class Reports(WriterCommitMessage):
    """The reports that one container's tasks sent."""

    reports: list[str]


class JobWriter(DataSourceStreamArrowWriter):
    """Executors only pass the reports on; the driver commits."""

    def __init__(self, settings: SinkSettings) -> None:
        self.settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Reports:
        return Reports([report for batch in iterator for report in batch.column("report").to_pylist()])

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        try:
            commit_batch(self.settings, batchId, _reports(messages))
        except Exception as error:
            raise TaskFailed(of_platform(error)) from error

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        log = StreamLog(self.settings.log, create=False)
        log.discard(_staged(_reports(messages)))


def commit_batch(settings: SinkSettings, batch: int, reports: list[Report]) -> bool:
    """Make a batch's output part of its streams, exactly once. Returns False where that has happened before."""
    log = StreamLog(settings.log, create=False)
    recorder = Recorder(log, settings.job, settings.checkpoint_id)
    reports = sorted(reports, key=lambda report: report.task)
    appends: list[StagedRows | ControlAppend] = [*_staged(reports)]
    by_target: dict[tuple[str, int | None], list[ControlMessage]] = {}
    recorded = []
    for report in reports:
        for stream, partition, message in report.controls:
            by_target.setdefault((stream, partition), []).append(control_from_json(message))
        row: dict[str, Any] = asdict(report)
        del row["staged"]
        row["control_sent"] = sum(
            log.stream(stream).partitions if partition is None else 1 for stream, partition, _ in row.pop("controls")
        )
        recorded.append(row)
    appends += [
        ControlAppend(stream, partition, ControlRun.from_messages(messages))
        for (stream, partition), messages in by_target.items()
    ]
    used_up = [
        receipt for token in {report.restarted for report in reports} for receipt in settings.consumed.get(token, ())
    ]

    def also(connection: sqlite3.Connection) -> None:
        recorder.record_batch(connection, batch, settings.run_id, time.time_ns() // 1_000_000, recorded)
        if used_up:
            remove_consumed_in(connection, settings.application or settings.job, used_up)

    try:
        return log.commit(
            settings.checkpoint_id,
            batch,
            appends,
            fence=(settings.job, settings.epoch),
            also=also,
        )
    except SchemaMismatch as mismatch:
        if mismatch.stream in settings.intermediate:
            raise SchemaMismatch.between_stages(mismatch) from mismatch
        raise


def _reports(messages: list[WriterCommitMessage | None]) -> list[Report]:
    return [Report.from_json(text) for message in messages if isinstance(message, Reports) for text in message.reports]


def _staged(reports: list[Report]) -> list[StagedRows]:
    return [StagedRows.from_json(staged) for report in reports for staged in report.staged]
