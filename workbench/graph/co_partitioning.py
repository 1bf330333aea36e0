"""Whether rows of one key are in the same task on both sides of a join."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.errors import InvalidJoin
from workbench.graph import nodes


def check_joined(node: nodes.StreamJoin | nodes.TableJoin, widths: Mapping[int, int]) -> None:
    """Refuse a join of sides that are not partitioned alike. `widths`: input → partitions of its stream.

    A right side that is broadcast goes with everything. What a stream that the application does not write itself is
    partitioned by, nobody knows here: two of them with equally many partitions are taken at their word.
    Raises `InvalidJoin`.
    """
    left, right = ({source: widths[source.id] for source in _deciding(side)} for side in node.inputs)
    spread = {source: width for side in (left, right) for source, width in side.items() if not source.is_broadcast}
    if all(source.is_broadcast for source in right) or set(spread.values()) == {1}:
        return
    spec = node.spec
    broadcast = next((source for source in left if source.is_broadcast), None)
    if broadcast is not None and spec.how == "left":
        raise InvalidJoin.broadcast_left(node.label, broadcast.stream)
    if all(source.is_broadcast for source in left):
        return
    if len(set(spread.values())) > 1:
        raise InvalidJoin.partition_counts_differ(
            node.label, spec.left_on, {source.stream: width for source, width in spread.items()}
        )
    names = dict(zip(spec.right_on, spec.left_on, strict=True))
    keys: dict[str, tuple[str, ...] | None] = {}
    for source in spread:
        own = source.produced_by.keys if isinstance(source.produced_by, nodes.PartitionBy) else None
        if own is not None and source not in left:
            own = tuple(names.get(key, key) for key in own)
        keys[source.stream] = own
    if len(set(keys.values())) > 1:
        raise InvalidJoin.partitioned_differently(node.label, spec.left_on, keys)
    [common] = set(keys.values())
    if common is not None and not set(common) <= set(spec.left_on):
        raise InvalidJoin.keys_not_together(node.label, spec.left_on, common)


def _deciding(node: nodes.Node) -> set[nodes.Input]:
    """The inputs that decide in which task a row that leaves `node` is."""
    match node:
        case nodes.Input():
            return {node}
        case nodes.TableJoin():
            return _deciding(node.inputs[0])
    found: set[nodes.Input] = set().union(*(_deciding(before) for before in node.inputs))
    if isinstance(node, nodes.StreamJoin):
        # A pair is where both of its rows are, and what is broadcast is everywhere.
        return {source for source in found if not source.is_broadcast} or found
    return found
