"""A job's checkpoint directory: where it is, whose it is, and what of an application may not change over it."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.engine.batch_plan import BatchPlan, Positions, read_plan
from workbench.errors import IncompatibleCheckpoint
from workbench.graph import nodes
from workbench.graph.stages import JobPlan
from workbench.systems.log import StreamLog

_JOBS_NAMESPACE = "tidemark-jobs"
_IDENTITY = "tidemark.json"
_OF_SPARK = ("offsets", "commits", "state", "sources")
"""What Spark keeps in a checkpoint, besides the file `metadata`. The directory may be the user's: nothing else is touched."""


@dataclass(frozen=True)
class Carried:
    """What a new checkpoint takes over from the one it replaces: how far the sources were read, and which have ended."""

    positions: Positions
    """Source stream → next offset, partition by partition."""
    ended: dict[str, list[int]]
    """Source stream → partitions that have ended."""
    generation: int
    intermediate: list[str] = field(default_factory=list)
    """Streams between the stages of all versions so far: nothing in them is needed."""
    said: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Stream of another job → partition → what its tasks have said and will not say again."""


@dataclass(frozen=True)
class Checkpoint:
    """`id` is the key under which the sink commits: a new one starts counting batches from 0."""

    directory: Path
    id: str
    plan: BatchPlan | None
    """The newest that was logged under it."""
    carried: Carried | None = None
    """What it began with; it says where a batch 0 begins that is done again, too."""

    @property
    def fresh(self) -> bool:
        """Nothing has been planned under it yet."""
        return self.plan is None


def checkpoint_directory(log: StreamLog, job: str) -> Path:
    """`checkpoints/<number>` in the log's directory: numbered, because a job's name may be anything."""
    with log.metadata.transaction() as store:
        known = store.get(_JOBS_NAMESPACE, job)
        if known is None:
            known = str(1 + len(store.all(_JOBS_NAMESPACE))).encode()
            store.put(_JOBS_NAMESPACE, job, known)
    return log.directory / "checkpoints" / str(int(known))


def open_checkpoint(
    directory: Path, plan: JobPlan, containers: int, routing: Mapping[str, str], carried: Carried | None = None
) -> Checkpoint:
    """Open or begin a checkpoint.

    Raises `IncompatibleCheckpoint` if it is another application's, or if the application has changed in what its state
    keeps, unless there is something to carry over (as after a drain: then there is no state, and a new checkpoint takes
    the place of the old one).
    """
    saved = _identity(directory)
    shape = _shape(plan, containers, routing)
    if saved is None:
        return _begin(directory, plan.application, shape, None)
    if saved["application"] != plan.application:
        raise IncompatibleCheckpoint.of_another(plan.application, saved["application"], str(directory))
    differing = [
        (what, saved["shape"].get(what), shape.get(what))
        for what in sorted(saved["shape"].keys() | shape.keys())
        if saved["shape"].get(what) != shape.get(what)
    ]
    if differing:
        if carried is None:
            raise IncompatibleCheckpoint.changed(plan.application, differing)
        return _begin(directory, plan.application, shape, carried)
    kept = saved["carried"]
    return Checkpoint(directory, saved["id"], read_plan(directory), None if kept is None else Carried(**kept))


def replace_checkpoint(
    directory: Path, plan: JobPlan, containers: int, routing: Mapping[str, str], carried: Carried
) -> Checkpoint:
    """Begin a new checkpoint in the place of the old one, whose state is given up."""
    return _begin(directory, plan.application, _shape(plan, containers, routing), carried)


def containers_of(directory: Path) -> int | None:
    """How many containers an existing checkpoint has its state in; None for a new one.

    Spark keeps one part of the state for each, so a machine with more cores goes on with as many as there were.
    """
    saved = _identity(directory)
    return None if saved is None else int(saved["shape"]["containers"])


def tasks_of(directory: Path) -> int | None:
    """How many tasks the job of an existing checkpoint has; None for a new one."""
    saved = _identity(directory)
    return None if saved is None else int(saved["shape"]["tasks"])


def carried_of(directory: Path) -> Carried | None:
    """What an existing checkpoint began with; None if that was nothing."""
    saved = _identity(directory)
    return None if saved is None or saved["carried"] is None else Carried(**saved["carried"])


def read_identity(directory: Path, application: str) -> str:
    """The id of an existing checkpoint; `IncompatibleCheckpoint` where there is none."""
    saved = _identity(directory)
    if saved is None:
        raise IncompatibleCheckpoint.missing(application, str(directory))
    return str(saved["id"])


def _identity(directory: Path) -> dict[str, Any] | None:
    """What is known of a checkpoint."""
    path = directory / _IDENTITY
    saved: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return saved


def finish_replacing(directory: Path) -> None:
    """Remove what a checkpoint whose place was taken has left, if a crash kept that from being done.

    For who holds the application's lock; others may read a checkpoint at any time, and change nothing.
    """
    path = directory / _IDENTITY
    saved = _identity(directory)
    if saved is not None and not saved["cleared"]:
        for name in _OF_SPARK:
            shutil.rmtree(directory / name, ignore_errors=not (directory / name).is_dir())
        for name in ("metadata", ".metadata.crc"):
            (directory / name).unlink(missing_ok=True)
        _write(path, {**saved, "cleared": True})


def _begin(directory: Path, application: str, shape: dict[str, Any], carried: Carried | None) -> Checkpoint:
    directory.mkdir(parents=True, exist_ok=True)
    identity: dict[str, Any] = {
        "id": uuid.uuid4().hex,
        "application": application,
        "shape": shape,
        "carried": None if carried is None else vars(carried),
        # First the new identity, then the old content goes: a crash in between is mended when it is opened again.
        "cleared": carried is None,
    }
    _write(directory / _IDENTITY, identity)
    finish_replacing(directory)
    return Checkpoint(directory, identity["id"], None, carried)


def _write(path: Path, identity: Mapping[str, Any]) -> None:
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps(identity))
    draft.replace(path)


def _shape(plan: JobPlan, containers: int, routing: Mapping[str, str]) -> dict[str, Any]:
    """What the state depends on, by name for people. Functions and filters may change; these may not."""
    shape: dict[str, Any] = {"containers": containers, "tasks": plan.tasks}
    if any(read.intermediate for read in plan.inputs):
        # What some tasks have sent by one of them, others would wait for from all.
        shape |= {f"routing of {kind}": how for kind, how in routing.items()}
    for stream in plan.inputs:
        shape[f"partitions of {stream.stream}"] = stream.partitions
    for stage in plan.stages:
        for node in stage.operators:
            shape[f"operator {node.id}"] = node.kind
            if isinstance(node, nodes.Window):
                spec = node.spec
                shape[f"window {node.id}"] = (
                    f"{spec.assigner} by {', '.join(spec.keys)}: "
                    + ", ".join(f"{name}={column}.{how}" for name, (column, how) in spec.aggregates.items())
                    + f" over {spec.time_column}"
                )
            if isinstance(node, nodes.StreamJoin):
                shape[f"join {node.id}"] = str(node.spec)
            if isinstance(node, nodes.Table):
                shape[f"table {node.id}"] = f"by {', '.join(node.keys)}"
    return shape
