"""Arrow types of the log and the types of Spark SQL."""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from workbench.errors import WrongType

_UTC_MICROSECONDS = pa.timestamp("us", "UTC")


def spark_schema(schema: pa.Schema) -> StructType:
    """The columns of a stream as Spark sees them; all may be null.

    Every timestamp becomes Spark's instant (microseconds, UTC; finer ones lose what Spark can not hold), unsigned
    numbers the next wider signed one, columns of nothing but nulls text. Raises `WrongType`, naming the column.
    """
    fields = []
    for field in schema:
        try:
            fields.append(StructField(field.name, from_arrow_type(_known_to_spark(field.type)), True))
        except (PySparkTypeError, ValueError) as error:
            raise WrongType.without_spark(field.name, str(field.type)) from error
    return StructType(fields)


def to_spark(table: pa.Table, schema: StructType) -> pa.Table:
    """The columns of `schema`, in the very types that Spark's reader checks for."""
    target: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    columns = [_cast(table.column(field.name), field.type) for field in target]
    return pa.table(columns, schema=target)


def from_spark(batch: pa.RecordBatch) -> pa.Table:
    """Rows as Spark hands them over, with instants in UTC whatever the session's time zone is."""
    table = pa.Table.from_batches([batch])
    columns = [
        column.cast(_UTC_MICROSECONDS) if pa.types.is_timestamp(column.type) and column.type.tz else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    # Not "safe": the only values that can change are nanoseconds, which Spark can not hold.
    return column if column.type.equals(kind) else column.cast(kind, safe=False)


def _known_to_spark(kind: pa.DataType) -> pa.DataType:
    simple = {
        pa.uint8(): pa.int16(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.decimal128(20, 0),
        pa.float16(): pa.float32(),
        pa.date64(): pa.date32(),
        pa.null(): pa.string(),
    }
    if kind in simple:
        return simple[kind]
    if pa.types.is_timestamp(kind):
        return _UTC_MICROSECONDS
    if pa.types.is_time(kind):
        return pa.time64("ns")
    if pa.types.is_list(kind):
        return pa.list_(_known_to_spark(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _known_to_spark(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_known_to_spark(kind.key_type), _known_to_spark(kind.item_type))
    return kind
