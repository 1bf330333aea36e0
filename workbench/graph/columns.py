"""Columns that an application names and its rows will not have, found before anything runs.

The columns of a source are known once the log holds its first rows. Filters, merges and streams between stages keep them,
windows and joins have columns of their own. Behind a function of the user's nobody knows them before it has run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from workbench.errors import UnknownColumn
from workbench.graph import nodes
from workbench.graph.expressions import columns_in
from workbench.times import check_time_type
from workbench.windows.spec import ANY_COLUMN


def check_columns(application_nodes: Sequence[nodes.Node], schemas: Mapping[str, pa.Schema | None]) -> None:
    """Raise `UnknownColumn` for the first operator, in the order of declaration, that needs a column it will not get.

    `schemas` are those of the source streams, None (or nothing) for one without rows yet. Raises `WrongType` too, for a
    window whose keys or aggregates can not be of these types, `InvalidJoin` for sides whose columns can not stand together,
    and `InvalidTime` for an event time that is none.
    """
    leaving: dict[int, tuple[pa.Schema, ...]] = {}
    """Operator → the known ones among the schemas of the rows that can leave it."""
    for node in application_nodes:
        reaching = tuple(schema for before in _before(node) for schema in leaving[before.id])
        for schema in reaching:
            _check(_needed(node), schema, f"the rows that reach {node.label!r}")
        leaving[node.id] = _leaving(node, reaching, schemas, leaving)


def _before(node: nodes.Node) -> tuple[nodes.Node, ...]:
    if isinstance(node, nodes.Input):
        return (node.produced_by,) if node.produced_by else ()
    return node.inputs


def _needed(node: nodes.Node) -> Iterable[str]:
    match node:
        case nodes.Filter(predicate=str(text)):
            return sorted(columns_in(text))
        case nodes.PartitionBy() | nodes.SendTo():
            return node.keys
        case nodes.Window():
            aggregated = (column for _, column, _ in node.spec.outputs if column != ANY_COLUMN)
            return (*node.spec.keys, node.spec.time_column, *aggregated)
        case nodes.JoinSide():
            return (*node.spec.keys(node.side), node.spec.time_column(node.side))
        case nodes.Table():
            return node.keys
    return ()


def _check_looked_up(node: nodes.TableJoin, schemas: Iterable[pa.Schema]) -> None:
    for schema in schemas:
        _check(node.spec.left_on, schema, f"the rows that reach {node.label!r}")


def _leaving(
    node: nodes.Node,
    reaching: tuple[pa.Schema, ...],
    schemas: Mapping[str, pa.Schema | None],
    leaving: Mapping[int, tuple[pa.Schema, ...]],
) -> tuple[pa.Schema, ...]:
    match node:
        case nodes.StreamJoin() | nodes.TableJoin():
            left, right = (leaving[side.id] for side in node.inputs)
            if isinstance(node, nodes.TableJoin):
                _check_looked_up(node, left)
            return tuple(node.spec.output_schema(one, other) for one in left for other in right)
        case nodes.Input(produced_by=None):
            return _of_source(node, schemas.get(node.stream))
        case nodes.Map() | nodes.FlatMap():
            return ()
        case nodes.Window():
            return tuple(node.spec.output_schema(schema) for schema in reaching)
    return reaching


def _of_source(node: nodes.Input, schema: pa.Schema | None) -> tuple[pa.Schema, ...]:
    if schema is None:
        return ()
    if node.event_time is not None:
        _check([node.event_time], schema, f"the stream {node.stream!r}")
        check_time_type(schema.field(node.event_time).type, node.event_time)
    return (schema,)


def _check(needed: Iterable[str], schema: pa.Schema, where: str) -> None:
    for column in needed:
        if column not in schema.names:
            raise UnknownColumn.from_known(column, schema.names, where)
