"""Entries as tables for people and for Spark: user rows, and control messages in columns beside them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from workbench.errors import SchemaMismatch
from workbench.messages import MessageType
from workbench.systems.base import Controls, Entry, Rows

CONTROL_FIELDS = (
    pa.field("_type", pa.string()),
    pa.field("_task_name", pa.string()),
    pa.field("_task_count", pa.int64()),
    pa.field("_timestamp", pa.int64()),
    pa.field("_stream_id", pa.string()),
    pa.field("_run_id", pa.string()),
)
"""`_type` is user, watermark, end_of_stream or drain; `_timestamp` is a watermark in milliseconds since the epoch."""

POSITION_FIELDS = (pa.field("_partition", pa.int32()), pa.field("_offset", pa.int64()))


def frame_schema(stream: str, schema: pa.Schema | None, *, control: bool, position: bool = False) -> pa.Schema:
    """The columns of `frame`: the stream's, those of control messages and those of position.

    Raises `SchemaMismatch` if the stream has columns of these names.
    """
    own = [*(schema if schema is not None else ())]
    added = [*(CONTROL_FIELDS if control else ()), *(POSITION_FIELDS if control or position else ())]
    taken = {field.name for field in own} & {field.name for field in added}
    if taken:
        raise SchemaMismatch.reserved(stream, sorted(taken))
    return pa.schema([*own, *added])


def frame(entry: Entry, partition: int, schema: pa.Schema) -> pa.Table:
    """One entry with the columns of `schema`, which is one that `frame_schema` made."""
    count = len(entry)
    columns = []
    known = _control_columns(entry) if isinstance(entry, Controls) else {"_type": pa.repeat("user", count)}
    rows = entry.table if isinstance(entry, Rows) else None
    added = {field.name for field in (*CONTROL_FIELDS, *POSITION_FIELDS)}
    own = set(rows.column_names) if rows is not None else set()
    for field in schema:
        if rows is not None and field.name in own:
            column = rows.column(field.name)
        elif field.name not in added:
            column = pa.nulls(count, field.type)
        elif field.name == "_partition":
            column = pa.array(np.full(count, partition, dtype=np.int32))
        elif field.name == "_offset":
            column = pa.array(np.arange(entry.offset, entry.offset + count, dtype=np.int64))
        else:
            column = known.get(field.name)
            column = pa.nulls(count, field.type) if column is None else column
        columns.append(column)
    return pa.table(columns, schema=schema)


def frames(entries: Iterable[Entry], partition: int, schema: pa.Schema, *, control: bool) -> list[pa.Table]:
    """A table for each entry, without those of control messages unless asked for."""
    return [frame(entry, partition, schema) for entry in entries if control or isinstance(entry, Rows)]


def _control_columns(entry: Controls) -> dict[str, pa.Array]:
    run = entry.run
    kinds = (MessageType.WATERMARK, MessageType.END_OF_STREAM, MessageType.DRAIN)

    def where(kind: MessageType, values: Iterable[object], type_: pa.DataType) -> pa.Array:
        pairs = zip(run.types, values, strict=True)
        return pa.array([value if of == kind else None for of, value in pairs], type_)

    names = {int(kind): kind.name.lower() for kind in kinds}
    return {
        "_type": pa.array([names[kind] for kind in run.types], pa.string()),
        "_task_name": pa.array(run.task_names, pa.string()),
        "_task_count": pa.array(run.task_counts, pa.int64()),
        "_timestamp": where(MessageType.WATERMARK, run.timestamps, pa.int64()),
        "_stream_id": where(MessageType.END_OF_STREAM, run.texts, pa.string()),
        "_run_id": where(MessageType.DRAIN, run.texts, pa.string()),
    }
