"""Where a deployment begins: at a checkpoint's plan, at what was carried over, or where startpoints lead."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.engine.batch_plan import BatchPlan, Positions, Restart
from workbench.engine.checkpoint import (
    Checkpoint,
    containers_of,
    tasks_of,
)
from workbench.engine.left import Left
from workbench.engine.startpoints import TakenStartpoints
from workbench.graph.stages import JobPlan
from workbench.systems.log import StreamLog


def beginning(
    plan: JobPlan, log: StreamLog, opened: Checkpoint, left: Left, for_tables: frozenset[str]
) -> tuple[BatchPlan, Restart | None]:
    """Where a checkpoint without a plan begins, and whether the first new batch starts a new generation.

    Sources, and streams of other jobs, begin at their oldest message, or where the checkpoint that was replaced had come
    to (not those `for_tables` only: tables are state, and that is new). Intermediate streams begin at their head, because
    what they hold then was for an earlier checkpoint of this job.
    """
    positions: Positions = {}
    ended: dict[str, list[int]] = {}
    said: dict[str, dict[str, Any]] = {}
    carried = opened.carried
    for read in plan.inputs:
        stream = log.stream(read.stream)
        oldest, heads = stream.oldest(), stream.heads()
        begin = oldest if read.entering else heads
        over: set[int] = set()
        words: dict[str, Any] = {}
        if carried is not None and read.entering and read.stream in carried.positions.keys() - for_tables:
            begin[: len(carried.positions[read.stream])] = carried.positions[read.stream][: len(begin)]
            if read.external:  # it may have been made new since, when all of it was read
                begin = [max(offset, first) for offset, first in zip(begin, oldest, strict=True)]
            over = set(carried.ended.get(read.stream, ()))
            words = carried.said.get(read.stream, {})
        lanes = read.lanes(plan.tasks)
        positions[read.stream] = [begin[partition] for _, partition in lanes]
        if over:
            ended[read.stream] = [lane for lane, (_, partition) in enumerate(lanes) if partition in over]
        if words:
            said[read.stream] = {
                str(lane): words[str(partition)] for lane, (_, partition) in enumerate(lanes) if str(partition) in words
            }
    initial = BatchPlan(0, positions, generation=0 if carried is None else carried.generation)
    if carried is not None and opened.fresh:
        return initial, Restart(uuid.uuid4().hex, carried.generation + 1, ended=ended, said=said)
    if opened.plan is not None and left.drained:
        renew = [
            written.stream for written in plan.outputs if written.stream in left.intermediate and not written.reader
        ]
        return initial, Restart(uuid.uuid4().hex, opened.plan.generation + 1, renew=renew)
    return initial, None


def moved(restart: Restart | None, current: BatchPlan, taken: TakenStartpoints, *, reset: bool) -> Restart:
    """The restart with the startpoints in it. What leads back begins a generation: what was heard is not true any more."""
    if restart is None:
        restart = Restart(uuid.uuid4().hex, current.generation + taken.rewinds)
    return replace(
        restart,
        moves=taken.moves,
        reset=restart.reset or (reset and taken.rewinds),
        startpoints=[list(receipt) for receipt in taken.receipts],
    )


def containers_for(directory: Path, left: Left, plan: JobPlan) -> int | None:
    """As many as the state is kept in; without any state, after a drain that changed the tasks, that is free again."""
    if left.abandoned or (left.drained and tasks_of(directory) != plan.tasks):
        return None
    return containers_of(directory)
