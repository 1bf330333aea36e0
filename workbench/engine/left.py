"""What the deployments before have left: whether anything is in flight, and what a new checkpoint has to take over."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.engine.batch_plan import BatchPlan, Positions, read_plan
from workbench.engine.checkpoint import Carried, carried_of, read_identity, tasks_of
from workbench.engine.other_jobs import OtherJob, count_unread, has_ended, said_before
from workbench.graph.stages import InputStream, JobOutline
from workbench.systems.log import StreamLog
from workbench.telemetry.recorder import Recorder

ABANDONED = "abandoned"
"""Status of a run whose data in flight has been given up."""


@dataclass(frozen=True)
class Left:
    """`drained`: every task is done, and a drain was needed for that. `abandoned`: what is in flight was given up."""

    drained: bool = False
    abandoned: bool = False
    finished: bool = False
    """All inputs have ended."""
    unused: bool = False
    """No batch was ever committed."""
    carried: Carried | None = None
    """How far the sources were read, for a checkpoint that takes the place of this one; None where this one is needed."""
    intermediate: frozenset[str] = frozenset()
    """The intermediate streams that the job wrote, as it was."""
    drain_of: str | None = None
    """The run whose notification asked for the drain, if it was one."""
    holds: frozenset[str] = frozenset()
    """Streams of other jobs of which what was heard holds on, after a drain: the job that writes them goes on."""

    @property
    def is_clean(self) -> bool:
        """Nothing that is in an intermediate stream or in a task's state is needed any more."""
        return self.drained or self.abandoned

    @property
    def is_replaceable(self) -> bool:
        """The next version may have another shape: nothing is in flight, or nothing has ever been."""
        return self.is_clean or self.finished or self.unused


def left_behind(log: StreamLog, application: str, directory: Path) -> Left:
    """For who holds the lock of the application. Nothing was left where there is no checkpoint."""
    tasks = tasks_of(directory)
    if tasks is None:
        return Left()
    recorder = Recorder(log, application, read_identity(directory, application))
    runs = [run for run in recorder.runs() if run.plan["checkpoint_id"] == recorder.checkpoint_id]
    before = carried_of(directory) or Carried({}, {}, 0)
    if not runs or recorder.last_batch() < 0:
        abandoned = bool(runs) and runs[-1].status == ABANDONED
        made = [stream for run in runs for stream in JobOutline.from_json(run.plan["outline"]).written]
        intermediate = frozenset({*made, *before.intermediate})
        return Left(abandoned=abandoned, unused=True, carried=before, intermediate=intermediate)
    newest = read_plan(directory)
    abandoned = runs[-1].status == ABANDONED
    outline = JobOutline.from_json(runs[-1].plan["outline"])
    drained = newest is not None and _has_drained(log, newest, outline, recorder)
    finished = newest is not None and len(recorder.done_tasks(newest.generation)) == tasks
    if not (drained or abandoned or finished):
        return Left()
    # What was planned and not committed is given up too: it is read again from the sources.
    committed = read_plan(directory, recorder.last_batch())
    intermediate = frozenset({*outline.written, *before.intermediate})
    holds = frozenset(
        read.stream for read in outline.inputs if read.external and (not drained or _holds(log, read, tasks, newest))
    )
    assert committed is not None, "Spark keeps the newest plans"
    return Left(
        drained,
        abandoned,
        finished and not drained,
        carried=replace(_carried(committed, outline, recorder, holds), intermediate=sorted(intermediate)),
        intermediate=intermediate,
        drain_of=newest.drain.run_id if newest is not None and newest.drain is not None else None,
        holds=holds,
    )


def _has_drained(log: StreamLog, newest: BatchPlan, outline: JobOutline, recorder: Recorder) -> bool:
    """Whether a drain has finished it, its own or one that came in-band; or its end, and upstream jobs have begun anew."""
    done = recorder.done_tasks(newest.generation)
    if len(done) < outline.tasks:
        return False
    return newest.drain is not None or "drained" in done.values() or bool(_begun_anew(log, newest, outline))


def _begun_anew(log: StreamLog, newest: BatchPlan, outline: JobOutline) -> list[str]:
    """Streams of other jobs that go on behind what this job, which is done, has read."""
    return [
        read.stream
        for read in outline.inputs
        if read.external and count_unread(log, read.stream, by_partition(read, outline.tasks, newest))
    ]


def _holds(log: StreamLog, read: InputStream, tasks: int, newest: BatchPlan | None) -> bool:
    """Whether the writer of a stream is in the generation that was heard: if it is not, it says everything again."""
    writer = OtherJob.find(log, read.writer)
    noted = None if newest is None else newest.upstream.get(read.stream)
    if noted is not None:
        return writer.generation == noted
    if newest is not None and count_unread(log, read.stream, by_partition(read, tasks, newest)):
        return False  # it had said all that was to come, and has begun anew
    return writer.run is not None and writer.run.status == "finished"


def by_partition(read: InputStream, tasks: int, plan: BatchPlan) -> dict[int, int]:
    """Partition → next offset; of a broadcast stream, which every task reads for itself, as far as all have come."""
    found: dict[int, int] = {}
    for (_, partition), offset in zip(read.lanes(tasks), plan.positions[read.stream], strict=True):
        found[partition] = min(offset, found.get(partition, offset))
    return found


def _carried(plan: BatchPlan, outline: JobOutline, recorder: Recorder, holds: frozenset[str]) -> Carried:
    """What sources, and streams of other jobs, were read up to, and what of them holds on. Lanes by partition."""
    bookkeeping = recorder.bookkeeping()
    positions: Positions = {}
    ended: dict[str, list[int]] = {}
    said: dict[str, dict[str, Any]] = {}
    for read in outline.inputs:
        if not read.entering or read.stream not in plan.positions:
            continue
        offsets = by_partition(read, outline.tasks, plan)
        positions[read.stream] = [offsets[partition] for partition in range(read.partitions)]
        if read.external and read.stream not in holds:
            continue
        for partition in range(read.partitions):
            kept = [
                bookkeeping.get(task, {}).get(read.stream, {})
                for task, of in read.lanes(outline.tasks)
                if of == partition
            ]
            if all(map(has_ended, kept)):
                ended.setdefault(read.stream, []).append(partition)
            elif read.external and kept[0]:
                run = said_before(kept[0])
                if run is not None:
                    said.setdefault(read.stream, {})[str(partition)] = run.to_json()
    return Carried(positions, ended, plan.generation, said=said)
