"""Boxes and links between them, laid out in layers from left to right.

The method of Sugiyama, Tagawa and Toda in its simplest useful form: layers by longest path, order within a layer by
barycentres, then heights by least squares. Links run level through a column and bend only in the gaps between columns,
so they never touch a box they do not belong to. Units are pixels, y grows downwards.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Literal, NamedTuple

Key = Hashable
Point = tuple[float, float]

_SWEEPS = 12
_MOST_STEPS, _STILL = 300, 0.05
_BEND_HEIGHT = 10.0


@dataclass(frozen=True)
class Box:
    """What is to be placed. `side` pins it to the first or the last layer."""

    width: float
    height: float
    side: Literal["first", "last"] | None = None


@dataclass(frozen=True)
class Link:
    """`leaves` and `enters` are heights below the centre of the box; `room` is the least gap that the link needs."""

    source: Key
    target: Key
    leaves: float = 0.0
    enters: float = 0.0
    room: float = 0.0


class _Segment(NamedTuple):
    """A link, or the part of one, between neighbouring layers."""

    source: Key
    target: Key
    leaves: float
    enters: float


@dataclass(frozen=True)
class Placement:
    """Centres of boxes, and for each link the points where it leaves and enters columns, in order."""

    boxes: Mapping[Key, Box]
    centres: dict[Key, Point]
    routes: list[list[Point]]
    width: float
    height: float


def place(boxes: Mapping[Key, Box], links: Sequence[Link], *, column_gap: float, row_gap: float) -> Placement:
    """Lay out `boxes` from (0, 0) on. Ties are broken by the order of `boxes`, so equal input gives equal output."""
    layer_of = layers(boxes, links)
    sizes: dict[Key, Box] = dict(boxes)
    paths: list[list[Key]] = []
    segments: list[_Segment] = []
    for number, link in enumerate(links):
        first, last = layer_of[link.source], layer_of[link.target]
        bends: list[Key] = []
        for layer in range(first + 1, last):
            bend: Key = ("bend", number, layer)
            sizes[bend], layer_of[bend] = Box(0, _BEND_HEIGHT), layer
            bends.append(bend)
        paths.append(bends)
        if first < last:
            for source, target in pairwise([link.source, *bends, link.target]):
                leaves = link.leaves if source == link.source else 0.0
                segments.append(_Segment(source, target, leaves, link.enters if target == link.target else 0.0))

    columns = _ordered(layer_of, sizes, segments)
    y = _heights(columns, sizes, segments, row_gap)
    lefts, rights = _sides(columns, sizes, layer_of, links, column_gap)

    centres = {box: ((lefts[layer_of[box]] + rights[layer_of[box]]) / 2, y[box]) for box in boxes}
    routes = []
    for link, bends in zip(links, paths, strict=True):
        (source_x, source_y), (target_x, target_y) = centres[link.source], centres[link.target]
        route = [(source_x + boxes[link.source].width / 2, source_y + link.leaves)]
        route.append((rights[layer_of[link.source]], route[0][1]))
        for bend in bends:
            route += [(lefts[layer_of[bend]], y[bend]), (rights[layer_of[bend]], y[bend])]
        route.append((lefts[layer_of[link.target]], target_y + link.enters))
        route.append((target_x - boxes[link.target].width / 2, target_y + link.enters))
        routes.append(route)
    bottom = max((y[box] + sizes[box].height / 2 for box in sizes), default=0.0)
    return Placement(boxes, centres, routes, max(rights, default=0.0), bottom)


def layers(boxes: Mapping[Key, Box], links: Sequence[Link]) -> dict[Key, int]:
    """The layer of each box: one more than the last of its predecessors, or just before its first successor if it has none.

    Links that close a cycle do not count.
    """
    forward = _acyclic(boxes, links)
    before: dict[Key, list[Key]] = {box: [] for box in boxes}
    after: dict[Key, list[Key]] = {box: [] for box in boxes}
    for source, target in forward:
        before[target].append(source)
        after[source].append(target)

    layer: dict[Key, int] = {}
    pinned_first = any(box.side == "first" for box in boxes.values())
    for box in _topological(boxes, before, after):
        least = 1 if pinned_first and boxes[box].side != "first" else 0
        layer[box] = max((layer[source] + 1 for source in before[box]), default=least)
    inner = max((layer[box] for box in boxes if boxes[box].side != "last"), default=-1)
    for box in reversed(list(layer)):
        if boxes[box].side == "last":
            layer[box] = max(layer[box], inner + 1)
        elif boxes[box].side is None and not before[box] and after[box]:
            layer[box] = min(layer[target] for target in after[box]) - 1
    return layer


def _acyclic(boxes: Mapping[Key, Box], links: Sequence[Link]) -> list[tuple[Key, Key]]:
    """The links as pairs, without those that close a cycle in a depth-first walk."""
    after: dict[Key, list[Key]] = {box: [] for box in boxes}
    for link in links:
        after[link.source].append(link.target)
    kept: list[tuple[Key, Key]] = []
    done: set[Key] = set()
    active: set[Key] = set()
    for start in boxes:
        stack = [(start, iter(after[start]))] if start not in done else []
        active.update(box for box, _ in stack)
        while stack:
            box, targets = stack[-1]
            target = next(targets, None)
            if target is None:
                stack.pop()
                active.discard(box)
                done.add(box)
                continue
            if target not in active:
                kept.append((box, target))
                if target not in done:
                    active.add(target)
                    stack.append((target, iter(after[target])))
    return kept


def _topological(boxes: Iterable[Key], before: Mapping[Key, list[Key]], after: Mapping[Key, list[Key]]) -> list[Key]:
    waiting = {box: len(before[box]) for box in boxes}
    ready = [box for box, many in waiting.items() if many == 0]
    for box in ready:
        for target in after[box]:
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    return ready


def _ordered(layer_of: Mapping[Key, int], sizes: Mapping[Key, Box], segments: Sequence[_Segment]) -> list[list[Key]]:
    """The boxes of each layer from top to bottom, with as few crossings as some sweeps of barycentres find."""
    columns: list[list[Key]] = [[] for _ in range(max(layer_of.values(), default=-1) + 1)]
    for box, layer in layer_of.items():
        columns[layer].append(box)

    best, fewest = [list(column) for column in columns], _crossings(columns, sizes, segments)
    for sweep in range(_SWEEPS):
        if fewest == 0:
            break
        rightwards = sweep % 2 == 0
        for column in columns if rightwards else reversed(columns):
            rank = {box: index / max(len(other) - 1, 1) for other in columns for index, box in enumerate(other)}
            near: dict[Key, list[float]] = {box: [] for box in column}
            for source, target, leaves, enters in segments:
                if rightwards and target in near:
                    near[target].append(rank[source] + _port(leaves, sizes[source]))
                elif not rightwards and source in near:
                    near[source].append(rank[target] + _port(enters, sizes[target]))
            weight = {box: sum(ranks) / len(ranks) if ranks else rank[box] for box, ranks in near.items()}
            column.sort(key=weight.__getitem__)
        crossings = _crossings(columns, sizes, segments)
        if crossings < fewest:
            best, fewest = [list(column) for column in columns], crossings
    return best


def _port(offset: float, box: Box) -> float:
    """Where on its box a link ends, as a small part of the distance between two boxes."""
    return 0.1 * offset / max(box.height, 1.0)


def _crossings(columns: Sequence[Sequence[Key]], sizes: Mapping[Key, Box], segments: Sequence[_Segment]) -> int:
    at = {box: (layer, index) for layer, column in enumerate(columns) for index, box in enumerate(column)}
    ends = [
        (at[source][0], at[source][1] + _port(leaves, sizes[source]), at[target][1] + _port(enters, sizes[target]))
        for source, target, leaves, enters in segments
    ]
    return sum(a[0] == b[0] and (a[1] - b[1]) * (a[2] - b[2]) < 0 for a, b in combinations(ends, 2))


def _heights(
    columns: Sequence[Sequence[Key]], sizes: Mapping[Key, Box], segments: Sequence[_Segment], row_gap: float
) -> dict[Key, float]:
    """The y of each box's centre: so that links are near level, boxes in order and apart, the topmost at 0."""
    near: dict[Key, list[tuple[Key, float]]] = {box: [] for box in sizes}
    for source, target, leaves, enters in segments:
        near[source].append((target, enters - leaves))
        near[target].append((source, leaves - enters))
    y: dict[Key, float] = {}
    for column in columns:
        y.update(zip(column, _spread([0.0] * len(column), _distances(column, sizes, row_gap)), strict=True))
    for step in range(_MOST_STEPS):
        moved = 0.0
        for column in columns if step % 2 == 0 else reversed(columns):
            wanted = [
                sum(y[other] + apart for other, apart in near[box]) / len(near[box]) if near[box] else y[box]
                for box in column
            ]
            found = _spread(wanted, _distances(column, sizes, row_gap))
            moved = max([moved, *(abs(y[box] - height) for box, height in zip(column, found, strict=True))])
            y.update(zip(column, found, strict=True))
        if moved < _STILL:
            break
    top = min((y[box] - sizes[box].height / 2 for box in y), default=0.0)
    return {box: height - top for box, height in y.items()}


def _distances(column: Sequence[Key], sizes: Mapping[Key, Box], row_gap: float) -> list[float]:
    return [(sizes[above].height + sizes[below].height) / 2 + row_gap for above, below in pairwise(column)]


def _spread(wanted: Sequence[float], distances: Sequence[float]) -> list[float]:
    """The positions nearest to `wanted`, by least squares, that keep these distances (pool adjacent violators)."""
    offsets = [0.0]
    for distance in distances:
        offsets.append(offsets[-1] + distance)
    pools: list[tuple[float, int]] = []
    for want, offset in zip(wanted, offsets, strict=False):
        mean, many = want - offset, 1
        while pools and pools[-1][0] > mean:
            other, others = pools.pop()
            mean, many = (mean * many + other * others) / (many + others), many + others
        pools.append((mean, many))
    pooled = [mean for mean, many in pools for _ in range(many)]
    return [mean + offset for mean, offset in zip(pooled, offsets, strict=False)]


def _sides(
    columns: Sequence[Sequence[Key]],
    sizes: Mapping[Key, Box],
    layer_of: Mapping[Key, int],
    links: Sequence[Link],
    column_gap: float,
) -> tuple[list[float], list[float]]:
    """The left and right of each column."""
    gaps = [column_gap] * len(columns)
    for link in links:
        gaps[layer_of[link.source]] = max(gaps[layer_of[link.source]], link.room)
    lefts, rights, x = [], [], 0.0
    for column, gap in zip(columns, gaps, strict=True):
        lefts.append(x)
        rights.append(x + max(sizes[box].width for box in column))
        x = rights[-1] + gap
    return lefts, rights
