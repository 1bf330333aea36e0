"""The other jobs of a split application, as the log tells of them: who still writes, who has read what, what holds.

No job talks to another. Each decides from the records of the others, and notes what it decided in its plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.engine.batch_plan import BatchPlan, read_plan
from workbench.errors import SplitConflict
from workbench.graph.stages import JobOutline, OutputStream
from workbench.messages import MAX_TIMESTAMP, ControlMessage, ControlRun, EndOfStreamMessage, WatermarkMessage
from workbench.messages.tasks import task_of_stored
from workbench.systems.log import StreamLog
from workbench.systems.log.index import Ref
from workbench.telemetry.recorder import Recorder, RunRecord

_NEVER = -1


@dataclass(frozen=True)
class OtherJob:
    """Another job of the same application; `run` is its newest, None if it was never deployed."""

    log: StreamLog
    recorder: Recorder
    run: RunRecord | None

    @classmethod
    def find(cls, log: StreamLog, job: str) -> OtherJob:
        recorder = Recorder(log, job, "")
        runs = recorder.runs()
        if not runs:
            return cls(log, recorder, None)
        return cls(log, recorder.with_checkpoint(runs[-1].plan["checkpoint_id"]), runs[-1])

    @property
    def generation(self) -> int:
        """The one to which its next message belongs: a job that has drained begins a new one. −1: never deployed."""
        if self.run is None:
            return _NEVER
        newest = int(self.run.plan["generation"])
        return newest + int(self._is_done(newest) and "drained" in self.recorder.done_tasks(newest).values())

    def sends_drain_of(self, run_id: str) -> bool:
        """Whether it has sent, or will send, drain markers for that run in-band, or has ended everything."""
        if self.run is None or self.run.status not in ("running", "drained", "finished"):
            return False
        plan = read_plan(self._checkpoint(self.run))
        if plan is not None and plan.drain is not None and plan.generation >= self.run.plan["generation"]:
            return plan.drain.run_id == run_id
        return self.run.run_id == run_id

    def unread(self, stream: str) -> int:
        """How many messages of a stream it has not consumed, rows and what upstream tasks say."""
        return count_unread(self.log, stream, self._positions(stream))

    def check_ready(self, job: str, written: OutputStream) -> None:
        """Raise `SplitConflict` unless `job`, which writes a stream that this job reads, may begin a new generation.

        What it says of time is not true any more then. So this job must have drained, or have heard nothing since it
        began anew; and there must be nothing left that it has not read, as the stream is made new.
        """
        stream = written.stream
        if stream not in self.log:
            return
        name = self.recorder.job
        left = self.unread(stream)
        if left:
            raise SplitConflict.unread(job, stream, name, left)
        if self.run is None or self.run.status == "abandoned":
            return
        committed = self._committed(self.run)
        newest = int(self.run.plan["generation"])
        if committed is None or committed.generation < newest or not self._has_heard(stream, newest):
            known = JobOutline.from_json(self.run.plan["outline"]).input(stream).partitions
            if known != written.partitions:
                raise SplitConflict.deployed_too_early(job, stream, name, written.partitions)
        elif self.run.status == "running" or not self._is_done(newest):
            raise SplitConflict.undrained(job, stream, name)

    def _is_done(self, generation: int) -> bool:
        assert self.run is not None
        return len(self.recorder.done_tasks(generation)) == int(self.run.plan["outline"]["tasks"])

    def _has_heard(self, stream: str, generation: int) -> bool:
        """Whether some task has heard upstream tasks in this generation."""
        if self._is_done(generation):
            return True
        kept = [of[stream] for of in self.recorder.bookkeeping().values() if stream in of]
        return any(of["watermark"]["tasks"] or of["end"]["tasks"] or of["drain"]["tasks"] for of in kept)

    def _positions(self, stream: str) -> Mapping[int, int]:
        """Partition → the next offset that all who read it have committed to; nothing where it never ran."""
        committed = None if self.run is None else self._committed(self.run)
        if self.run is None or committed is None or stream not in committed.positions:
            return {}
        outline = JobOutline.from_json(self.run.plan["outline"])
        found: dict[int, int] = {}
        lanes = outline.input(stream).lanes(outline.tasks)
        for (_, partition), offset in zip(lanes, committed.positions[stream], strict=True):
            found[partition] = min(offset, found.get(partition, offset))
        return found

    def _committed(self, run: RunRecord) -> BatchPlan | None:
        return read_plan(self._checkpoint(run), self.recorder.last_batch())

    def _checkpoint(self, run: RunRecord) -> Path:
        return Path(run.plan["checkpoint"])


def check_readers(log: StreamLog, job: str, outputs: Iterable[OutputStream]) -> None:
    """Whether `job` may begin a new generation: see `OtherJob.check_ready`."""
    for written in outputs:
        if written.reader:
            OtherJob.find(log, written.reader).check_ready(job, written)


def count_unread(log: StreamLog, stream: str, positions: Mapping[int, int]) -> int:
    """Messages from `positions` on (partition → offset; by default the oldest), less what the reader itself has said."""
    held, count = log.stream(stream), 0
    for partition, (oldest, head) in enumerate(zip(held.oldest(), held.heads(), strict=True)):
        first = positions.get(partition, oldest)
        refs = log.resolve(stream, partition, first if oldest <= first <= head else oldest, head)
        count += sum(len(from_upstream(ref)) if "ctl" in ref else ref["c"] for ref in refs)
    return count


def from_upstream(ref: Ref) -> ControlRun:
    """Of a run of control messages those that an upstream task says; the others are the readers' word to each other."""
    return ControlRun.from_messages(message for message in ControlRun.from_json(ref["ctl"]) if not message.direct)


def said_before(kept: Mapping[str, Any]) -> ControlRun | None:
    """What upstream tasks have said of an SSP, by its bookkeeping, in messages that say it again; None if nothing.

    For a reader that begins a new generation while they go on: they say it once. Ends of the whole SSP are not in it.
    """
    ends, watermarks = kept["end"], kept["watermark"]
    messages: list[ControlMessage] = []
    for task, time in zip(watermarks["tasks"], watermarks["times"], strict=True):
        if time < MAX_TIMESTAMP and task not in ends["tasks"]:
            messages.append(WatermarkMessage(time, str(task_of_stored(task)), watermarks["total"] or None))
    for task in ends["tasks"]:
        messages.append(EndOfStreamMessage(kept["ssp"][1], str(task_of_stored(task)), ends["total"] or None))
    return ControlRun.from_messages(messages) if messages else None


def has_ended(kept: Mapping[str, Any]) -> bool:
    """Whether an SSP has ended, by its bookkeeping ({}: nothing is known of it)."""
    end = kept.get("end", {})
    return bool(end.get("direct") or end.get("agreed"))
