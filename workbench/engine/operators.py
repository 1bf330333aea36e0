"""How operators treat rows, watermarks and ends inside a task.

Rules (control-messages design document; the reference's sections 2.3 and 3 tell where the original departs from it):
an operator's input watermark is the minimum of its predecessors' output watermarks; it acts only on an advance; what it
emits goes downstream before the watermark does; it acts on an end when *every* predecessor has delivered it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import pandas as pd
import pyarrow as pa

from workbench.engine.batch import Batch
from workbench.engine.failures import Failure, TaskFailed, of_platform, of_user_function, shown_row
from workbench.engine.outbox import Outbox
from workbench.errors import UnknownColumn, WrongType
from workbench.graph import nodes
from workbench.messages import MAX_TIMESTAMP
from workbench.windows import ChunkStore, WindowAggregation, WindowStore


class Context(Protocol):
    """What an operator may use of its task."""

    outbox: Outbox
    late_rows: int
    rows_out: int

    def partitions(self, stream: str) -> int: ...
    def own_partition(self, partitions: int) -> int: ...
    def announce_watermark(self, stream: str, watermark: int) -> None: ...
    def announce_end(self, stream: str) -> None: ...
    def chunks(self, operator: int) -> ChunkStore: ...
    def where(self, operator: int) -> dict[str, str]: ...


@dataclass
class OperatorState:
    """What is checkpointed of each operator: milliseconds since the epoch, None where not yet known."""

    input_watermark: int | None = None
    output_watermark: int | None = None
    ended: bool = False
    manifest: dict[str, Any] | None = None

    def to_json(self) -> list[Any]:
        return [self.input_watermark, self.output_watermark, self.ended, self.manifest]


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
        """Act on the end of all input, once, when every predecessor has delivered it."""
        if self.state.ended or not all(predecessor.state.ended for predecessor in self.predecessors):
            return
        self.on_end()
        self.state.ended = True
        for successor in self.successors:
            successor.end()

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

    def finish_batch(self) -> None:
        """Bring `state` up to date before the checkpoint."""

    def _emit(self, batch: Batch | None) -> None:
        if batch is not None and len(batch):
            for successor in self.successors:
                successor.receive(batch)

    def _failure(self, error: Exception) -> TaskFailed:
        return TaskFailed(of_platform(error, **self.context.where(self.node.id)))


class InputOperator(Operator):
    """Where a stream enters; its watermark and end come from the task's reconciliation."""

    node: nodes.Input


class MergeOperator(Operator):
    """Passes everything on: the minimum of watermarks and the last of the ends are every operator's own rule."""


class UserOperator(Operator):
    """Common to operators that call a function of the user's."""

    def call(self, function: Callable[[pd.DataFrame], Any], batch: Batch) -> Any:
        """Call a user's function; its exception becomes a report with the first row that makes it fail."""
        try:
            # Columns are shared, as Arrow data never change: what the function assigns stays in its own frame.
            return function(batch.frame.copy())
        except Exception as error:
            raise self._user_failure(error, function, batch) from error

    def _user_failure(self, error: Exception, function: Callable[[pd.DataFrame], Any], batch: Batch) -> TaskFailed:
        where = self.context.where(self.node.id) | {"stream": batch.stream}
        return TaskFailed(of_user_function(error, **where, row=shown_row(_first_failing(function, batch.frame))))

    def _refused(self, sentence: str, batch: Batch) -> TaskFailed:
        where = self.context.where(self.node.id) | {"stream": batch.stream}
        return TaskFailed(Failure(message=sentence, **where, values=shown_row(batch.frame.head(1))))

    def _frame_of(self, result: Any, batch: Batch) -> Batch:
        if not isinstance(result, pd.DataFrame):
            raise self._refused(
                f"The function of {self.node.label!r} must return a pandas DataFrame, not {type(result).__name__}.",
                batch,
            )
        returned = batch.with_rows(result)
        try:
            returned.table  # noqa: B018  converting here blames the operator that made the frame
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise self._refused(
                f"The function of {self.node.label!r} returned a column that has no Arrow type: {error}", batch
            ) from error
        except ValueError as error:
            raise self._refused(f"The function of {self.node.label!r} returned no table: {error}", batch) from error
        return returned


class MapOperator(UserOperator):
    node: nodes.Map

    def process(self, batch: Batch) -> Batch:
        result = self._frame_of(self.call(self.node.function, batch), batch)
        if len(result) != len(batch):
            raise self._refused(
                f"The function of {self.node.label!r} returned {len(result)} rows for {len(batch)}. A map returns one row"
                " for each row; use flat_map or filter to change their number.",
                batch,
            )
        return result


class FlatMapOperator(UserOperator):
    node: nodes.FlatMap

    def process(self, batch: Batch) -> Batch:
        return self._frame_of(self.call(self.node.function, batch), batch)


class FilterOperator(UserOperator):
    node: nodes.Filter

    def process(self, batch: Batch) -> Batch:
        predicate = self.node.predicate
        kept = self.call(predicate, batch) if callable(predicate) else self._evaluate(predicate, batch)
        mask = self._mask(kept, batch)
        return batch.with_rows(batch.table.filter(mask))

    def _evaluate(self, expression: str, batch: Batch) -> Any:
        try:
            return batch.frame.eval(expression, engine="python")
        except pd.errors.UndefinedVariableError as error:
            column = str(error).split("'")[1]
            unknown = UnknownColumn.from_known(column, batch.columns, f"the rows that reach {self.node.label!r}")
            raise self._failure(unknown) from error
        except Exception as error:
            raise self._user_failure(error, lambda frame: frame.eval(expression, engine="python"), batch) from error

    def _mask(self, kept: Any, batch: Batch) -> pa.Array:
        if isinstance(kept, pd.DataFrame):
            hint = " '=' assigns; to compare, write '=='." if isinstance(self.node.predicate, str) else ""
            raise self._refused(f"{self.node.label!r} must give one boolean for each row, not a frame.{hint}", batch)
        values = pa.array(kept, from_pandas=True) if not isinstance(kept, bool) else pa.array([kept] * len(batch))
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if not pa.types.is_boolean(values.type) or len(values) != len(batch):
            raise self._refused(
                f"{self.node.label!r} must give one boolean for each of {len(batch)} rows, not {len(values)} of type"
                f" {values.type}.",
                batch,
            )
        return values.fill_null(False)


class WritingOperator(Operator):
    """Common to operators that write rows to a stream by key."""

    def _write_by_key(self, stream: str, keys: tuple[str, ...], batch: Batch, time_column: str | None) -> None:
        for key in keys:
            if key not in batch.columns:
                raise self._failure(
                    UnknownColumn.from_known(key, batch.columns, f"the rows that reach {self.node.label!r}")
                )
        self.context.rows_out += len(batch)
        self.context.outbox.write_by_key(stream, self.context.partitions(stream), keys, batch.table, time_column)


class PartitionByOperator(WritingOperator):
    node: nodes.PartitionBy

    def process(self, batch: Batch) -> None:
        self._write_by_key(self.node.stream, self.node.keys, batch, _present(self.node.event_time, batch))

    def on_watermark(self, watermark: int) -> None:
        self.context.announce_watermark(self.node.stream, watermark)

    def on_end(self) -> None:
        self.context.announce_end(self.node.stream)


class BroadcastOperator(Operator):
    node: nodes.Broadcast

    def process(self, batch: Batch) -> None:
        self.context.rows_out += len(batch)
        self.context.outbox.write(self.node.stream, 0, batch.table, _present(self.node.event_time, batch))

    def on_watermark(self, watermark: int) -> None:
        self.context.announce_watermark(self.node.stream, watermark)

    def on_end(self) -> None:
        self.context.announce_end(self.node.stream)


class SendToOperator(WritingOperator):
    """Final outputs carry user messages only: control messages are between the stages of an application."""

    node: nodes.SendTo

    def process(self, batch: Batch) -> None:
        time_column = _present(self.node.event_time, batch)
        if self.node.keys:
            return self._write_by_key(self.node.stream, self.node.keys, batch, time_column)
        partition = self.context.own_partition(self.context.partitions(self.node.stream))
        self.context.rows_out += len(batch)
        self.context.outbox.write(self.node.stream, partition, batch.table, time_column)


class SinkOperator(UserOperator):
    node: nodes.Sink

    def process(self, batch: Batch) -> None:
        self.context.rows_out += len(batch)
        self.call(self.node.function, batch)


class WindowOperator(Operator):
    """Adds rows to windows and emits the panes that the watermark closes. Its panes' event time is their start, so its
    output watermark stays at the start of the earliest window that can still be emitted."""

    node: nodes.Window

    def __init__(self, node: nodes.Window, context: Context, state: OperatorState) -> None:
        super().__init__(node, context, state)
        self.aggregation = WindowAggregation(node.spec)
        self.store = WindowStore(context.chunks(node.id), state.manifest)

    def process(self, batch: Batch) -> None:
        try:
            late, _ = self.aggregation.add(self.store, batch.table, self.state.input_watermark)
        except (UnknownColumn, WrongType) as error:
            raise self._failure(error) from error
        if len(late):
            self.context.late_rows += len(late)
            if self.node.late is not None:
                partition = self.context.own_partition(self.context.partitions(self.node.late))
                self.context.outbox.write(self.node.late, partition, late, self.node.spec.time_column)

    def on_watermark(self, watermark: int) -> Batch:
        return Batch(self.aggregation.close(self.store, watermark), self.context.where(self.node.id)["stream"])

    def output_watermark(self, watermark: int) -> int:
        if watermark == MAX_TIMESTAMP:
            return watermark
        return self.aggregation.earliest_open_start(self.store, watermark)

    def finish_batch(self) -> None:
        self.state.manifest = self.store.manifest()


OPERATORS: dict[type[nodes.Node], type[Operator]] = {
    nodes.Input: InputOperator,
    nodes.Map: MapOperator,
    nodes.FlatMap: FlatMapOperator,
    nodes.Filter: FilterOperator,
    nodes.Merge: MergeOperator,
    nodes.PartitionBy: PartitionByOperator,
    nodes.Broadcast: BroadcastOperator,
    nodes.Window: WindowOperator,
    nodes.SendTo: SendToOperator,
    nodes.Sink: SinkOperator,
}


def _present(time_column: str | None, batch: Batch) -> str | None:
    return time_column if time_column in batch.columns else None


def _first_failing(function: Callable[[pd.DataFrame], Any], frame: pd.DataFrame) -> pd.DataFrame:
    """The first row with which the function fails by itself, by halving; the batch's first row if only the whole fails."""
    whole = frame
    while len(frame) > 1:
        half = len(frame) // 2
        for part in (frame.iloc[:half], frame.iloc[half:]):
            try:
                function(part)
            except Exception:  # the search itself is only asking which part fails
                frame = part
                break
        else:
            return whole.head(1)
    return frame
