"""What aggregates are made of: columns that can be started from rows and merged in any order.

A step is `(field, values, how)`: `values` per row to be reduced per group by the Arrow aggregate `how`, or, if `how` is
None, already one value per group. All reductions of one batch share one pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from workbench.errors import SumOverflow
from workbench.windows.grouping import Groups, Numbers

Step = tuple[str, Any, str | None]


@dataclass(frozen=True)
class Component:
    """`kind` of column number `column` (-1 for the rows themselves); `name` is the prefix of its fields."""

    kind: str
    column: int

    @property
    def name(self) -> str:
        return f"{self.kind}.{self.column}"

    def start(self, values: pa.ChunkedArray, groups: Groups, times: Numbers, order: Numbers) -> list[Step]:
        """From rows: `values` of the column, event `times`, and the `order` of arrival."""
        match self.kind:
            case "size":
                return [(self.name, np.bincount(groups.ids, minlength=groups.count), None)]
            case "count":
                return [(self.name, values, "count")]
            case "sum" | "total":
                return [(self.name, _summable(values, self.kind == "total"), "sum")]
            case "min" | "max":
                return [self._extreme(values, groups)]
            case "moments":
                return self._moments(values, groups)
        return self._edge(values, times, order, groups)

    def merge(self, table: pa.Table, groups: Groups) -> list[Step]:
        """From partial results, whose fields are columns of `table`."""
        match self.kind:
            case "size" | "count" | "sum" | "total":
                return [(self.name, table[self.name], "sum")]
            case "min" | "max":
                return [self._extreme(table[self.name], groups)]
            case "moments":
                return self._merged_moments(table, groups)
        times, order = table[f"{self.name}.time"], table[f"{self.name}.order"]
        return self._edge(table[self.name], np.asarray(times), np.asarray(order), groups)

    def _extreme(self, values: pa.ChunkedArray, groups: Groups) -> Step:
        if self.kind == "max" and pa.types.is_floating(values.type):
            is_nan = np.asarray(pc.is_nan(values).fill_null(False))
            if is_nan.any():  # Arrow skips NaN, for Spark it is the greatest
                highest = reduce([(self.name, values, "max")], groups)[self.name]
                has_nan = np.bincount(groups.ids[is_nan], minlength=groups.count) > 0
                return self.name, pc.if_else(pa.array(has_nan), pa.scalar(float("nan"), values.type), highest), None
        return self.name, values, self.kind

    def _moments(self, values: pa.ChunkedArray, groups: Groups) -> list[Step]:
        ids, numbers = present(values, groups.ids)
        count = np.bincount(ids, minlength=groups.count)
        mean = np.bincount(ids, numbers, groups.count) / np.maximum(count, 1)
        with np.errstate(invalid="ignore"):  # infinite values give NaN, as they should
            spread = np.bincount(ids, (numbers - mean[ids]) ** 2, groups.count)
        return self._moment_steps(count, mean, spread)

    def _merged_moments(self, table: pa.Table, groups: Groups) -> list[Step]:
        """Chan, Golub and LeVeque's formula for any number of parts: no large squares are ever subtracted."""
        counts = np.asarray(table[f"{self.name}.n"])
        means, spreads = np.asarray(table[f"{self.name}.mean"]), np.asarray(table[f"{self.name}.m2"])
        count = np.bincount(groups.ids, counts, groups.count)
        mean = np.bincount(groups.ids, counts * means, groups.count) / np.maximum(count, 1)
        with np.errstate(invalid="ignore"):
            apart = counts * (means - mean[groups.ids]) ** 2
            spread = np.bincount(groups.ids, spreads + np.where(counts > 0, apart, 0.0), groups.count)
        return self._moment_steps(count.astype(np.int64), mean, spread)

    def _moment_steps(self, count: Any, mean: Any, spread: Any) -> list[Step]:
        return [(f"{self.name}.n", count, None), (f"{self.name}.mean", mean, None), (f"{self.name}.m2", spread, None)]

    def _edge(self, values: pa.ChunkedArray, times: Numbers, order: Numbers, groups: Groups) -> list[Step]:
        """Of each group the non-null value with the least (time, order), or the greatest."""
        rows = np.flatnonzero(np.asarray(values.is_valid()))
        ids, when = groups.ids[rows], times[rows]
        if self.kind == "first":
            edge = np.full(groups.count, np.iinfo(np.int64).max)
            np.minimum.at(edge, ids, when)
        else:
            edge = np.full(groups.count, np.iinfo(np.int64).min)
            np.maximum.at(edge, ids, when)
        rows = rows[when == edge[ids]]
        rows = rows[np.argsort(order[rows], kind="stable")]
        if self.kind == "first":
            rows = rows[::-1]  # of several writes below the last one stays
        chosen = np.full(groups.count, -1, np.int64)
        chosen[groups.ids[rows]] = rows
        picks, there = pa.array(chosen, mask=chosen < 0), np.maximum(chosen, 0)
        return [
            (self.name, values.take(picks), None),
            (f"{self.name}.time", times[there], None),
            (f"{self.name}.order", order[there], None),
        ]


def reduce(steps: list[Step], groups: Groups) -> dict[str, pa.ChunkedArray]:
    """One column of `groups.count` values for each step. Raises `SumOverflow` if a sum of whole numbers exceeds
    int64."""
    columns = {field: values for field, values, how in steps if how is not None}
    reduced = {}
    if columns:
        table = pa.table({"": groups.ids, **columns})
        wanted = [(field, how) for field, _, how in steps if how is not None]
        # A task runs beside others, each in a process of its own: more threads would only wait for each other.
        reduced = table.group_by("", use_threads=False).aggregate(wanted)
    result = {}
    for field, values, how in steps:
        if how is None:
            result[field] = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([pa.array(values)])
            continue
        if how == "sum":
            _check_sum(field, values, groups)
        # By first appearance, as the groups are numbered.
        result[field] = reduced[f"{field}_{how}"]
    return result


def present(values: pa.ChunkedArray, ids: Numbers) -> tuple[Numbers, npt.NDArray[np.float64]]:
    """The non-null `values` as floating point numbers, and their groups."""
    if values.null_count:
        ids, values = ids[np.asarray(values.is_valid())], values.drop_null()
    return ids, np.asarray(_as_float(values))


def _as_float(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    return values.cast(pa.float64(), safe=False)


def _summable(values: pa.ChunkedArray, as_float: bool) -> pa.ChunkedArray:
    kind = values.type
    if pa.types.is_decimal(kind):
        return values
    if as_float or pa.types.is_floating(kind) or pa.types.is_null(kind):
        return _as_float(values)
    try:
        return values.cast(pa.int64())
    except pa.ArrowInvalid as error:  # only uint64 has numbers that do not fit
        raise SumOverflow.of_whole_numbers() from error


def _check_sum(field: str, values: Any, groups: Groups) -> None:
    """Arrow's sums of int64 wrap around in silence."""
    if not isinstance(values, pa.ChunkedArray) or not pa.types.is_int64(values.type) or not len(values):
        return
    bounds = pc.min_max(values)
    largest = max(abs(bounds["min"].as_py() or 0), abs(bounds["max"].as_py() or 0))
    if largest * len(values) < 2**63:
        return
    rows = np.flatnonzero(np.asarray(values.is_valid()))
    ids, numbers = groups.ids[rows], np.asarray(values.drop_null())
    high, low = np.zeros(groups.count, np.int64), np.zeros(groups.count, np.int64)
    np.add.at(high, ids, numbers >> 32)
    np.add.at(low, ids, numbers & 0xFFFFFFFF)
    high += low >> 32
    if high.max(initial=0) >= 2**31 or high.min(initial=0) < -(2**31):
        raise SumOverflow.of_whole_numbers()
