"""Operators that call a function of the user's, and what they take from it.

A function gets a frame of its own (what it assigns, nobody else sees) and gives back anything that is a table: what it
leaves as index is not a column, categories become their values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from workbench.engine.batch import Batch
from workbench.engine.failures import Failure, TaskFailed, of_user_function, shown_row
from workbench.engine.operator import Operator
from workbench.errors import UnknownColumn
from workbench.graph import nodes


class UserOperator(Operator):
    """Common to operators that call a function of the user's."""

    def call(self, function: Callable[[pd.DataFrame], Any], batch: Batch, *, again: bool = True) -> Any:
        """Call a user's function; its exception becomes a report with the first row that makes it fail.

        To find that row the function is called again with parts of the batch, unless it may not be called `again`.
        """
        try:
            return function(batch.frame())
        except TaskFailed:
            raise
        except Exception as error:
            frame = batch.frame()
            row = _first_failing(function, frame) if again else frame.head(1)
            where = self._where(batch)
            raise TaskFailed(of_user_function(error, **where, row=shown_row(row))) from error

    def _where(self, batch: Batch) -> dict[str, str]:
        return self.context.where(self.node.id) | {"stream": batch.stream}

    def _refused(self, sentence: str, batch: Batch) -> TaskFailed:
        return TaskFailed(Failure(message=sentence, **self._where(batch), values=shown_row(batch.frame().head(1))))

    def _rows_of(self, result: Any, batch: Batch) -> Batch:
        """What a function returned, as rows of a table, in Arrow types."""
        what = f"The function of {self.node.label!r}"
        if not isinstance(result, pd.DataFrame):
            raise self._refused(f"{what} must return a pandas DataFrame, not {type(result).__name__}.", batch)
        names = list(result.columns)
        unnamed = [name for name in names if not isinstance(name, str)]
        if unnamed:
            shown = ", ".join(map(repr, unnamed[:5]))
            raise self._refused(f"{what} returned columns whose names are not text: {shown}.", batch)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise self._refused(f"{what} returned several columns of the same name: {', '.join(twice)}.", batch)
        try:
            rows = pa.Table.from_pandas(result, preserve_index=False).replace_schema_metadata(None)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise self._refused(f"{what} returned a column that has no Arrow type: {error}", batch) from error
        return batch.with_rows(_without_dictionaries(rows))


class RowsOperator(UserOperator):
    """Common to operators that emit what the function returns."""

    node: nodes.Map | nodes.FlatMap

    def columns(self) -> pa.Schema | None:
        """Found by calling the function with no rows. One that can not do with none has columns nobody knows."""
        schema = super().columns()
        if schema is None:
            return None
        try:
            result = self.node.function(Batch(schema.empty_table(), "").frame())
            return _without_dictionaries(pa.Table.from_pandas(result, preserve_index=False)).schema.remove_metadata()
        except Exception:  # it was written for rows, and fails for this reason only
            return None


class MapOperator(RowsOperator):
    node: nodes.Map

    def process(self, batch: Batch) -> Batch:
        result = self._rows_of(self.call(self.node.function, batch), batch)
        if len(result) != len(batch):
            raise self._refused(
                f"The function of {self.node.label!r} returned {len(result)} rows for {len(batch)}. A map returns one row"
                " for each row; use flat_map or filter to change their number.",
                batch,
            )
        return result


class FlatMapOperator(RowsOperator):
    node: nodes.FlatMap

    def process(self, batch: Batch) -> Batch:
        return self._rows_of(self.call(self.node.function, batch), batch)


class FilterOperator(UserOperator):
    node: nodes.Filter

    def process(self, batch: Batch) -> Batch:
        predicate = self.node.predicate
        kept = self.call(predicate if callable(predicate) else self._evaluate, batch)
        return batch.with_rows(batch.table.filter(self._mask(kept, batch)))

    def _evaluate(self, frame: pd.DataFrame) -> Any:
        """The expression over the frame's columns, and over nothing of ours (see `workbench.graph.expressions`)."""
        try:
            return frame.eval(self.node.predicate, engine="python", local_dict={}, global_dict={})
        except pd.errors.UndefinedVariableError as error:
            unknown = str(error).split("'")[1]
            reached = f"the rows that reach {self.node.label!r}"
            raise self._failure(UnknownColumn.from_known(unknown, list(frame.columns), reached)) from error

    def _mask(self, kept: Any, batch: Batch) -> pa.Array:
        if isinstance(kept, bool | np.bool_):
            kept = [bool(kept)] * len(batch)
        if isinstance(kept, pd.Series) and not kept.index.equals(pd.RangeIndex(len(batch))):
            kept = kept.reindex(range(len(batch))) if kept.index.is_unique else kept  # pandas aligns by the index, too
        try:
            values = pa.array([] if isinstance(kept, pd.DataFrame) else kept, from_pandas=True)
        except (pa.ArrowException, TypeError, ValueError):
            values = pa.array([])
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if not pa.types.is_boolean(values.type) or len(values) != len(batch):
            given = type(kept).__name__ if not len(values) else f"{len(values)} of type {values.type}"
            raise self._refused(
                f"{self.node.label!r} must give one boolean for each of {len(batch)} rows, not {given}.", batch
            )
        return values.fill_null(False)


class SinkOperator(UserOperator):
    node: nodes.Sink

    def process(self, batch: Batch) -> None:
        self.context.rows_out += len(batch)
        self.call(self.node.function, batch, again=False)  # it has effects


def _without_dictionaries(rows: pa.Table) -> pa.Table:
    for index, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            rows = rows.set_column(index, field.name, rows.column(index).cast(field.type.value_type))
    return rows


def _first_failing(function: Callable[[pd.DataFrame], Any], frame: pd.DataFrame) -> pd.DataFrame:
    """The first row with which the function fails by itself, by halving; the batch's first row if only the whole fails."""
    whole = frame
    while len(frame) > 1:
        half = len(frame) // 2
        for part in (frame.iloc[:half], frame.iloc[half:]):
            try:
                function(part.reset_index(drop=True))
            except Exception:  # the search itself is only asking which part fails
                frame = part
                break
        else:
            return whole.head(1)
    return frame
