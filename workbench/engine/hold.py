"""Holding a job between batches: stop, pause, and step. The job's source asks before every plan.

A hold is one value in the metadata store, `{"by": "stop" | "pause", "run_id": …, "until": n}`: batches before number *n*
may still be planned. It holds that run and no other, so a handle that is kept too long does not hold the next one. So a paused job can be let go by single batches, from any process, without restarting its query.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from workbench.metadata import MetadataStore

_NAMESPACE = "tidemark-hold"


@dataclass(frozen=True)
class Hold:
    """What holds the job ("stop" or "pause"), in which run, and from which batch on."""

    by: str
    run_id: str
    until: int = 0


def put(store: MetadataStore, job: str, hold: Hold) -> None:
    store.put(_NAMESPACE, job, json.dumps(asdict(hold)))


def get(store: MetadataStore, job: str) -> Hold | None:
    saved = store.get(_NAMESPACE, job)
    return None if saved is None else Hold(**json.loads(saved))


def lift(store: MetadataStore, job: str) -> None:
    """Let the job go on. A stop is not lifted by anything but the next deployment."""
    with store.transaction():
        hold = get(store, job)
        if hold is not None and hold.by != "stop":
            store.delete(_NAMESPACE, job)


def clear(store: MetadataStore, job: str) -> None:
    """For a new deployment: whatever held the one before."""
    store.delete(_NAMESPACE, job)


def is_held(store: MetadataStore, job: str, run_id: str, batch: int, *, draining: bool = False) -> bool:
    """Whether batch number `batch` of a run may not be planned now. A drain goes through a pause, not through a stop."""
    hold = get(store, job)
    if hold is None or hold.run_id != run_id or batch < hold.until:
        return False
    return hold.by == "stop" or not draining
