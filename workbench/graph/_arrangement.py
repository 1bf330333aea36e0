"""Where everything in a picture of an application lies: each stage is laid out by itself, then stages and streams.

Operators of a stage that follow each other without a fork form a stack. Where an edge crosses the border of a stage it
passes a port: so the two layouts meet, and an edge runs around the operators it does not belong to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from workbench.graph._lettering import one_line, width
from workbench.graph.layout import Box, Key, Link, Point, layers, place

if TYPE_CHECKING:
    from workbench.graph.picture import Picture, PictureEdge, PictureNode

TITLE_SIZE, LABEL_SIZE, DETAIL_SIZE = 13.0, 12.0, 10.5
LONGEST_LABEL, LONGEST_TITLE = 240.0, 600.0
MARGIN, TITLE_HEIGHT, STAGE_HEAD = 16.0, 32.0, 26.0

_LONGEST_STACK = 6
_STEP = 18.0
_STAGE_FOOT = 14.0
_STAGE_SIDE = 22.0
_PORT_HEIGHT = 6.0


class Rect(NamedTuple):
    """Left, top, width and height in pixels."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Route:
    """The way of an edge, or the part of it up to the border of a stage. `arrow`: it ends at a node."""

    points: tuple[Point, ...]
    label: str = ""
    arrow: bool = True

    def moved(self, x: float, y: float) -> Route:
        return Route(tuple((left + x, top + y) for left, top in self.points), self.label, self.arrow)


@dataclass(frozen=True)
class Arrangement:
    """A picture's places: of nodes by id, of stages by name; from the top left corner."""

    nodes: dict[str, Rect]
    stages: dict[str, Rect]
    routes: list[Route]
    width: float
    height: float


@dataclass(frozen=True)
class _Stage:
    """A stage by itself, from its own top left corner. Ports are heights on its left and right border."""

    box: Box
    nodes: dict[str, Rect]
    routes: list[Route]
    entries: dict[str, float]
    exits: dict[str, float]


class _Frame(NamedTuple):
    stage: str


class _Port(NamedTuple):
    side: str
    outside: str


def arrange(picture: Picture) -> Arrangement:
    """Lay out `picture`, with room for its title and margins."""
    stage_of = {node.id: node.stage for node in picture.nodes}
    stages = {name: _arrange_stage(picture, name) for name in dict.fromkeys(stage_of.values()) if name is not None}
    boxes: dict[Key, Box] = {}
    for node in picture.nodes:
        if node.stage is None:
            boxes[node.id] = _size(node)
        else:
            boxes[_Frame(node.stage)] = stages[node.stage].box

    crossing = [
        edge
        for edge in picture.edges
        if stage_of[edge.source] is None or stage_of[edge.source] != stage_of[edge.target]
    ]
    ends: dict[tuple[Key, Key, float, float], list[PictureEdge]] = {}
    for edge in crossing:
        source, target = stage_of[edge.source], stage_of[edge.target]
        leaves = 0.0 if source is None else stages[source].exits[edge.target] - stages[source].box.height / 2
        enters = 0.0 if target is None else stages[target].entries[edge.source] - stages[target].box.height / 2
        start: Key = edge.source if source is None else _Frame(source)
        end: Key = edge.target if target is None else _Frame(target)
        ends.setdefault((start, end, leaves, enters), []).append(edge)
    links = [Link(*key, room=_room(_label(edges))) for key, edges in ends.items()]

    placed = place(_evened(boxes, links), links, column_gap=40.0, row_gap=22.0)
    left, top = MARGIN, MARGIN + TITLE_HEIGHT
    nodes: dict[str, Rect] = {}
    frames: dict[str, Rect] = {}
    routes: list[Route] = []
    for key, (x, y) in placed.centres.items():
        box = placed.boxes[key]
        rect = Rect(left + x - box.width / 2, top + y - box.height / 2, box.width, box.height)
        if isinstance(key, _Frame):
            inside = stages[key.stage]
            frames[key.stage] = rect
            nodes |= {id_: Rect(rect.x + of.x, rect.y + of.y, of.width, of.height) for id_, of in inside.nodes.items()}
            routes += [route.moved(rect.x, rect.y) for route in inside.routes]
        else:
            nodes[str(key)] = rect
    for link, edges, points in zip(links, ends.values(), placed.routes, strict=True):
        routes.append(Route(tuple(points), _label(edges), not isinstance(link.target, _Frame)).moved(left, top))
    title = min(width(one_line(picture.title), TITLE_SIZE), LONGEST_TITLE)
    return Arrangement(
        nodes, frames, routes, max(placed.width, title) + 2 * MARGIN, placed.height + TITLE_HEIGHT + 2 * MARGIN
    )


def _arrange_stage(picture: Picture, name: str) -> _Stage:
    members = {node.id: node for node in picture.nodes if node.stage == name}
    sizes = {id_: _size(node) for id_, node in members.items()}
    boxes: dict[Key, Box] = {}
    stack_of: dict[str, int] = {}
    below: dict[str, float] = {}
    for number, stack in enumerate(_stacks(members, picture.edges)):
        boxes[number] = Box(
            max(sizes[id_].width for id_ in stack), sum(sizes[id_].height for id_ in stack) + _STEP * (len(stack) - 1)
        )
        top = -boxes[number].height / 2
        for id_ in stack:
            stack_of[id_], below[id_] = number, top + sizes[id_].height / 2
            top += sizes[id_].height + _STEP

    links: dict[tuple[Key, Key, float, float], list[PictureEdge]] = {}
    steps: list[PictureEdge] = []
    for edge in picture.edges:
        if edge.source not in members and edge.target not in members:
            continue
        if edge.source in members and stack_of[edge.source] == stack_of.get(edge.target):
            steps.append(edge)
            continue
        start: Key = stack_of.get(edge.source, _Port("entry", edge.source))
        end: Key = stack_of.get(edge.target, _Port("exit", edge.target))
        if isinstance(start, _Port):
            boxes[start] = Box(0.0, _PORT_HEIGHT, "first")
        if isinstance(end, _Port):
            boxes[end] = Box(0.0, _PORT_HEIGHT, "last")
        key = (start, end, below.get(edge.source, 0.0), below.get(edge.target, 0.0))
        links.setdefault(key, []).append(edge)

    # An edge that leaves or enters the stage has its label outside.
    labels = ["" if any(isinstance(end, _Port) for end in key) else _label(edges) for key, edges in links.items()]
    joined = [Link(*key, room=_room(label)) for key, label in zip(links, labels, strict=True)]
    placed = place(_evened(boxes, joined), joined, column_gap=34.0, row_gap=18.0)
    natural = placed.width + sum(
        _STAGE_SIDE for side in ("first", "last") if side not in {box.side for box in boxes.values()}
    )
    wide = max(natural, min(width(one_line(name), DETAIL_SIZE) + 24.0, LONGEST_LABEL))
    left = (wide - placed.width) / 2
    nodes = {}
    for id_, number in stack_of.items():
        x, y = placed.centres[number]
        box = placed.boxes[number]
        top = STAGE_HEAD + y + below[id_] - sizes[id_].height / 2
        nodes[id_] = Rect(left + x - box.width / 2, top, box.width, sizes[id_].height)
    routes = []
    for (start, end, _, _), points, label in zip(links, placed.routes, labels, strict=True):
        way = Route(tuple(points), label, not isinstance(end, _Port)).moved(left, STAGE_HEAD)
        first = ((0.0, way.points[0][1]),) if isinstance(start, _Port) else ()
        last = ((wide, way.points[-1][1]),) if isinstance(end, _Port) else ()
        routes.append(Route(first + way.points + last, way.label, way.arrow))
    for edge in steps:
        over, under = nodes[edge.source], nodes[edge.target]
        x = over.x + over.width / 2
        routes.append(Route(((x, over.y + over.height), (x, under.y)), _label([edge])))
    ports = {key: STAGE_HEAD + y for key, (_, y) in placed.centres.items() if isinstance(key, _Port)}
    return _Stage(
        Box(wide, STAGE_HEAD + placed.height + _STAGE_FOOT),
        nodes,
        routes,
        {port.outside: y for port, y in ports.items() if port.side == "entry"},
        {port.outside: y for port, y in ports.items() if port.side == "exit"},
    )


def _stacks(members: Mapping[str, PictureNode], edges: Iterable[PictureEdge]) -> list[list[str]]:
    """The members in stacks: one goes below another if each is the only neighbour of the other, on that side, in the stage.

    Streams stand alone, and no stack is longer than `_LONGEST_STACK`.
    """
    after: dict[str, set[str]] = {id_: set() for id_ in members}
    before: dict[str, set[str]] = {id_: set() for id_ in members}
    for edge in edges:
        if edge.source in members and edge.target in members:
            after[edge.source].add(edge.target)
            before[edge.target].add(edge.source)
    operators = {id_ for id_, node in members.items() if not node.kind.startswith("stream")}
    below = {
        id_: target
        for id_ in operators
        for target in after[id_]
        if target in operators and len(after[id_]) == 1 and before[target] == {id_} and target != id_
    }
    chains: list[list[str]] = []
    placed = set(below.values())
    for start in [*(id_ for id_ in members if id_ not in placed), *members]:  # the second round finds loops only
        chain: list[str] = []
        id_: str | None = start
        while id_ is not None and id_ not in chain and not any(id_ in other for other in chains):
            chain.append(id_)
            id_ = below.get(id_)
        if chain:
            parts = -(-len(chain) // _LONGEST_STACK)
            chains += [chain[len(chain) * part // parts : len(chain) * (part + 1) // parts] for part in range(parts)]
    return chains


def _evened(boxes: Mapping[Key, Box], links: Sequence[Link]) -> dict[Key, Box]:
    """The boxes, those of nodes that share a column as wide as the widest of them."""
    column = layers(boxes, links)
    widest: dict[int, float] = {}
    nodes = [key for key in boxes if not isinstance(key, _Frame | _Port)]
    for key in nodes:
        widest[column[key]] = max(widest.get(column[key], 0.0), boxes[key].width)
    return {**boxes, **{key: replace(boxes[key], width=widest[column[key]]) for key in nodes}}


def _size(node: PictureNode) -> Box:
    """Of the shape of a node, from its text."""
    wide = max(
        min(width(one_line(node.label), LABEL_SIZE), LONGEST_LABEL),
        min(width(one_line(node.remark), DETAIL_SIZE), LONGEST_LABEL),
    )
    is_stream = node.kind.startswith("stream")
    return Box(wide + (34.0 if is_stream else 22.0), 44.0 if node.remark else 30.0)


def _label(edges: Sequence[PictureEdge]) -> str:
    return ", ".join(dict.fromkeys(one_line(edge.label) for edge in edges if edge.label))


def _room(label: str) -> float:
    """The gap between columns that a label needs."""
    return min(width(label, DETAIL_SIZE), LONGEST_LABEL) + 44.0 if label else 0.0
