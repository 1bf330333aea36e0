"""What travels through Spark: work orders to tasks, and their reports. Plain JSON, a few hundred bytes each."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from workbench.engine.batch_plan import DrainOrder


@dataclass(frozen=True)
class Step:
    """One range of one SSP to process: `refs` name the log's segments and runs of control messages, in offset order."""

    stream: str
    partition: int
    refs: list[dict[str, Any]]
    first: int = 0
    """The offset at which it begins."""


@dataclass(frozen=True)
class WorkOrder:
    """What one task does in one batch: its steps, in the order the chooser gave them."""

    task: int
    batch: int
    steps: list[Step]
    generation: int = 0
    """A task whose state is of an earlier generation starts its bookkeeping anew, and from `reset` on its state too."""
    reset: int = 0
    restarted: str = ""
    """Token of the `Restart` that this batch or one before it has taken."""
    drain: DrainOrder | None = None
    """The drain that the job is in."""
    runs: str = ""
    """The order that was chosen (`choosers.encode_runs`; its lanes are the steps); without one, step by step."""
    schemas: dict[str, str] = field(default_factory=dict)
    """Input stream → its Arrow schema (IPC, base64), where an operator may need it before a row comes."""

    def to_json(self) -> str:
        steps = [[step.stream, step.partition, step.refs, step.first] for step in self.steps]
        drain = None if self.drain is None else asdict(self.drain)
        return json.dumps(
            [
                self.task,
                self.batch,
                steps,
                self.generation,
                self.reset,
                self.restarted,
                drain,
                self.runs,
                self.schemas,
            ]
        )

    @classmethod
    def from_json(cls, text: str) -> WorkOrder:
        task, batch, steps, generation, reset, restarted, drain, runs, schemas = json.loads(text)
        order = None if drain is None else DrainOrder(**drain)
        return cls(task, batch, [Step(*step) for step in steps], generation, reset, restarted, order, runs, schemas)


@dataclass
class Report:
    """What one task did in one batch. The sink commits it; telemetry keeps it."""

    task: int
    batch: int
    input_messages: int = 0
    control_messages: int = 0
    output_messages: int = 0
    late_messages: int = 0
    open_rows: int = 0
    seconds: float = 0.0
    generation: int = 0
    restarted: str = ""
    drain: dict[str, Any] | None = None
    """The drain that the job is in, as `DrainOrder` has it."""
    choices: dict[str, Any] | None = None
    """The order that was chosen: `lanes` as [stream, partition, first offset], and `runs` as in the work order."""
    done: str = ""
    """"ended" when all inputs of the task have ended, "drained" when a drain was needed for that; else empty."""
    inputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Per input stream: `state`, `watermark` (ms or None), `messages` read in this batch, `ends` and `drains` heard in it,
    whether it is `drained`, and the whole `bookkeeping` of the SSP."""
    staged: list[dict[str, Any]] = field(default_factory=list)
    """Segments written and not yet part of a stream."""
    controls: list[list[Any]] = field(default_factory=list)
    """[stream, partition or None for all, message as JSON] in the order sent."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Report:
        return cls(**json.loads(text))
