"""The record of a job: its runs, its batches, and the newest bookkeeping of each task, in the log's database.

A batch is recorded in the transaction that commits its output, so the record never tells of anything that did not happen.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from workbench.errors import InvalidOption
from workbench.systems.log import StreamLog

_SCHEMA = """
CREATE TABLE IF NOT EXISTS telemetry_run (
    run_id TEXT NOT NULL, job TEXT NOT NULL, started INTEGER NOT NULL, ended INTEGER, status TEXT NOT NULL,
    failure TEXT, plan TEXT NOT NULL,
    PRIMARY KEY (run_id, job)
) STRICT;
CREATE TABLE IF NOT EXISTS telemetry_batch (
    job TEXT NOT NULL, checkpoint_id TEXT NOT NULL, batch INTEGER NOT NULL, run_id TEXT NOT NULL,
    committed INTEGER NOT NULL, summary TEXT NOT NULL, reports BLOB NOT NULL,
    PRIMARY KEY (job, checkpoint_id, batch)
) STRICT;
CREATE TABLE IF NOT EXISTS telemetry_task (
    job TEXT NOT NULL, checkpoint_id TEXT NOT NULL, task INTEGER NOT NULL, batch INTEGER NOT NULL,
    generation INTEGER NOT NULL, done TEXT NOT NULL, open_rows INTEGER NOT NULL, bookkeeping BLOB NOT NULL,
    PRIMARY KEY (job, checkpoint_id, task)
) STRICT;
"""

_SUMMED = ("input_messages", "control_messages", "output_messages", "late_messages", "control_sent")


@dataclass(frozen=True)
class RunRecord:
    """One deployment. Times are milliseconds since the epoch; `plan` is what `Recorder.start_run` was given."""

    run_id: str
    job: str
    started: int
    ended: int | None
    status: str
    failure: dict[str, str] | None
    plan: dict[str, Any]


@dataclass(frozen=True)
class BatchRecord:
    """One committed batch; `reports` holds one dictionary for each task that had work."""

    batch: int
    run_id: str
    committed: int
    summary: dict[str, Any]
    reports: list[dict[str, Any]]


class Recorder:
    """Reads and writes the record of one job under one checkpoint."""

    def __init__(self, log: StreamLog, job: str, checkpoint_id: str) -> None:
        self.log = log
        self.job = job
        self.checkpoint_id = checkpoint_id

    def prepare(self) -> None:
        """Create the tables. Called once by the deployment."""
        with self.log.transaction() as connection:
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)

    def start_run(self, run_id: str, started: int, plan: dict[str, Any]) -> None:
        """Begin a run, or go on with one of the same id.

        Jobs of one split application (`plan["application"]`) may share an id: they are one deployment. Raises
        `InvalidOption` if a job of another application has a run of that id.
        """
        with self.log.transaction() as connection:
            for job, application in self._applications("run_id = ?", run_id):
                if job != self.job and application != plan.get("application", self.job):
                    raise InvalidOption.run_id_taken(run_id, application)
            connection.execute(
                "INSERT INTO telemetry_run VALUES (?, ?, ?, NULL, 'running', NULL, ?) ON CONFLICT (run_id, job) DO UPDATE"
                " SET started = excluded.started, ended = NULL, status = 'running', failure = NULL, plan = excluded.plan",
                (run_id, self.job, started, json.dumps(plan)),
            )

    def settle(self, ended: int, status: str) -> None:
        """Give a status to runs that are on record as running: `status` to the one that has done the last batch, "lost"
        to others. For who holds the job's lock: so none of them is running."""
        last = self._rows(
            "SELECT run_id FROM telemetry_batch WHERE job = ? AND checkpoint_id = ? ORDER BY batch DESC LIMIT 1",
            (self.job, self.checkpoint_id),
        )
        with self.log.transaction() as connection:
            connection.execute(
                "UPDATE telemetry_run SET ended = ?, status = iif(run_id = ?, ?, 'lost') WHERE job = ? AND status = 'running'",
                (ended, last[0][0] if last else None, status, self.job),
            )

    def runs_with_batches(self) -> set[str]:
        """Ids of the runs of this job that have committed anything."""
        rows = self._rows("SELECT DISTINCT run_id FROM telemetry_batch WHERE job = ?", (self.job,))
        return {run_id for (run_id,) in rows}

    def end_run(self, run_id: str, ended: int, status: str, failure: dict[str, str] | None) -> None:
        with self.log.transaction() as connection:
            connection.execute(
                "UPDATE telemetry_run SET ended = ?, status = ?, failure = ? WHERE run_id = ? AND job = ?",
                (ended, status, json.dumps(failure) if failure else None, run_id, self.job),
            )

    def record_batch(
        self, connection: sqlite3.Connection, batch: int, run_id: str, committed: int, reports: Sequence[dict[str, Any]]
    ) -> None:
        """Add a batch inside the transaction that commits it. `reports` are the tasks' reports, without their output."""
        kept = [
            {name: value for name, value in report.items() if name not in ("drain", "generation")}
            | {"inputs": _without_bookkeeping(report["inputs"])}
            for report in reports
        ]
        summary: dict[str, Any] = {name: sum(report[name] for report in reports) for name in _SUMMED}
        summary["tasks"] = len(reports)
        summary["generation"] = max((report["generation"] for report in reports), default=None)
        summary["drain"] = next((report["drain"] for report in reports), None)
        connection.execute(
            "INSERT INTO telemetry_batch VALUES (?, ?, ?, ?, ?, ?, ?)",
            (self.job, self.checkpoint_id, batch, run_id, committed, json.dumps(summary), _packed(kept)),
        )
        connection.executemany(
            "INSERT OR REPLACE INTO telemetry_task VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    self.job,
                    self.checkpoint_id,
                    report["task"],
                    batch,
                    report["generation"],
                    report["done"],
                    report["open_rows"],
                    _packed({stream: of["bookkeeping"] for stream, of in report["inputs"].items()}),
                )
                for report in reports
            ],
        )

    def run(self, run_id: str) -> RunRecord | None:
        rows = self._rows("SELECT * FROM telemetry_run WHERE run_id = ? AND job = ?", (run_id, self.job))
        return _run_record(rows[0]) if rows else None

    def runs_elsewhere(self, run_id: str) -> bool:
        """Whether another job, of the same split application, is on record as running under that id."""
        return bool(
            self._rows(
                "SELECT 1 FROM telemetry_run WHERE run_id = ? AND job <> ? AND status = 'running'", (run_id, self.job)
            )
        )

    def jobs_of(self, application: str) -> list[str]:
        """All jobs that ever ran of an application: itself, or its parts."""
        return sorted({job for job, of in self._applications("1 = ?", 1) if of == application})

    def _applications(self, condition: str, value: Any) -> list[tuple[str, str]]:
        """(job, application) of runs; none in a log on which nothing was ever deployed."""
        if not self._rows("SELECT 1 FROM sqlite_master WHERE name = 'telemetry_run'", ()):
            return []
        rows = self._rows(f"SELECT DISTINCT job, plan FROM telemetry_run WHERE {condition}", (value,))
        return [(job, json.loads(plan).get("application", job)) for job, plan in rows]

    def runs(self) -> list[RunRecord]:
        """All runs of this job, oldest first; none in a log on which nothing was ever deployed."""
        if not self._rows("SELECT 1 FROM sqlite_master WHERE name = 'telemetry_run'", ()):
            return []
        return [
            _run_record(row)
            for row in self._rows("SELECT * FROM telemetry_run WHERE job = ? ORDER BY started", (self.job,))
        ]

    def batches(self, after: int = -1) -> list[BatchRecord]:
        """All batches of this checkpoint after the given one, in order, with the tasks' reports."""
        rows = self._rows(
            "SELECT batch, run_id, committed, summary, reports FROM telemetry_batch"
            " WHERE job = ? AND checkpoint_id = ? AND batch > ? ORDER BY batch",
            (self.job, self.checkpoint_id, after),
        )
        return [
            BatchRecord(batch, run_id, committed, json.loads(summary), _unpacked(reports))
            for batch, run_id, committed, summary, reports in rows
        ]

    def last_batch(self) -> int:
        """Number of the newest committed batch, −1 before the first."""
        rows = self._rows(
            "SELECT max(batch) FROM telemetry_batch WHERE job = ? AND checkpoint_id = ?", (self.job, self.checkpoint_id)
        )
        return -1 if rows[0][0] is None else int(rows[0][0])

    def done_tasks(self, generation: int) -> dict[int, str]:
        """Tasks that are done in a generation, and how: "ended" or "drained"."""
        rows = self._rows(
            "SELECT task, done FROM telemetry_task WHERE job = ? AND checkpoint_id = ? AND generation = ? AND done <> ''",
            (self.job, self.checkpoint_id, generation),
        )
        return dict(rows)

    def open_rows(self) -> dict[int, int]:
        """Per task how many rows it holds for times to come."""
        rows = self._rows(
            "SELECT task, open_rows FROM telemetry_task WHERE job = ? AND checkpoint_id = ?",
            (self.job, self.checkpoint_id),
        )
        return dict(rows)

    def bookkeeping(self) -> dict[int, dict[str, Any]]:
        """Per task and input stream, the newest bookkeeping as `Reconciliation.to_json` wrote it."""
        rows = self._rows(
            "SELECT task, bookkeeping FROM telemetry_task WHERE job = ? AND checkpoint_id = ?",
            (self.job, self.checkpoint_id),
        )
        return {task: _unpacked(bookkeeping) for task, bookkeeping in rows}

    def with_checkpoint(self, checkpoint_id: str) -> Recorder:
        return Recorder(self.log, self.job, checkpoint_id)

    def _rows(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        with closing(self.log.connection().execute(query, values)) as cursor:
            return cursor.fetchall()


def _without_bookkeeping(inputs: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {stream: {name: of[name] for name in of if name != "bookkeeping"} for stream, of in inputs.items()}


def _packed(value: Any) -> bytes:
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode(), level=1)


def _unpacked(packed: bytes) -> Any:
    return json.loads(zlib.decompress(packed))


def _run_record(row: tuple[Any, ...]) -> RunRecord:
    record = RunRecord(*row)
    return replace(
        record,
        failure=json.loads(row[5]) if row[5] else None,
        plan=json.loads(row[6]),
    )
