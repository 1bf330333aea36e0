"""A job's checkpoint directory: where it is, whose it is, and what of an application may not change over it."""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import IncompatibleCheckpoint
from workbench.graph import nodes
from workbench.graph.stages import JobPlan
from workbench.systems.log import StreamLog

_JOBS_NAMESPACE = "tidemark-jobs"
_IDENTITY = "tidemark.json"


@dataclass(frozen=True)
class Checkpoint:
    """`id` is the key under which the sink commits: a new directory is a new identity, and starts from the beginning."""

    directory: Path
    id: str
    fresh: bool
    """Nothing has been planned under it yet."""


def checkpoint_directory(log: StreamLog, job: str) -> Path:
    """`checkpoints/<number>` in the log's directory: numbered, because a job's name may be anything."""
    with log.metadata.transaction() as store:
        known = store.get(_JOBS_NAMESPACE, job)
        if known is None:
            known = str(1 + len(store.all(_JOBS_NAMESPACE))).encode()
            store.put(_JOBS_NAMESPACE, job, known)
    return log.directory / "checkpoints" / str(int(known))


def open_checkpoint(directory: Path, plan: JobPlan, containers: int) -> Checkpoint:
    """Open or begin a checkpoint. Raises `IncompatibleCheckpoint` if the application has changed in what its state keeps."""
    identity = directory / _IDENTITY
    shape = _shape(plan, containers)
    if identity.exists():
        saved = json.loads(identity.read_text())
        differing = [
            (what, saved["shape"].get(what), shape.get(what))
            for what in sorted(saved["shape"].keys() | shape.keys())
            if saved["shape"].get(what) != shape.get(what)
        ]
        if differing:
            raise IncompatibleCheckpoint.changed(plan.application, differing)
        return Checkpoint(directory, saved["id"], fresh=not _has_plan(directory))
    directory.mkdir(parents=True, exist_ok=True)
    id = uuid.uuid4().hex
    draft = identity.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps({"id": id, "application": plan.application, "shape": shape}))
    draft.replace(identity)
    return Checkpoint(directory, id, fresh=True)


def containers_of(directory: Path) -> int | None:
    """How many containers an existing checkpoint has its state in; None for a new one.

    Spark keeps one part of the state for each, so a machine with more cores goes on with as many as there were.
    """
    identity = directory / _IDENTITY
    return int(json.loads(identity.read_text())["shape"]["containers"]) if identity.exists() else None


def read_identity(directory: Path, application: str) -> str:
    """The id of an existing checkpoint; `IncompatibleCheckpoint` where there is none."""
    identity = directory / _IDENTITY
    if not identity.exists():
        raise IncompatibleCheckpoint.missing(application, str(directory))
    return str(json.loads(identity.read_text())["id"])


def _has_plan(directory: Path) -> bool:
    offsets = directory / "offsets"
    return offsets.is_dir() and any(name.name.isdigit() for name in offsets.iterdir())


def _shape(plan: JobPlan, containers: int) -> dict[str, Any]:
    """What the state depends on, by name for people. Functions and filters may change; these may not."""
    shape: dict[str, Any] = {"containers": containers, "tasks": plan.tasks}
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
    return shape
