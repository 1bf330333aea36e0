"""What can be told of an application from what its source streams hold, before it is deployed."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from workbench.graph import nodes
from workbench.graph.columns import check_columns
from workbench.systems.base import Rows
from workbench.systems.log import Stream, StreamLog
from workbench.times import check_unit

_FIRST_MESSAGES = 1_000


def check_sources(application_nodes: Sequence[nodes.Node], log: StreamLog) -> None:
    """Check the columns that an application names, and that the first event times of its sources are not seconds.

    Raises `UnknownStream`, and as `graph.columns.check_columns` and `times.check_unit` do.
    """
    sources = [node for node in application_nodes if isinstance(node, nodes.Input) and not node.is_intermediate]
    streams = {node.stream: log.stream(node.stream) for node in sources}
    schemas = {name: stream.schema for name, stream in streams.items()}
    check_columns(application_nodes, schemas)
    for node in sources:
        schema = schemas[node.stream]
        if node.event_time is not None and schema is not None:
            _check_first_times(streams[node.stream], node.event_time, schema.field(node.event_time).type)


def _check_first_times(stream: Stream, column: str, kind: pa.DataType) -> None:
    if not pa.types.is_int64(kind):
        return
    for partition, oldest in enumerate(stream.oldest()):
        # Where retention has removed the first rows, what is first now says little.
        if oldest == 0:
            first = next((e for e in stream.read(partition, limit=_FIRST_MESSAGES) if isinstance(e, Rows)), None)
            if first is not None:
                check_unit(first.table.column(column), column)
