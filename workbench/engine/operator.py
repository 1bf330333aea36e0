"""What every operator does inside a task: take rows, pass on watermarks, ends and drains.

Rules (control-messages and drain design documents; the reference's sections 2.3 and 3 tell where the original departs from it):
an operator's input watermark is the minimum of its predecessors' output watermarks; it acts only on an advance; what it
emits goes downstream before the watermark does; it acts on an end when *every* predecessor has delivered it, and on a
drain when every predecessor has delivered that or has ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from workbench.engine.batch import Batch
from workbench.engine.failures import TaskFailed, of_platform
from workbench.engine.outbox import Outbox
from workbench.graph import nodes
from workbench.windows import ChunkStore


class Context(Protocol):
    """What an operator may use of its task."""

    outbox: Outbox
    late_rows: int
    rows_out: int

    def partitions(self, stream: str) -> int: ...
    def own_partition(self, partitions: int) -> int: ...
    def announce_watermark(self, stream: str, watermark: int) -> None: ...
    def announce_end(self, stream: str) -> None: ...
    def announce_drain(self, stream: str) -> None: ...
    def by_drain(self, operator: int) -> bool: ...
    def chunks(self, operator: int) -> ChunkStore: ...
    def columns_of(self, stream: str) -> pa.Schema | None: ...
    def where(self, operator: int) -> dict[str, str]: ...


@dataclass
class OperatorState:
    """What is checkpointed of each operator: milliseconds since the epoch, None where not yet known."""

    input_watermark: int | None = None
    output_watermark: int | None = None
    ended: bool = False
    drained: bool = False
    manifest: dict[str, Any] | None = None

    @property
    def finished(self) -> bool:
        """Nothing comes any more, in this run at least."""
        return self.ended or self.drained

    def to_json(self) -> list[Any]:
        return [self.input_watermark, self.output_watermark, self.ended, self.drained, self.manifest]


class Operator:
    """One operator in one task. Subclasses say what rows, an advance and an end mean to them."""

    def __init__(self, node: nodes.Node, context: Context, state: OperatorState) -> None:
        self.node = node
        self.context = context
        self.state = state
        self.predecessors: list[Operator] = []
        self.successors: list[Operator] = []

    def receive(self, batch: Batch) -> None:
        """Process rows and pass on what comes of them."""
        if len(batch):
            self._emit(self.process(batch))

    def advance(self) -> None:
        """Take the minimum of the predecessors' watermarks; where that is an advance, act on it and pass it on."""
        outputs = [predecessor.state.output_watermark for predecessor in self.predecessors]
        if any(output is None for output in outputs):
            return
        watermark = min(output for output in outputs if output is not None)
        if self.state.input_watermark is not None and watermark <= self.state.input_watermark:
            return
        self.state.input_watermark = watermark
        self._emit(self.on_watermark(watermark))
        self.pass_on_watermark(self.output_watermark(watermark))

    def pass_on_watermark(self, watermark: int) -> None:
        """Tell the successors, unless that would be a step back."""
        if self.state.output_watermark is None or watermark > self.state.output_watermark:
            self.state.output_watermark = watermark
            for successor in self.successors:
                successor.advance()

    def end(self) -> None:
        """Act on the end of all input, once, when every predecessor has delivered it.

        Where others are drained and this was the last that was waited for, the whole is drained, not ended.
        """
        if self.state.finished:
            return
        if not all(predecessor.state.ended for predecessor in self.predecessors):
            if self.predecessors:
                self.drain()
            return
        self.on_end()
        self.state.ended = True
        for successor in self.successors:
            successor.end()

    def drain(self) -> None:
        """Act on the drain, once, when every predecessor has delivered it or has ended."""
        if self.state.finished or not all(predecessor.state.finished for predecessor in self.predecessors):
            return
        self.on_drain()
        self.state.drained = True
        for successor in self.successors:
            successor.drain()

    def process(self, batch: Batch) -> Batch | None:
        """Rows in, rows out; None for an operator that passes nothing on."""
        return batch

    def on_watermark(self, watermark: int) -> Batch | None:
        """What an advance makes the operator emit."""
        return None

    def output_watermark(self, watermark: int) -> int:
        """The watermark of what the operator will still emit."""
        return watermark

    def on_end(self) -> None:
        """What the end of all input makes the operator do."""

    def on_drain(self) -> None:
        """What a drain makes the operator do. Rows that are held for the time to come are emitted before: the watermark
        has reached its maximum (see `on_watermark`, and `Context.by_drain` for how to tell)."""

    def start_generation(self, *, reset: bool) -> None:
        """Forget all that was heard; with `reset`, what is kept of rows too."""
        self.state = OperatorState(manifest=None if reset else self.state.manifest)

    def columns(self) -> pa.Schema | None:
        """What the rows look like that it emits, for who must know before the first comes; None where nobody can say."""
        known = (predecessor.columns() for predecessor in self.predecessors)
        return next((schema for schema in known if schema is not None), None)

    def finish_batch(self) -> None:
        """Bring `state` up to date before the checkpoint."""

    def _emit(self, batch: Batch | None) -> None:
        if batch is not None and len(batch):
            for successor in self.successors:
                successor.receive(batch)

    def _failure(self, error: Exception) -> TaskFailed:
        return TaskFailed(of_platform(error, **self.context.where(self.node.id)))
