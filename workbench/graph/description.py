"""An application as a picture: what is drawn for each operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.graph import nodes
from workbench.graph.picture import Kind, Picture, PictureEdge, PictureNode
from workbench.graph.stages import Stage, split_into_stages

if TYPE_CHECKING:
    from workbench.graph.application import Application


def describe(application: Application) -> Picture:
    """Streams, operators and stages of an application as it is declared, before any log is known."""
    shown: dict[str, PictureNode] = {}
    edges: list[PictureEdge] = []
    for stage in split_into_stages(application.nodes):
        for node in stage.operators:
            _describe(node, stage, shown, edges)
    return Picture(application.name, list(shown.values()), edges)


def _describe(node: nodes.Node, stage: Stage, shown: dict[str, PictureNode], edges: list[PictureEdge]) -> None:
    own = str(node.id)
    match node:
        case nodes.Input():
            if node.produced_by is None:
                detail = f"event time {node.event_time}" if node.event_time else ""
                _stream(node.stream, "stream-source", detail, shown)
            return
        case nodes.JoinSide():
            return  # drawn as what arrives at the join
        case nodes.Window():
            by = f"by {', '.join(node.spec.keys)}" if node.spec.keys else ""
            shown[own] = PictureNode(own, node.label, "operator", stage.name, by)
        case nodes.Sink():
            shown[own] = PictureNode(own, node.label, "sink", stage.name)
        case nodes.SendTo():
            detail = _partitions(node.partitions)
            _stream(node.stream, "stream-sink", detail, shown)
        case _:
            shown[own] = PictureNode(own, node.label, "operator", stage.name)
    target = _stream_id(node.stream) if isinstance(node, nodes.SendTo) else own
    for predecessor in node.inputs:
        side = predecessor.side if isinstance(predecessor, nodes.JoinSide) else ""
        edges.append(PictureEdge(_end_of(predecessor), target, side))
    match node:
        case nodes.PartitionBy():
            detail = _partitions(node.partitions)
            _stream(node.stream, "stream-intermediate", detail, shown)
            edges.append(PictureEdge(own, _stream_id(node.stream)))
        case nodes.Broadcast():
            _stream(node.stream, "stream-intermediate", "read by every task", shown)
            edges.append(PictureEdge(own, _stream_id(node.stream)))
        case nodes.Window() if node.late is not None:
            _stream(node.late, "stream-sink", "", shown)
            edges.append(PictureEdge(own, _stream_id(node.late), "late rows"))
        case nodes.StreamJoin():
            for entrance in node.inputs:
                if isinstance(entrance, nodes.JoinSide) and entrance.late is not None:
                    _stream(entrance.late, "stream-sink", "", shown)
                    edges.append(PictureEdge(own, _stream_id(entrance.late), f"late rows, {entrance.side}"))


def _stream(name: str, kind: Kind, detail: str, shown: dict[str, PictureNode]) -> None:
    shown[_stream_id(name)] = PictureNode(_stream_id(name), name, kind, None, detail)


def _partitions(count: int | None) -> str:
    return "" if count is None else "1 partition" if count == 1 else f"{count} partitions"


def _stream_id(name: str) -> str:
    return f"stream:{name}"


def _end_of(node: nodes.Node) -> str:
    """Where a node's output is drawn to come from: an input is drawn as its stream."""
    if isinstance(node, nodes.JoinSide):
        return _end_of(node.inputs[0])
    return _stream_id(node.stream) if isinstance(node, nodes.Input) else str(node.id)
