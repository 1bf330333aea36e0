"""A run: the handle of a deployed job."""

from __future__ import annotations

import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from workbench.drain import write_notification
from workbench.engine import hold
from workbench.engine.batch_plan import read_plan
from workbench.engine.drains import clean_up_all_runs, in_flight_frame
from workbench.engine.failures import Failure, from_trace, of_lost_jvm
from workbench.engine.hold import Hold
from workbench.engine.left import ABANDONED
from workbench.engine.views import Record
from workbench.errors import DrainTimeout, InvalidOption, NotRunning, RunFailed, RunTimeout
from workbench.graph.stages import InputStream, JobPlan
from workbench.names import task_name
from workbench.progress import ProgressSnapshot, progress_for
from workbench.systems.log import LogLock, StreamLog
from workbench.telemetry.recorder import Recorder

if TYPE_CHECKING:
    pass

_POLL_SECONDS = 0.1
_SHOW_SECONDS = 0.25
_STOPPING_SECONDS = 5.0


class Run(Record):
    """One deployment of a job. Made by `Application.deploy`; everything it shows comes from the log's record.

    `status` is "running", "paused" or "draining", then "finished" (all inputs ended and all is committed), "drained", "stopped",
    "abandoned" or "failed".
    """

    def __init__(
        self,
        *,
        run_id: str,
        plan: JobPlan,
        log: StreamLog,
        recorder: Recorder,
        query: StreamingQuery,
        lock: LogLock,
        started: int,
        checkpoint: Path,
        generation: int,
    ) -> None:
        super().__init__(log, plan.outline, recorder)
        self.run_id = run_id
        self.application = plan.application
        self.query = query
        self.failure: Failure | None = None
        self._lock = lock
        self._started = started
        self._checkpoint = checkpoint
        self._generation = generation
        self._status = "running"
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name=f"tidemark {run_id}", daemon=True)
        self._watcher.start()

    @property
    def status(self) -> str:
        if self._status != "running":
            return self._status
        if self._drain_in_progress():
            return "draining"
        held = hold.get(self.log.metadata, self.application)
        return "paused" if held is not None and held.by == "pause" and held.run_id == self.run_id else "running"

    def wait(self, timeout: float | None = None, *, progress: bool = True) -> Run:
        """Block until the run has ended, showing progress where somebody can see it. Returns this run.

        Raises `RunFailed` if it failed, and after `timeout` seconds `RunTimeout`, which says what the run waits for; the
        run goes on then.
        """
        display = progress_for() if progress else None
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while not self._ended.wait(_SHOW_SECONDS):
                if display is not None:
                    display.update(self.progress())
                if deadline is not None and time.monotonic() > deadline:
                    raise RunTimeout.waiting_for(self.run_id, timeout or 0.0, self.waiting_for())
            if display is not None:
                display.update(self.progress())
        finally:
            if display is not None:
                display.close(self._status)
        if self.failure is not None:
            raise RunFailed.with_report(self.run_id, str(self.failure), self.failure.trace)
        return self

    def drain(self, timeout: float | None = None, *, then: str = "go on", wait: bool = True) -> Run:
        """Drain: take no more from the sources, finish all that was admitted, emit what windows hold, and end.

        This is final: the next deployment starts with nothing in flight, so it may change everything between the stages.
        What is emitted early says so in its column `drained`. Goes through a pause. Blocks until the run has drained, or
        (`wait=False`) returns at once. After `timeout` seconds raises `DrainTimeout`, which says which task owes what;
        then the drain goes on (`then="go on"`), or is interrupted (`then="stop"`): the next deployment goes on with it,
        or, if it had not begun, one with the same `run_id` takes it up.
        Raises `NotRunning`, and `RunFailed` as `wait` does. Source: "Drain" design document.
        """
        if then not in ("go on", "stop"):
            raise InvalidOption.of_choice("then", then, ("go on", "stop"))
        if self._ended.is_set():
            raise NotRunning.to_drain(self.run_id, self._status)
        write_notification(self.log.metadata, self.run_id)
        if not wait:
            return self
        try:
            return self.wait(timeout)
        except RunTimeout as late:
            owed = self.explain_drain() or self.waiting_for()
            if then == "stop":
                self.stop()
            plan = read_plan(self._checkpoint)
            begun = plan is not None and plan.drain is not None and plan.generation == self._generation
            raise DrainTimeout.owing(self.run_id, timeout or 0.0, owed, stopped=then == "stop", begun=begun) from late

    def pause(self) -> Run:
        """Plan no more batches, until `resume`. The query goes on; watermarks stand still. Raises `NotRunning`."""
        if self._ended.is_set():
            raise NotRunning.to_hold(self.run_id, self._status)
        hold.put(self.log.metadata, self.application, Hold("pause", self.run_id))
        return self

    def resume(self) -> Run:
        """End a pause."""
        hold.lift(self.log.metadata, self.application)
        return self

    def abandon(self, timeout: float = 60.0) -> pd.DataFrame:
        """Stop, and give up what is in flight: unread messages between the stages, and rows that tasks hold.

        The next deployment goes on where the sources were read up to, with nothing of before, so it may change everything
        between the stages, as after a drain; but what was in flight is in no result. Returns how much that is: one row
        for each task, with `unread_messages` of intermediate streams and `open_rows` in windows.
        """
        self.stop(timeout)
        if self._status not in ("stopped", "failed"):
            raise NotRunning.to_hold(self.run_id, self._status)
        unread = {
            (stream, lane): count
            for (stream, lane), count in self._unread().items()
            if not self.outline.input(stream).external  # those wait for the next run, as in a source
        }
        given_up = in_flight_frame(self.outline, unread, self._recorder.open_rows())
        self._recorder.end_run(self.run_id, time.time_ns() // 1_000_000, ABANDONED, None)
        self._status = ABANDONED
        return given_up

    def stop(self, timeout: float = 60.0) -> Run:
        """Stop between batches. Everything is kept for the next run, and no watermark moves. Returns this run.

        A batch that has not ended after `timeout` seconds is given up; the next run does it again.
        """
        if self._ended.is_set():
            return self
        hold.put(self.log.metadata, self.application, Hold("stop", self.run_id))
        deadline = time.monotonic() + timeout
        while self._in_batch() and time.monotonic() < deadline and not self._ended.is_set():
            time.sleep(_POLL_SECONDS / 2)
        self.query.stop()
        self._ended.wait(timeout)
        return self

    def waiting_for(self) -> list[str]:
        """What keeps the run from finishing, in sentences; empty if nothing does."""
        tally, sentences = self._counted(), []
        for read in self.outline.inputs:
            tasks = tally.open_tasks(read.stream)
            if tasks and read.entering:
                shown = ", ".join(map(task_name, tasks[:4])) + (f" and {len(tasks) - 4} more" if len(tasks) > 4 else "")
                unread = self._unread_of(read)
                more = f", where {unread:,} messages are not read yet" if unread else ""
                sentences.append(f"the end of the input stream {read.stream!r} in {shown}{more}")
        if self.status == "paused":
            sentences.insert(0, "run.resume(): it is paused")
        return sentences

    def _unread_of(self, read: InputStream) -> int:
        """Messages of an input that no committed batch has read."""
        plan = read_plan(self._checkpoint, self._recorder.last_batch())
        heads, oldest = self.log.stream(read.stream).heads(), self.log.stream(read.stream).oldest()
        lanes = read.lanes(self.outline.tasks)
        positions = [oldest[partition] for _, partition in lanes] if plan is None else plan.positions[read.stream]
        return sum(heads[partition] - offset for (_, partition), offset in zip(lanes, positions, strict=True))

    def progress(self) -> ProgressSnapshot:
        """How far the run is; `total` counts what the source streams hold now."""
        sources = [read.stream for read in self.outline.inputs if read.entering]
        tally = self._counted()
        held = 0
        for source in sources:
            stream = self.log.stream(source)
            held += sum(stream.heads()) - sum(stream.oldest())
        return ProgressSnapshot(
            messages=min(tally.source_messages, held),
            total=held,
            batches=tally.batches,
            lowest_watermark=tally.lowest_watermark,
            late=tally.late_messages,
            elapsed_s=time.time() - self._started / 1000,
            status=self.status,
        )

    def __repr__(self) -> str:
        return f"<run {self.run_id} of {self.application!r}: {self.status}, {self._counted().batches} batches>"

    def _in_batch(self) -> bool:
        return bool(self.query.isActive and self.query.status["isTriggerActive"])

    def _watch(self) -> None:
        """The watcher thread: notices the end of the run, ends the query, releases the lock. Sets state, prints nothing."""
        try:
            status = self._watch_query()
        except (Py4JError, ConnectionError) as error:
            status = "stopped" if _session_was_stopped() else "failed"
            if status == "failed":
                self.failure = of_lost_jvm(error)
        except Exception as error:  # the watcher is the last to see it: it must become state, or nobody hears of it
            self.failure = from_trace(f"{type(error).__name__}: {error}")
            status = "failed"
        failure = None if self.failure is None else asdict(self.failure)
        try:
            self._recorder.end_run(self.run_id, time.time_ns() // 1_000_000, status, failure)
            if status in ("finished", "drained"):
                clean_up_all_runs(self.log.metadata, self._recorder)
        finally:
            self._lock.release()
            self._status = status
            self._ended.set()

    def _watch_query(self) -> str:
        while len(done := self._recorder.done_tasks(self._generation)) < self.outline.tasks:
            if not self.query.isActive:
                error = self._exception()
                if error is None:
                    return "stopped"
                self.failure = from_trace(error)
                return "failed"
            time.sleep(_POLL_SECONDS)
        last = self._checkpoint / "commits" / str(self._recorder.last_batch())
        # However long that takes: a run that died between the log's commit and Spark's begins with that batch again.
        while self.query.isActive and not (last.exists() and self._is_waiting()):
            time.sleep(_POLL_SECONDS / 5)
        self.query.stop()
        return "drained" if "drained" in done.values() else "finished"

    def _drain_in_progress(self) -> bool:
        tally = self._counted()
        return tally.drain is not None and tally.generation == self._generation

    def _is_waiting(self) -> bool:
        """Whether the query has begun and is between batches. Stopped before, Spark's Python processes would complain."""
        status = self.query.status
        return not status["isTriggerActive"] and not status["message"].startswith("Initializing")

    def _exception(self) -> str | None:
        try:
            error: PySparkException | None = self.query.exception()
        except PySparkException as raised:
            error = raised
        return None if error is None else str(error)


def _session_was_stopped() -> bool:
    """Whether this process lets go of Spark itself. The JVM may be gone some moments before PySpark has noted it."""
    deadline = time.monotonic() + _STOPPING_SECONDS
    while time.monotonic() < deadline:
        if SparkContext._gateway is None or SparkContext._active_spark_context is None:
            return True
        time.sleep(_POLL_SECONDS)
    return False
