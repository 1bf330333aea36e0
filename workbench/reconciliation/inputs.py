"""The reconciliation of one SSP: many control messages from upstream tasks in, the single ones to act on out.

Source: "Control messages" design document: each task keeps its own bookkeeping, so that a control message reaches its
operators once all upstream tasks have sent it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from workbench.messages import (
    MAX_TIMESTAMP,
    ControlMessage,
    ControlRun,
    DrainMessage,
    EndOfStreamMessage,
    MessageType,
    WatermarkMessage,
)
from workbench.names import SSP
from workbench.reconciliation.endings import DrainBookkeeping, EndOfStreamBookkeeping
from workbench.reconciliation.idle import IdleClock, IdlePolicy, Silence
from workbench.reconciliation.states import InputState
from workbench.reconciliation.watermarks import WatermarkBookkeeping

_WATERMARK, _END_OF_STREAM = int(MessageType.WATERMARK), int(MessageType.END_OF_STREAM)


class BookkeepingRow(NamedTuple):
    """One thing that was heard: "watermark", "end of stream" or "drain", from an upstream task (None: direct)."""

    kind: str
    upstream: str | None
    value: int | None
    """The timestamp of a watermark, else None."""
    total: int | None
    """How many upstream tasks have to say so, if that is known."""


class Reconciliation:
    """Bookkeeping of watermarks, ends and drains of `ssp`; what it returns are direct messages, to be acted on in order.

    `run_id` is the run whose drains count. `expected_tasks` is for upstream jobs that do not say how many tasks they
    have: the largest of it and of the counts in the messages is waited for. Times are milliseconds; `now_ms` is any
    clock that goes on, and is needed only for an idle timeout (see `IdlePolicy`): None stands for the time that was
    given last. Raises `InvalidIdlePolicy`.

    Beyond the three sets of bookkeeping by themselves:
    - An upstream task that ended has said all it will ever say of time: its watermark is the largest one.
    - When the stream has ended or is drained, so has its time: the watermark reaches the largest before the end or the
      drain is returned. After an end nothing is returned.
    - An upstream task that ended is not waited for in a drain.
    """

    def __init__(
        self,
        ssp: SSP,
        run_id: str | None = None,
        *,
        idle_timeout_ms: int | None = None,
        quorum: float = 0.5,
        expected_tasks: int = 0,
    ) -> None:
        self.ssp = ssp
        self.watermarks = WatermarkBookkeeping()
        self.ends = EndOfStreamBookkeeping()
        self.drains = DrainBookkeeping(run_id)
        self.clock = IdleClock()
        self._heard = 0
        self._idle = False
        self._configure(IdlePolicy(idle_timeout_ms, quorum), expected_tasks)

    def in_run(
        self,
        run_id: str | None,
        *,
        idle_timeout_ms: int | None = None,
        quorum: float = 0.5,
        expected_tasks: int = 0,
    ) -> Reconciliation:
        """Go on in that run, under its options. In another run nobody has drained yet, and nothing is held.

        The time between the two runs is no silence: nobody was there to hear.
        """
        if run_id != self.drains.run_id:
            ends = self.ends
            self.drains = DrainBookkeeping(
                run_id, ended=set(ends.tasks), total=ends.total, other_runs=self.drains.other_runs
            )
            self.clock.restart()
        self._configure(IdlePolicy(idle_timeout_ms, quorum), expected_tasks)
        return self

    def start_generation(self) -> None:
        """Forget all that was heard, as after a drain or a rewind: nothing that comes is late by what was before."""
        policy, self.watermarks = self.watermarks.silence.policy, WatermarkBookkeeping()
        self.watermarks.silence = Silence.starting(policy, self.clock.elapsed)
        self.ends = EndOfStreamBookkeeping()
        self.drains = DrainBookkeeping(self.drains.run_id, other_runs=self.drains.other_runs)
        self._heard, self._idle = self.clock.elapsed, False
        self._expect(self._expected_tasks)

    def _configure(self, policy: IdlePolicy, expected_tasks: int) -> None:
        silence = self.watermarks.silence
        if policy.watching and silence.watching:
            silence.policy = policy
        else:
            self.watermarks.silence = Silence.starting(policy, self.clock.elapsed)
            self._idle = False
        self._expect(expected_tasks)

    def _expect(self, tasks: int) -> None:
        self._expected_tasks = tasks
        self.watermarks.expect(tasks, self.clock.elapsed)
        self.ends.expect(tasks)
        self.drains.expect(tasks)

    # What can be asked.

    @property
    def watermark(self) -> int | None:
        """The reconciled watermark: what was returned last. None: not yet known."""
        return self.watermarks.emitted

    @property
    def ended(self) -> bool:
        return self.ends.reached

    @property
    def drained(self) -> bool:
        return self.drains.reached

    @property
    def finished(self) -> bool:
        return self.ended or self.drained

    @property
    def state(self) -> InputState:
        if self.finished:
            return InputState.FINISHED
        if self.clock.held:
            return InputState.HELD
        if self._idle:
            return InputState.IDLE
        return InputState.UNKNOWN if self.watermark is None else InputState.ACTIVE

    def rows(self) -> Iterator[BookkeepingRow]:
        """All that was heard, for display."""
        watermarks, ends, drains = self.watermarks, self.ends, self.drains
        for task, timestamp in watermarks.tasks.items():
            yield BookkeepingRow("watermark", task, timestamp, watermarks.total or None)
        if watermarks.direct is not None:
            yield BookkeepingRow("watermark", None, watermarks.direct, watermarks.total or None)
        for kind, bookkeeping in (("end of stream", ends), ("drain", drains)):
            for task in sorted(bookkeeping.tasks):
                yield BookkeepingRow(kind, task, None, bookkeeping.total or None)
            if bookkeeping.direct:
                yield BookkeepingRow(kind, None, None, bookkeeping.total or None)

    # What can be told.

    def apply(self, message: ControlMessage, *, now_ms: int | None = None) -> list[ControlMessage]:
        """The specification: book one message, and return the reconciled messages that it completes."""
        elapsed = self._hear(now_ms)
        ended = drained = False
        match message:
            case WatermarkMessage(timestamp, task, count):
                self.watermarks.hear(timestamp, task, count, elapsed)
            case EndOfStreamMessage(_, task, count):
                self.watermarks.hear(MAX_TIMESTAMP, task, count, elapsed)
                ended, drained = self._book_end(task, count)
            case DrainMessage(run_id, task, count):
                drained = self._book_drain(run_id, task, count)
        return self._completed(ended, drained)

    def apply_run(self, run: ControlRun, *, now_ms: int | None = None) -> list[ControlMessage]:
        """Book a whole run. Ends in the state that `apply` for each message does, with the same last message.

        Of watermarks only the last is returned, and the last before an end or a drain.
        """
        if not len(run):
            return []
        elapsed = self._hear(now_ms)
        completed: list[ControlMessage] = []
        first = 0
        for index, kind in enumerate(run.types):
            if kind == _WATERMARK:
                continue
            task, count, ended, drained = run.task_names[index], run.task_counts[index], False, False
            if kind == _END_OF_STREAM:
                ended, drained = self._book_end(task, count)
            else:
                drained = self._book_drain(run.texts[index] or "", task, count)
            if ended or drained:
                self._hear_watermarks(run[first : index + 1], elapsed)
                completed += self._completed(ended, drained)
                first = index + 1
        self._hear_watermarks(run[first:] if first else run, elapsed)
        return completed + self._completed(ended=False, drained=False)

    def tick(self, now_ms: int) -> list[ControlMessage]:
        """Time has passed: who is silent now? Call it when all that could be read at `now_ms` has been applied."""
        elapsed = self.clock.observe(now_ms)
        timeout = self.watermarks.silence.policy.timeout_ms
        if timeout is not None and not self.clock.held:
            self._idle = elapsed - self._heard >= timeout
        self.watermarks.tick(elapsed)
        return self._completed(ended=False, drained=False)

    def heard_data(self, now_ms: int) -> None:
        """Rows came. They do not say from which task, but the input is not idle."""
        self._hear(now_ms)

    def hold(self, now_ms: int) -> None:
        """We stop reading it ourselves: its silence from now on is ours."""
        self.clock.hold(now_ms)

    def release(self, now_ms: int) -> None:
        self.clock.release(now_ms)

    # How.

    def _hear(self, now_ms: int | None) -> int:
        self._heard = self.clock.observe(now_ms)
        self._idle = False
        return self._heard

    def _hear_watermarks(self, run: ControlRun, elapsed: int) -> None:
        """The watermarks of a run, and its ends, which are watermarks too. Drains say nothing of time."""
        run = run.without(MessageType.DRAIN)
        self.watermarks.hear_all(run.timestamps, run.task_names, run.task_counts, elapsed)
        self.watermarks.settle()

    def _book_end(self, task: str | None, count: int | None) -> tuple[bool, bool]:
        """(the stream has ended by this, the drain is reached by this)"""
        ended = self.ends.hear(task, count)
        drained = self.drains.hear_end(task, count)
        if ended or drained:
            self.watermarks.hear(MAX_TIMESTAMP, None, 0)
        return ended, drained

    def _book_drain(self, run_id: str, task: str | None, count: int | None) -> bool:
        """Whether the drain is reached by this. Then nothing comes any more, so time is over too, however watermarks travel."""
        drained = self.drains.hear(run_id, task, count)
        if drained:
            self.watermarks.hear(MAX_TIMESTAMP, None, 0)
        return drained

    def _completed(self, ended: bool, drained: bool) -> list[ControlMessage]:
        completed: list[ControlMessage] = []
        advanced = self.watermarks.advance()
        if advanced is not None:
            completed.append(WatermarkMessage(advanced))
        if ended:
            completed.append(EndOfStreamMessage(self.ssp.stream))
        elif drained and not self.ended and self.drains.run_id is not None:
            completed.append(DrainMessage(self.drains.run_id))
        return completed

    # Checkpoint.

    def to_json(self) -> dict[str, Any]:
        """Everything, in plain JSON types."""
        policy = self.watermarks.silence.policy
        return {
            "ssp": list(self.ssp),
            "watermark": self.watermarks.to_json(),
            "end": self.ends.to_json(),
            "drain": self.drains.to_json(),
            "idle": [policy.timeout_ms, policy.quorum, self._heard, self._idle],
            "clock": self.clock.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Reconciliation:
        """The inverse of `to_json`, options and run id included. `in_run` goes on from there in another run."""
        timeout_ms, quorum, heard, idle = data["idle"]
        self = cls(SSP(*data["ssp"]), idle_timeout_ms=timeout_ms, quorum=quorum)
        self.watermarks = WatermarkBookkeeping.from_json(data["watermark"], IdlePolicy(timeout_ms, quorum))
        self.ends = EndOfStreamBookkeeping.from_json(data["end"])
        self.drains = DrainBookkeeping.from_json(data["drain"], self.ends.tasks)
        self.clock = IdleClock(*data["clock"])
        self._heard, self._idle = heard, idle
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reconciliation) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]
