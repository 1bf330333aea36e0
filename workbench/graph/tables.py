"""Which source streams are read for tables only."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.graph import nodes


def sources_of_tables_only(application_nodes: Sequence[nodes.Node]) -> frozenset[str]:
    """Names of the source streams whose messages go into tables and nowhere else, through whatever stages.

    Where the state of an application is given up, such a stream is read again from its beginning: that makes the table
    what it was, and nothing comes twice.
    """
    followers: dict[int, list[nodes.Node]] = {node.id: [] for node in application_nodes}
    for node in application_nodes:
        for predecessor in node.inputs:
            followers[predecessor.id].append(node)
        if isinstance(node, nodes.Input) and node.produced_by is not None:
            followers[node.produced_by.id].append(node)

    def ends_in_tables(node: nodes.Node) -> bool:
        if isinstance(node, nodes.Table):
            return True
        return bool(followers[node.id]) and all(map(ends_in_tables, followers[node.id]))

    return frozenset(
        node.stream
        for node in application_nodes
        if isinstance(node, nodes.Input) and not node.is_intermediate and ends_in_tables(node)
    )
