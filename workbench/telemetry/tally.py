"""How far a job is, folded from its batches one by one: what a progress display asks several times a second."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from workbench.graph.stages import JobOutline
from workbench.messages import MAX_TIMESTAMP
from workbench.telemetry.recorder import BatchRecord


@dataclass
class Tally:
    """Sums over all batches so far, and the newest state of every (task, input stream)."""

    outline: JobOutline
    last_batch: int = -1
    batches: int = 0
    source_messages: int = 0
    """Messages read from source streams, or from another job; what stages of this job pass on is not counted."""
    late_messages: int = 0
    control_messages: int = 0
    generation: int = 0
    drain: dict[str, Any] | None = None
    """The drain that the newest batch belongs to, as `DrainOrder` has it."""
    last_run: str = ""
    states: dict[tuple[int, str], tuple[str, int | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._sources = {read.stream for read in self.outline.inputs if read.entering}
        for task in range(self.outline.tasks):
            for read in self.outline.inputs_of(task):
                self.states[task, read.stream] = ("unknown", None)

    def add(self, batches: Iterable[BatchRecord]) -> None:
        """Fold in batches that are newer than all before."""
        for batch in batches:
            generation = batch.summary["generation"]
            if generation is not None:
                if generation > self.generation:
                    self.states = dict.fromkeys(self.states, ("unknown", None))
                self.generation, self.drain = generation, batch.summary["drain"]
            self.last_batch = batch.batch
            self.last_run = batch.run_id
            self.batches += 1
            self.late_messages += batch.summary["late_messages"]
            self.control_messages += batch.summary["control_messages"]
            for report in batch.reports:
                for stream, of in report["inputs"].items():
                    self.states[report["task"], stream] = (of["state"], of["watermark"])
                    if stream in self._sources:
                        self.source_messages += of["messages"]

    @property
    def lowest_watermark(self) -> str:
        """The lowest watermark over all tasks and inputs that have not ended, in words."""
        open_inputs = [watermark for state, watermark in self.states.values() if state != "finished"]
        if not open_inputs:
            return "finished"
        known = [watermark for watermark in open_inputs if watermark is not None]
        if len(known) < len(open_inputs):
            return "not yet known"
        if min(known) == MAX_TIMESTAMP:
            return "at its maximum"  # time is over, and the drain or the end that says so is on its way
        return f"{pd.Timestamp(min(known), unit='ms'):%Y-%m-%d %H:%M:%S} UTC"

    def open_tasks(self, stream: str) -> list[int]:
        """Tasks for which an input stream has not ended."""
        return [task for (task, read), (state, _) in self.states.items() if read == stream and state != "finished"]
