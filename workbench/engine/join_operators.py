"""Operators of joins in a task: the sides of a stream–stream join, the join itself, tables, and looking up in them.

What they compute is `workbench.joins`. A join acts on each side's watermark by itself, and passes on the lesser of both
or less: no row that it may still emit is behind its output watermark. A look-up follows its stream's watermark alone,
because a table has no time.
"""

from __future__ import annotations

from typing import cast

import pyarrow as pa

from workbench.engine.batch import Batch
from workbench.engine.operator import Context, Operator, OperatorState
from workbench.errors import TidemarkError
from workbench.graph import nodes
from workbench.joins import JoinStore, KeyedTable, Side, StreamJoin, join_table
from workbench.joins.keys import canonical_schema
from workbench.messages import MAX_TIMESTAMP
from workbench.windows.store import EARLIEST


class JoinSideOperator(Operator):
    """Where one side of a join enters: sets aside what is behind the side's own watermark."""

    node: nodes.JoinSide

    @property
    def watermark(self) -> int:
        known = self.state.output_watermark
        return EARLIEST if known is None else known

    def process(self, batch: Batch) -> Batch:
        [join] = self.successors
        assert isinstance(join, StreamJoinOperator)
        try:
            accepted, late = join.join.accept(self.node.side, batch.table, self.watermark)
        except TidemarkError as error:
            raise self._failure(error) from error
        if len(late):
            self.context.late_rows += len(late)
            if self.node.late is not None:
                partition = self.context.own_partition(self.context.partitions(self.node.late))
                self.context.outbox.write(self.node.late, partition, late, self.node.spec.time_column(self.node.side))
        return batch.with_rows(accepted)

    def _emit(self, batch: Batch | None) -> None:
        if batch is not None and len(batch):
            [join] = self.successors
            cast(StreamJoinOperator, join).receive_from(self.node.side, batch)


class StreamJoinOperator(Operator):
    """Pairs rows of its two sides. `store.open_rows` are the rows that it holds."""

    node: nodes.StreamJoin

    def __init__(self, node: nodes.StreamJoin, context: Context, state: OperatorState) -> None:
        super().__init__(node, context, state)
        self.join = StreamJoin(node.spec)
        self.store = JoinStore(context.chunks(node.id), state.manifest)
        self._asked = False

    def start_generation(self, *, reset: bool) -> None:
        super().start_generation(reset=reset)
        self.join.start_generation(self.store, reset=reset)

    def receive_from(self, side: Side, batch: Batch) -> None:
        """Take rows of one side that are not late, and pass on the pairs they make."""
        try:
            self._learn_right()
            for table in self.join.add(self.store, side, batch.table, self._watermarks, drained=self._drained):
                self._emit(batch.with_rows(table))
        except TidemarkError as error:
            raise self._failure(error) from error

    def advance(self) -> None:
        """Each side's watermark releases rows of the other; both together are the operator's input watermark."""
        watermarks = self._watermarks
        stream = self.context.where(self.node.id)["stream"]
        try:
            self._learn_right()
            for table in self.join.expire(self.store, watermarks, drained=self._drained):
                self._emit(Batch(table, stream))
        except TidemarkError as error:
            raise self._failure(error) from error
        if EARLIEST in watermarks:
            return
        self.state.input_watermark = min(watermarks)
        self.pass_on_watermark(self.join.output_watermark(self.store, watermarks))

    def columns(self) -> pa.Schema | None:
        left, right = (side.columns() for side in self.predecessors)
        return None if left is None or right is None else self.node.spec.output_schema(left, right)

    def finish_batch(self) -> None:
        self.state.manifest = self.store.manifest()

    def _learn_right(self) -> None:
        """A row without a match has the other side's columns, too, even if no row of that ever came to this task."""
        if self._asked or self.node.spec.how == "inner" or self.store.rows_of("right").num_columns:
            return
        self._asked = True
        schema = self.predecessors[1].columns()
        if schema is not None:
            self.store.learn("right", canonical_schema(schema))

    @property
    def _watermarks(self) -> tuple[int, int]:
        left, right = (cast(JoinSideOperator, side).watermark for side in self.predecessors)
        return left, right

    @property
    def _drained(self) -> bool:
        """Whether it is a drain that says that no row of the right side will come."""
        return self._watermarks[1] == MAX_TIMESTAMP and self.context.by_drain(self.predecessors[1].node.id)


class TableOperator(Operator):
    """Keeps the latest row of each key. Passes no rows on: who looks one up asks `table`."""

    node: nodes.Table

    def __init__(self, node: nodes.Table, context: Context, state: OperatorState) -> None:
        super().__init__(node, context, state)
        self.table = KeyedTable(node.keys, context.chunks(node.id), state.manifest)

    def start_generation(self, *, reset: bool) -> None:
        super().start_generation(reset=reset)
        if reset:
            self.table.clear()

    def process(self, batch: Batch) -> None:
        try:
            self.table.update(batch.table)
        except TidemarkError as error:
            raise self._failure(error) from error

    def finish_batch(self) -> None:
        self.state.manifest = self.table.manifest()


class TableJoinOperator(Operator):
    """Looks up each row of its first predecessor in the table that is its second."""

    node: nodes.TableJoin

    def process(self, batch: Batch) -> Batch:
        operator = cast(TableOperator, self.predecessors[1])
        table = operator.table
        try:
            if self.node.spec.how == "left" and table.schema is None:
                schema = operator.columns()
                if schema is not None:
                    table.learn(canonical_schema(schema))
            return batch.with_rows(join_table(self.node.spec, batch.table, table))
        except TidemarkError as error:
            raise self._failure(error) from error

    def columns(self) -> pa.Schema | None:
        left, right = (before.columns() for before in self.predecessors)
        return None if left is None or right is None else self.node.spec.output_schema(left, right)

    def advance(self) -> None:
        """A table whose stream goes on for ever, or has no event times, does not hold the stream's time back."""
        watermark = self.predecessors[0].state.output_watermark
        if watermark is None or (self.state.input_watermark is not None and watermark <= self.state.input_watermark):
            return
        self.state.input_watermark = watermark
        self.pass_on_watermark(watermark)
