"""The Arrow schema of a stream: what is kept of the first rows' schema, and what later rows may look like.

A stream has one schema, fixed by its first rows. In it dictionaries are their values, and text, bytes and lists have the
plain 32-bit layout, so that what a library happened to use does not become a property of the stream. Later rows may
differ in the order of their columns, in nullability and encoding, in the unit and zone of timestamps, and in the width
or kind of numbers, as long as no value changes. A column of nothing but nulls has no type yet: it takes the type of the
first rows that have values.
"""

from __future__ import annotations

import pyarrow as pa

from workbench.errors import SchemaMismatch


def normalised(schema: pa.Schema) -> pa.Schema:
    """`schema` without encodings, metadata and nullability."""
    return pa.schema([pa.field(field.name, _plain(field.type)) for field in schema])


def conform(table: pa.Table, stream: str, schema: pa.Schema | None = None) -> pa.Table:
    """`table` with exactly the columns of `schema`, or with its own, normalised.

    Raises `SchemaMismatch` where a column is missing, left over or of another kind, or a value would change.
    """
    if not table.column_names:
        raise SchemaMismatch.no_columns(stream)
    if len(set(table.column_names)) != len(table.column_names):
        raise SchemaMismatch.repeated(stream, [c for c in table.column_names if table.column_names.count(c) > 1])
    target = normalised(table.schema)
    if schema is not None:
        check_castable(stream, schema, table.schema)
        target = refined(schema, target)
    if table.schema.equals(target, check_metadata=True):
        return table
    columns = []
    for field in target:
        column = table.column(field.name)
        columns.append(column if column.type.equals(field.type) else _cast(column, field, stream))
    return pa.table(columns, schema=target)


def check_castable(stream: str, target: pa.Schema, rows: pa.Schema) -> None:
    """Raise `SchemaMismatch` unless rows of schema `rows` may be appended to a stream of schema `target`."""
    have = {field.name: field.type for field in target}
    want = {field.name: field.type for field in rows}
    differences = [
        (name, str(have[name]) if name in have else None, str(want[name]) if name in want else None)
        for name in [*have, *(name for name in want if name not in have)]
        if name not in have or name not in want or not _castable(_plain(want[name]), _plain(have[name]))
    ]
    if differences:
        raise SchemaMismatch.of_stream(stream, differences)


def refined(schema: pa.Schema, rows: pa.Schema) -> pa.Schema:
    """`schema` with the types of `rows` where it has none yet (columns of nothing but nulls so far)."""
    return pa.schema(
        [
            pa.field(field.name, rows.field(field.name).type if pa.types.is_null(field.type) else field.type)
            for field in schema
        ]
    )


def to_bytes(schema: pa.Schema) -> bytes:
    return bytes(schema.serialize())


def from_bytes(data: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(data))


def _cast(column: pa.ChunkedArray, field: pa.Field, stream: str) -> pa.ChunkedArray:
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaMismatch.value(stream, field.name, str(field.type), str(column.type), str(error)) from error


def _castable(rows: pa.DataType, stream: pa.DataType) -> bool:
    if rows.equals(stream) or pa.types.is_null(rows) or pa.types.is_null(stream):
        return True
    if pa.types.is_timestamp(rows) and pa.types.is_timestamp(stream):
        return True
    return _is_number(rows) and _is_number(stream)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _plain(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _plain(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain(field.type)) for field in kind])
    return kind
