"""Keys of two sides: the types in which they can meet, and one number for all equal keys of both."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from workbench.errors import InvalidJoin
from workbench.windows.grouping import Numbers, canonical, canonical_type, group, normalized

Mask = npt.NDArray[np.bool_]

_FAMILIES = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_boolean,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
    pa.types.is_duration,
    pa.types.is_decimal,
)


def canonical_rows(table: pa.Table) -> pa.Table:
    """The same rows in canonical types (dictionaries as their values), so that rows of all batches can stand together."""
    schema = canonical_schema(table.schema)
    if schema == table.schema:
        return table
    return pa.table([canonical(column) for column in table.columns], schema=schema)


def canonical_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, canonical_type(field.type)) for field in schema])


def key_type(left: pa.Field, right: pa.Field) -> pa.DataType:
    """The type that holds the keys of both sides.

    Widths and units may differ, kinds may not: 1 and 1.0 are in different partitions (see `workbench.partitioning`).
    Raises `InvalidJoin`.
    """
    for field in (left, right):
        if pa.types.is_nested(field.type):
            raise InvalidJoin.nested_key(field.name, str(field.type))
    kinds = canonical_type(left.type), canonical_type(right.type)
    if pa.types.is_null(kinds[0]) or pa.types.is_null(kinds[1]):
        return kinds[1] if pa.types.is_null(kinds[0]) else kinds[0]
    if _family(kinds[0]) == _family(kinds[1]):
        schemas = [pa.schema([pa.field("key", kind)]) for kind in kinds]
        try:
            return pa.unify_schemas(schemas, promote_options="permissive").field("key").type
        except pa.ArrowException:
            pass  # such as a time with a zone and one without: told below
    raise InvalidJoin.key_types(left.name, str(left.type), right.name, str(right.type))


def without_nulls(table: pa.Table, keys: Sequence[str]) -> Mask:
    """The rows that have all their keys: others never match (as in SQL)."""
    there = np.ones(len(table), np.bool_)
    for key in keys:
        column = table.column(key)
        if column.null_count:
            there &= np.asarray(column.is_valid())
    return there


def common_codes(
    left: pa.Table, left_keys: Sequence[str], right: pa.Table, right_keys: Sequence[str]
) -> tuple[Numbers, Numbers]:
    """A number for the key of each row, equal on both sides where the keys are. All NaN are one key, -0.0 is 0.0."""
    columns = []
    for left_key, right_key in zip(left_keys, right_keys, strict=True):
        kind = key_type(left.schema.field(left_key), right.schema.field(right_key))
        both = [
            canonical(table.column(key)).cast(kind) for table, key in ((left, left_key), (right, right_key))
        ]  # cast after decoding: the types of dictionaries are of no interest
        columns.append(normalized(pa.chunked_array([*both[0].chunks, *both[1].chunks], kind)))
    ids = group(columns, len(left) + len(right)).ids
    return ids[: len(left)], ids[len(left) :]


def latest(ids: Numbers, numbers: Numbers) -> Numbers:
    """The row with the greatest of `numbers` for each of `ids`, in the order of these."""
    order = np.lexsort((numbers, ids))
    last = np.append(ids[order][1:] != ids[order][:-1], True) if len(order) else np.zeros(0, np.bool_)
    found: Numbers = order[last]
    return found


def rows_at(table: pa.Table, rows: Numbers) -> pa.Table:
    """The rows of these numbers; all null where the number is negative."""
    missing = rows < 0
    if not missing.any():
        return table.take(pa.array(rows))
    if not len(table):
        return pa.table([pa.nulls(len(rows), field.type) for field in table.schema], schema=table.schema)
    return table.take(pc.if_else(pa.array(missing), pa.scalar(None, pa.int64()), pa.array(rows)))


def _family(kind: pa.DataType) -> int:
    return next((number for number, belongs in enumerate(_FAMILIES) if belongs(kind)), len(_FAMILIES) + hash(kind))
