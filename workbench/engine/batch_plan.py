"""The plan of a batch: what Spark logs as the offset of `JobSource`, before the batch runs.

Everything that a batch does follows from the plan before it and its own, so a replay after a crash does the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

Positions = dict[str, list[int]]
"""Per input stream and lane the next offset to read. A lane is one task's reading of one partition (`InputStream.lanes`):
lane *i* of an ordinary stream is partition *i*; of a broadcast stream, task *i* reading partition 0."""


@dataclass(frozen=True)
class DrainOrder:
    """A drain that a job carries out: whose notification, and when it was asked for and noticed (ms since the epoch)."""

    run_id: str
    uuid: str
    requested: int | None
    seen: int


@dataclass(frozen=True)
class Restart:
    """What a deployment asks of its first new batch: a new watermark generation, say, and where some lanes begin.

    It is taken once: the plan that takes it notes its `token`.
    """

    token: str
    generation: int
    """The one before, where what was heard remains true (nothing leads back)."""
    moves: dict[str, dict[int, int]] = field(default_factory=dict)
    """Stream → lane → the offset to begin at, where that is not where the plan before ended."""
    ended: dict[str, list[int]] = field(default_factory=dict)
    """Lanes that are known to have ended, besides those in the bookkeeping of the checkpoint."""
    reset: bool = False
    """Whether the tasks drop what they keep: windows, timers, stores."""
    startpoints: list[list[Any]] = field(default_factory=list)
    """Receipts of the startpoints behind `moves`."""
    said: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Stream of another job → lane → control messages that were heard before and hold on."""
    holds: list[str] = field(default_factory=list)
    """Streams of other jobs of which what is in the bookkeeping holds on."""
    renew: list[str] = field(default_factory=list)
    """Intermediate streams of which nothing is needed any more. Not before: a batch that Spark had not finished comes first."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Restart:
        moves = {stream: {int(lane): offset for lane, offset in of.items()} for stream, of in saved["moves"].items()}
        return cls(**{**saved, "moves": moves})


@dataclass(frozen=True)
class BatchPlan:
    """`positions` are those after the batch; `batch` counts the batches that were planned, this one included."""

    batch: int
    positions: Positions
    generation: int = 0
    """How often the bookkeeping of the tasks has started anew: after a drain, a rewind, an abandoned run."""
    reset: int = 0
    """The latest generation that began without what the tasks kept before."""
    drain: DrainOrder | None = None
    """The drain that this generation ends with."""
    began: Positions = field(default_factory=dict)
    """Streams of which this batch reads some lanes from elsewhere than where the plan before ended."""
    ended: dict[str, list[int]] = field(default_factory=dict)
    """Lanes whose end was heard in the generation before, for the batch that begins a new one: it is said again."""
    barrier: Positions = field(default_factory=dict)
    """Heads of the intermediate streams when the generation began: control messages before them belong to the last one."""

    cut: Positions = field(default_factory=dict)
    """Streams of other jobs that this job's drain treats as sources: where it stops reading, and puts its marker."""
    upstream: dict[str, int] = field(default_factory=dict)
    """Streams of other jobs → the generation of the job that writes them, when the drain was planned."""
    said: dict[str, dict[str, Any]] = field(default_factory=dict)
    """For the batch that begins a new generation: stream → lane → what upstream tasks said before, and say once."""

    restarted: str = ""
    """Token of the newest `Restart` that was taken."""
    startpoints: list[list[Any]] = field(default_factory=list)
    """Receipts of the startpoints that it brought."""

    order: dict[str, str] = field(default_factory=dict)
    """Task → the order in which it takes its messages (`choosers.encode_runs`); without one, input by input."""
    choosers: dict[str, Any] = field(default_factory=dict)
    """Task → what its chooser goes on from in the next batch."""
    epoch: int = 0
    """Of the deployment that made the plan, where a chooser needs to know when it began."""
    heads_at_start: Positions = field(default_factory=dict)
    """Heads and positions at that time."""
    started_at: Positions = field(default_factory=dict)

    def first(self, stream: str, before: BatchPlan) -> list[int]:
        """Where the batch begins to read, lane by lane, if `before` is the plan before."""
        return self.began.get(stream) or before.positions[stream]

    def then(self, positions: Positions, **changes: Any) -> BatchPlan:
        """The plan of the next batch, in the same generation unless `changes` say otherwise."""
        return replace(
            self,
            batch=self.batch + 1,
            positions=positions,
            **{"began": {}, "ended": {}, "said": {}, "order": {}, **changes},
        )

    def to_json(self) -> dict[str, Any]:
        kept = asdict(self)
        return {name: value for name, value in kept.items() if value or name in ("batch", "positions")}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> BatchPlan:
        drain = saved.get("drain")
        return cls(**{**saved, "drain": None if drain is None else DrainOrder(**drain)})


def read_plan(checkpoint: Path, batch: int | None = None) -> BatchPlan | None:
    """The plan that Spark logged for `batch`, or the newest (None), in the checkpoint directory; None if there is none."""
    offsets = checkpoint / "offsets"
    if batch is None:
        logged = [int(path.name) for path in offsets.glob("*") if path.name.isdigit()] if offsets.is_dir() else []
        if not logged:
            return None
        batch = max(logged)
    path = offsets / str(batch)
    if not path.is_file():
        return None
    # Spark's format: a version, the batch's metadata, then one line for each source; a job has one source.
    return BatchPlan.from_json(json.loads(path.read_text().splitlines()[2]))
