"""The operators of a task: where rows enter, are grouped into windows, and are written. See also `user_operators`."""

from __future__ import annotations

import pyarrow as pa

from workbench.engine.batch import Batch
from workbench.engine.join_operators import JoinSideOperator, StreamJoinOperator, TableJoinOperator, TableOperator
from workbench.engine.operator import Context, Operator, OperatorState
from workbench.engine.user_operators import FilterOperator, FlatMapOperator, MapOperator, SinkOperator
from workbench.errors import TidemarkError, UnknownColumn
from workbench.graph import nodes
from workbench.messages import MAX_TIMESTAMP
from workbench.windows import WindowAggregation, WindowStore


class InputOperator(Operator):
    """Where a stream enters; its watermark and end come from the task's reconciliation."""

    node: nodes.Input

    def columns(self) -> pa.Schema | None:
        return self.context.columns_of(self.node.stream)


class MergeOperator(Operator):
    """Passes everything on: the minimum of watermarks and the last of the ends are every operator's own rule."""


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

    def on_drain(self) -> None:
        self.context.announce_drain(self.node.stream)


class BroadcastOperator(Operator):
    node: nodes.Broadcast

    def process(self, batch: Batch) -> None:
        self.context.rows_out += len(batch)
        self.context.outbox.write(self.node.stream, 0, batch.table, _present(self.node.event_time, batch))

    def on_watermark(self, watermark: int) -> None:
        self.context.announce_watermark(self.node.stream, watermark)

    def on_end(self) -> None:
        self.context.announce_end(self.node.stream)

    def on_drain(self) -> None:
        self.context.announce_drain(self.node.stream)


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


class WindowOperator(Operator):
    """Adds rows to windows and emits the panes that the watermark closes. Its panes' event time is their start, so its
    output watermark stays at the start of the earliest window that can still be emitted."""

    node: nodes.Window

    def __init__(self, node: nodes.Window, context: Context, state: OperatorState) -> None:
        super().__init__(node, context, state)
        self.aggregation = WindowAggregation(node.spec)
        self.store = WindowStore(context.chunks(node.id), state.manifest)

    def start_generation(self, *, reset: bool) -> None:
        super().start_generation(reset=reset)
        self.aggregation.start_generation(self.store, reset=reset)

    def process(self, batch: Batch) -> None:
        try:
            late, _ = self.aggregation.add(self.store, batch.table, self.state.input_watermark)
        except TidemarkError as error:
            raise self._failure(error) from error
        if len(late):
            self.context.late_rows += len(late)
            if self.node.late is not None:
                partition = self.context.own_partition(self.context.partitions(self.node.late))
                self.context.outbox.write(self.node.late, partition, late, self.node.spec.time_column)

    def on_watermark(self, watermark: int) -> Batch:
        drained = watermark == MAX_TIMESTAMP and self.context.by_drain(self.node.id)
        try:
            panes = self.aggregation.close(self.store, watermark, drained=drained)
        except TidemarkError as error:
            raise self._failure(error) from error
        return Batch(panes, self.context.where(self.node.id)["stream"])

    def output_watermark(self, watermark: int) -> int:
        if watermark == MAX_TIMESTAMP:
            return watermark
        return self.aggregation.earliest_open_start(self.store, watermark)

    def columns(self) -> pa.Schema | None:
        schema = super().columns()
        return None if schema is None else self.aggregation.output_schema(schema)

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
    nodes.JoinSide: JoinSideOperator,
    nodes.StreamJoin: StreamJoinOperator,
    nodes.Table: TableOperator,
    nodes.TableJoin: TableJoinOperator,
    nodes.SendTo: SendToOperator,
    nodes.Sink: SinkOperator,
}


def _present(time_column: str | None, batch: Batch) -> str | None:
    return time_column if time_column in batch.columns else None
