"""Startpoints at a deployment: taken, resolved and checked before anything runs; and what the next one would take."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from workbench.engine.batch_plan import BatchPlan
from workbench.errors import InvalidOption, RewindUndecided
from workbench.graph.stages import InputStream
from workbench.names import LOG_SYSTEM, SSP, task_name
from workbench.startpoints import Receipt, Request, Startpoint, StartpointManager, preview_frame, rewinds
from workbench.startpoints.model import now
from workbench.startpoints.preview import Consumers
from workbench.systems.log import StreamLog
from workbench.systems.log.startpoints import preview_on, resolve_on

if TYPE_CHECKING:
    import pandas as pd

ON_REWIND = ("keep", "reset")


@dataclass(frozen=True)
class TakenStartpoints:
    """What a deployment has taken from the metadata store."""

    moves: dict[str, dict[int, int]] = field(default_factory=dict)
    """Stream → lane → the offset to begin at; without those that a logged plan has taken already."""
    receipts: tuple[Receipt, ...] = ()
    """Of the startpoints behind `moves`."""
    planned: tuple[Receipt, ...] = ()
    """Of startpoints that the newest logged plan has taken, and no commit has covered yet."""
    rewinds: bool = False
    notices: tuple[str, ...] = ()
    """What was not taken as it was written: stale, overridden, unreadable, for nobody."""


def take_startpoints(
    log: StreamLog,
    application: str,
    inputs: Sequence[InputStream],
    tasks: int,
    current: BatchPlan,
    on_rewind: str | None,
    consumed: Collection[SSP] | None = None,
) -> TakenStartpoints:
    """Fan out and resolve, in one transaction: a start that is refused takes nothing.

    `current` is the plan that the job would go on from, `consumed` what all jobs of the application consume. Raises `UnresolvableStartpoint`, `RewindUndecided`,
    `InvalidOption`.
    """
    if on_rewind is not None and on_rewind not in ON_REWIND:
        raise InvalidOption.of_choice("on_rewind", on_rewind, ON_REWIND)
    positions = lane_positions(inputs, tasks, current)
    planned = {tuple(receipt) for receipt in current.startpoints}
    with log.transaction():
        taken = StartpointManager(log, application).fan_out(
            {task: list(ssps) for task, ssps in positions.items()}, consumed=consumed
        )
        fresh = {
            task: {ssp: fanned for ssp, fanned in of_task.items() if tuple(fanned.receipt) not in planned}
            for task, of_task in taken.applies.items()
        }
        resolve = resolve_on(log)
        offsets = {
            task: {ssp: offset for ssp, offset in of_task.items() if ssp in fresh[task]}
            for task, of_task in taken.resolved(resolve).items()
        }
        back = rewinds(positions, offsets)
        if back and on_rewind is None:
            raise RewindUndecided.of(
                application, [(task, str(ssp), *way) for task, ssps in back.items() for ssp, way in ssps.items()]
            )
    moves: dict[str, dict[int, int]] = {}
    for read in inputs:
        for lane, (task, partition) in enumerate(read.lanes(tasks)):
            offset = offsets.get(task_name(task), {}).get(SSP(LOG_SYSTEM, read.stream, partition))
            if offset is not None:
                moves.setdefault(read.stream, {})[lane] = offset
    return TakenStartpoints(
        moves,
        receipts=tuple(fanned.receipt for of_task in fresh.values() for fanned in of_task.values()),
        planned=tuple(receipt for receipt in taken.receipts if tuple(receipt) in planned),
        rewinds=bool(back),
        notices=tuple(taken.notices()),
    )


def preview_startpoints(
    log: StreamLog, application: str, more: Mapping[SSP, Startpoint] | Iterable[Request] = ()
) -> pd.DataFrame:
    """What the next start would make of the startpoints there are, and of `more` as if they were written.

    One row for each startpoint and task, with the columns of `startpoints.PreviewRow`. Nothing is written. Raises
    `UnknownApplication` where nothing is known of its positions.
    """
    from workbench.engine.record import current_positions, open_record  # both are built on runs, as runs on this

    requests = [Request(*each) for each in more.items()] if isinstance(more, Mapping) else list(more)
    replaced = {(request.ssp, request.task) for request in requests}
    outline = open_record(log, application).outline
    plan = BatchPlan(0, current_positions(log, application))
    manager = StartpointManager(log, application)
    with log.reading():
        stored, (taken, broken) = manager.all(), manager.fan_outs()
        others = [request for request in stored.requests if (request.ssp, request.task) not in replaced]
        rows = preview_on(
            log,
            lane_positions(outline.inputs, outline.tasks, plan),
            [*others, *requests],
            taken,
            at=now(),
            unreadable=[*stored.unreadable, *broken],
        )
    return preview_frame(rows)


def waiting_startpoints(log: StreamLog, application: str) -> tuple[str, ...]:
    """What is said of startpoints while a drain that was begun is finished: the start after that takes them."""
    written = StartpointManager(log, application).all().fresh
    if not written:
        return ()
    return (
        f"The job goes on with its drain first. The start after that takes the startpoints: {', '.join(map(str, written))}.",
    )


def lane_positions(inputs: Sequence[InputStream], tasks: int, plan: BatchPlan) -> Consumers:
    """Task name → SSP → next offset."""
    found: dict[str, dict[SSP, int | None]] = {task_name(task): {} for task in range(tasks)}
    for read in inputs:
        for (task, partition), offset in zip(read.lanes(tasks), plan.positions[read.stream], strict=True):
            found[task_name(task)][SSP(LOG_SYSTEM, read.stream, partition)] = offset
    return found


def consumed_by(token: str, taken: TakenStartpoints, current: BatchPlan) -> Mapping[str, list[Receipt]]:
    """Restart → the startpoints that are used up by the commit of its first batch."""
    found: dict[str, list[Receipt]] = {}
    if taken.planned:
        found[current.restarted] = list(taken.planned)
    if taken.receipts:
        found[token] = list(taken.receipts)
    return found
