"""Numbers for groups of equal values: what every aggregate is computed by.

Arrow groups by one integer column about twenty times as fast as by a text column and an integer (500,000 rows: 6 ms
against 190 ms), so all keys are turned into one integer first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Groups:
    """`ids`: the group of each row, numbered from 0 by first appearance. `rows`: the first row of each group."""

    ids: Numbers
    rows: Numbers

    @property
    def count(self) -> int:
        return len(self.rows)


def canonical_type(kind: pa.DataType) -> pa.DataType:
    """The one type in which values of `kind` are kept, so that equal values of different batches meet."""
    if pa.types.is_dictionary(kind):
        return canonical_type(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return pa.float32() if pa.types.is_float16(kind) else kind


def canonical(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """`column` in its canonical type."""
    kind = canonical_type(column.type)
    return column if kind == column.type else column.cast(kind)


def normalized(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floating point values as Spark groups them: all NaN are one value, and -0.0 is 0.0."""
    if not pa.types.is_floating(column.type):
        return column
    column = pc.add(column, pa.scalar(0.0, column.type))
    return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)


def codes(column: pa.ChunkedArray | Numbers) -> Numbers:
    """Equal values get equal numbers, from 0 without gaps, by first appearance. Null is a value of its own."""
    if isinstance(column, np.ndarray):
        column = pa.chunked_array([pa.array(column)])
    encoded = column.dictionary_encode(null_encoding="encode")
    # One dictionary is shared by all chunks, so their indices can stand side by side.
    parts = [chunk.indices.to_numpy() for chunk in encoded.chunks]
    return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)


def sort_ranks(column: pa.ChunkedArray) -> Numbers:
    """The place of each value among the sorted distinct values; NaN and then null come last."""
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    places = np.empty(len(encoded.dictionary), np.int64)
    places[np.asarray(pc.array_sort_indices(encoded.dictionary))] = np.arange(len(places))
    ranks: Numbers = places[np.asarray(encoded.indices)]
    return ranks


def group(columns: Sequence[pa.ChunkedArray | Numbers], length: int) -> Groups:
    """Groups of the rows with equal values in all `columns`; one group of all rows if there are no columns."""
    if not columns or not length:
        return Groups(np.zeros(length, np.int64), np.zeros(min(length, 1), np.int64))
    ids = codes(columns[0])
    count = int(ids.max()) + 1
    for column in columns[1:]:
        # Fewer than 2**31 distinct values on either side, since no array has more rows: the product fits.
        ids = codes(column) * count + ids
        ids = codes(ids)
        count = int(ids.max()) + 1
    rows = np.empty(count, np.int64)
    rows[ids[::-1]] = np.arange(length - 1, -1, -1)  # of several writes the last one stays: the first row
    return Groups(ids, rows)


def dense(ids: Numbers) -> Groups:
    """The same groups, numbered without gaps."""
    return group([ids], len(ids))
