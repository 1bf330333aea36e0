"""What the deployments before have left: whether anything is in flight, and what a new checkpoint has to take over."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workbench.engine.batch_plan import BatchPlan, Positions, read_plan
from workbench.engine.checkpoint import Carried, read_identity, tasks_of
from workbench.graph.stages import JobOutline
from workbench.systems.log import StreamLog
from workbench.telemetry.recorder import Recorder

ABANDONED = "abandoned"
"""Status of a run whose data in flight has been given up."""


@dataclass(frozen=True)
class Left:
    """`drained`: every task has finished and a drain was needed for it. `abandoned`: what is in flight was given up."""

    drained: bool = False
    abandoned: bool = False
    carried: Carried | None = None
    """How far the sources were read; only of what is drained or abandoned."""
    intermediate: frozenset[str] = frozenset()
    """The intermediate streams of the job as it was."""

    @property
    def is_clean(self) -> bool:
        """Nothing that is in an intermediate stream or in a task's state is needed any more."""
        return self.drained or self.abandoned


def left_behind(log: StreamLog, application: str, directory: Path) -> Left:
    """For who holds the lock of the application. Nothing was left where there is no checkpoint."""
    tasks = tasks_of(directory)
    if tasks is None:
        return Left()
    recorder = Recorder(log, application, read_identity(directory, application))
    runs = [run for run in recorder.runs() if run.plan["checkpoint_id"] == recorder.checkpoint_id]
    if not runs:
        return Left()
    newest = read_plan(directory)
    abandoned = runs[-1].status == ABANDONED
    drained = newest is not None and newest.drain is not None and len(recorder.done_tasks(newest.generation)) == tasks
    if not (drained or abandoned):
        return Left()
    # What was planned and not committed is given up too: it is read again from the sources.
    committed = read_plan(directory, recorder.last_batch())
    outline = JobOutline.from_json(runs[-1].plan["outline"])
    return Left(
        drained,
        abandoned,
        Carried({}, {}, 0) if committed is None else _carried(committed, outline, recorder),
        frozenset(read.stream for read in outline.inputs if read.intermediate),
    )


def _carried(plan: BatchPlan, outline: JobOutline, recorder: Recorder) -> Carried:
    """Lanes by partition: of a broadcast stream, which every task reads for itself, as far as all have come."""
    bookkeeping = recorder.bookkeeping()
    positions: Positions = {}
    ended: dict[str, list[int]] = {}
    for read in outline.inputs:
        if read.intermediate or read.stream not in plan.positions:
            continue
        lanes = list(zip(read.lanes(outline.tasks), plan.positions[read.stream], strict=True))
        positions[read.stream] = [
            min(offset for (_, of), offset in lanes if of == partition) for partition in range(read.partitions)
        ]
        for partition in range(read.partitions):
            ends = [
                bookkeeping.get(task, {}).get(read.stream, {}).get("end", {})
                for (task, of), _ in lanes
                if of == partition
            ]
            if all(end.get("direct") or end.get("agreed") for end in ends):
                ended.setdefault(read.stream, []).append(partition)
    return Carried(positions, ended, plan.generation)
