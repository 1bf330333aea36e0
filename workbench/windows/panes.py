"""From partial aggregates to results."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from workbench.windows.aggregates import Aggregate
from workbench.windows.assigners import Session
from workbench.windows.components import present
from workbench.windows.grouping import Numbers, sort_ranks
from workbench.windows.partials import Merged, PartialAggregation, Partials
from workbench.windows.spec import DRAINED, WINDOW_COLUMNS, WINDOW_TIME, WindowSpec


def finish(
    spec: WindowSpec, aggregation: PartialAggregation, partials: Partials, schema: pa.Schema, drained: bool
) -> pa.Table:
    """One row of `schema` for each key and window in `partials`, sorted by window start and keys (nulls last)."""
    merged = aggregation.merge(partials)
    rows = merged.partials.sections[0]
    starts = np.asarray(rows["first"])
    if isinstance(spec.assigner, Session):
        ends = np.asarray(rows["last"]) + spec.assigner.gap
    else:
        ends = starts + spec.assigner.size
    columns = [rows[key] for key in aggregation.keys]
    for times in (starts, ends):
        columns.append(pa.array(times).cast(pa.timestamp("ms", tz="UTC")).cast(WINDOW_TIME))
    values = _Values(merged, aggregation)
    for output, column, aggregate in spec.outputs:
        number = spec.columns.index(column) if column in spec.columns else -1
        columns.append(_result(aggregate, number, rows, values, schema.field(output).type))
    columns.append(pa.array(np.full(len(starts), drained)))
    panes = pa.table(
        [column.cast(field.type) for column, field in zip(columns, schema, strict=True)],
        schema=schema,
    )
    ranks = [sort_ranks(panes[key]) for key in reversed(spec.keys)]
    return panes.take(pa.array(np.lexsort((*ranks, starts))))


def empty(spec: WindowSpec, schema: pa.Schema | None) -> pa.Table:
    """No panes. Before the first row no types are known; then the columns of keys and aggregates are of type null."""
    if schema is None:
        kinds = dict.fromkeys((*spec.keys, *WINDOW_COLUMNS, *spec.aggregates, DRAINED), pa.null())
        known = dict.fromkeys(WINDOW_COLUMNS, WINDOW_TIME) | {DRAINED: pa.bool_()}
        schema = pa.schema([*(kinds | known).items()])
    return schema.empty_table()


class _Values:
    """The values of each pane in order, found once for all quantiles of a column."""

    def __init__(self, merged: Merged, aggregation: PartialAggregation) -> None:
        self._merged = merged
        self._sections = {column: number for number, column in enumerate(aggregation.valued, start=1)}
        self._panes = merged.partials.sections[0].num_rows
        self._sorted: dict[int, tuple[npt.NDArray[np.float64], Numbers, Numbers, Numbers]] = {}

    def distinct(self, column: int) -> Numbers:
        panes = self._merged.windows[self._sections[column]]
        return np.bincount(panes, minlength=self._panes)

    def quantile(self, column: int, fraction: float) -> pa.Array:
        values, reached, before, counts = self._ordered(column)
        position = fraction * (counts - 1)
        low = np.floor(position).astype(np.int64)
        high = np.ceil(position).astype(np.int64)
        has_values = counts > 0
        chosen = np.flatnonzero(has_values)
        below = values[np.searchsorted(reached, before[chosen] + low[chosen], side="right")]
        above = values[np.searchsorted(reached, before[chosen] + high[chosen], side="right")]
        # Spark's own formula, and like Spark no arithmetic where both neighbours are one value (infinity, too).
        with np.errstate(invalid="ignore"):
            between = (high - position)[chosen] * below + (position - low)[chosen] * above
        result = np.zeros(self._panes)
        result[chosen] = np.where((low[chosen] == high[chosen]) | (below == above), below, between)
        return pa.array(result, mask=~has_values)

    def _ordered(self, column: int) -> tuple[npt.NDArray[np.float64], Numbers, Numbers, Numbers]:
        """Values sorted per pane (NaN last), how many values there are up to and with each, and, per pane, how many
        come before it and how many it has."""
        if column not in self._sorted:
            section = self._sections[column]
            table, panes = self._merged.partials.sections[section], self._merged.windows[section]
            panes, values = present(table["value"], panes)
            order = np.lexsort((values, panes))
            multiplicity = np.asarray(table["n"])
            counts = np.bincount(panes, multiplicity, self._panes).astype(np.int64)
            reached = np.cumsum(multiplicity[order])
            self._sorted[column] = values[order], reached, np.cumsum(counts) - counts, counts
        return self._sorted[column]


def _result(aggregate: Aggregate, number: int, rows: pa.Table, values: _Values, kind: pa.DataType) -> Any:
    match aggregate.name:
        case "size":
            return rows["size.-1"]
        case "mean":
            total, count = rows[f"total.{number}"], rows[f"count.{number}"]
            if pa.types.is_decimal(kind):
                return _decimal_means(total, count, kind)
            return pc.divide(total, count.cast(pa.float64()))
        case "std":
            freedom = np.asarray(rows[f"moments.{number}.n"]) - 1
            spread = np.asarray(rows[f"moments.{number}.m2"])
            return pa.array(np.sqrt(spread / np.maximum(freedom, 1)), mask=freedom < 1)
        case "nunique":
            return pa.array(values.distinct(number))
        case "quantile":
            return values.quantile(number, aggregate.fraction or 0.0)
        case "count":
            return rows[f"count.{number}"]
    return rows[f"{aggregate.name}.{number}"]


def _decimal_means(totals: pa.ChunkedArray, counts: pa.ChunkedArray, kind: pa.Decimal128Type) -> pa.Array:
    """Rounded half up, as Spark does. Python's decimals, since Arrow's quotients have other precisions."""
    step = Decimal(1).scaleb(-kind.scale)
    with localcontext() as context:
        context.prec = 76
        means = [
            None if total is None else (total / count).quantize(step, ROUND_HALF_UP)
            for total, count in zip(totals.to_pylist(), counts.to_pylist(), strict=True)
        ]
    return pa.array(means, kind)
