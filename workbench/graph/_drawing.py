"""An arranged picture as SVG. Every text that goes in is escaped here, and nowhere else."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from workbench.graph._arrangement import (
    DETAIL_SIZE,
    LABEL_SIZE,
    LONGEST_TITLE,
    MARGIN,
    STAGE_HEAD,
    TITLE_SIZE,
    Arrangement,
    Rect,
    Route,
)
from workbench.graph._lettering import one_line, shortened, xml

if TYPE_CHECKING:
    from workbench.graph.picture import Picture, PictureNode

# JupyterLab defines its variables all or none, so that text and background always come from the same theme. The tints
# are translucent and the lines of medium lightness: they stand out from a light card as from a dark one.
_CARD = "var(--jp-layout-color0,#fff)"
_STYLE = f"""
.tidemark-picture{{font-family:var(--jp-ui-font-family,system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif)}}
.tidemark-picture text{{fill:var(--jp-ui-font-color1,#1f2328);text-anchor:middle;stroke:none;font-size:{LABEL_SIZE:g}px}}
.tidemark-picture .tm-card{{fill:{_CARD};stroke:#8b949e;stroke-opacity:.45}}
.tidemark-picture .tm-title{{text-anchor:start;font-size:{TITLE_SIZE:g}px;font-weight:600}}
.tidemark-picture .tm-remark{{fill:var(--jp-ui-font-color2,#59636e);font-size:{DETAIL_SIZE:g}px}}
.tidemark-picture .tm-stage rect{{fill:#8b949e;fill-opacity:.09;stroke:#8b949e;stroke-opacity:.4}}
.tidemark-picture .tm-stage text{{fill:var(--jp-ui-font-color2,#59636e);text-anchor:start;font-size:{DETAIL_SIZE:g}px}}
.tidemark-picture .tm-route{{fill:none;stroke:#8b949e;stroke-width:1.5}}
.tidemark-picture .tm-head{{fill:#8b949e;stroke:none}}
.tidemark-picture .tm-label{{font-size:{DETAIL_SIZE:g}px;stroke:{_CARD};stroke-width:5px;paint-order:stroke}}
.tidemark-picture .tm-operator .tm-shape{{fill:{_CARD};stroke:#8b949e}}
.tidemark-picture .tm-sink .tm-shape{{fill:#2da36a;fill-opacity:.14;stroke:#2da36a}}
.tidemark-picture .tm-stream-source .tm-shape{{fill:#3d85f0;fill-opacity:.14;stroke:#3d85f0}}
.tidemark-picture .tm-stream-intermediate .tm-shape{{fill:#9a6ff0;fill-opacity:.14;stroke:#9a6ff0}}
.tidemark-picture .tm-stream-sink .tm-shape{{fill:#2da36a;fill-opacity:.14;stroke:#2da36a}}
.tidemark-picture g .tm-shape.tm-rim{{fill:none}}
""".strip()

_CAP = 6.0
_HEAD = 6.0


def draw(picture: Picture, arrangement: Arrangement) -> str:
    """The SVG element. It shrinks with the page down to three quarters of its size, then the page scrolls."""
    wide, tall = arrangement.width, arrangement.height
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tidemark-picture" role="img"'
        f' aria-label="The graph of {xml(picture.title)}" viewBox="0 0 {wide:.0f} {tall:.0f}"'
        f' style="display:block;width:100%;max-width:{wide:.0f}px;min-width:{wide * 0.75:.0f}px">',
        f"<style>{_STYLE}</style>",
        f'<rect class="tm-card" x=".5" y=".5" width="{wide - 1:.0f}" height="{tall - 1:.0f}" rx="8"/>',
        f'<text class="tm-title" x="{MARGIN:g}" y="{MARGIN + 10:g}">'
        f"{_fitting(picture.title, TITLE_SIZE, LONGEST_TITLE)}</text>",
    ]
    parts += [_stage(name, rect) for name, rect in arrangement.stages.items()]
    parts += [_route(route) for route in arrangement.routes]
    parts += [_node(node, arrangement.nodes[node.id]) for node in picture.nodes]
    parts += [_route_label(route) for route in arrangement.routes if route.label]
    return "\n".join([*parts, "</svg>"])


def _fitting(text: str, size: float, room: float) -> str:
    """Text content that fits; if it had to be shortened, with the whole text as its tooltip."""
    whole = one_line(text)
    shown = shortened(whole, size, room)
    return xml(shown) if shown == whole else f"<title>{xml(whole)}</title>{xml(shown)}"


def _stage(name: str, rect: Rect) -> str:
    return (
        f'<g class="tm-stage"><rect {_at(rect)} rx="8"/><text x="{rect.x + 11:.1f}" y="{rect.y + STAGE_HEAD - 9:.1f}">'
        f"{_fitting(name, DETAIL_SIZE, rect.width - 20)}</text></g>"
    )


def _node(node: PictureNode, rect: Rect) -> str:
    is_stream = node.kind.startswith("stream")
    room = rect.width - (28 if is_stream else 16)
    x = rect.x + rect.width / 2 - (_CAP / 2 if is_stream else 0)
    middle = rect.y + rect.height / 2
    tooltip = "\n".join(xml(part) for part in (node.label, node.remark) if part)
    lines = f'<text x="{x:.1f}" y="{middle + (-2 if node.remark else 4):.1f}">{xml(shortened(one_line(node.label), LABEL_SIZE, room))}</text>'
    if node.remark:
        remark = xml(shortened(one_line(node.remark), DETAIL_SIZE, room))
        lines += f'<text class="tm-remark" x="{x:.1f}" y="{middle + 13:.1f}">{remark}</text>'
    shape = _cylinder(rect) if is_stream else f'<rect class="tm-shape" {_at(rect)} rx="5"/>'
    return f'<g class="tm-{node.kind}"><title>{tooltip}</title>{shape}{lines}</g>'


def _cylinder(rect: Rect) -> str:
    """Lying on its side, its open end to the right: where the next message is appended."""
    left, right, top, half = rect.x + _CAP, rect.x + rect.width - _CAP, rect.y, rect.height / 2
    arc = f"A{_CAP:g},{half:.1f} 0 0"
    return (
        f'<path class="tm-shape" d="M{left:.1f},{top:.1f}H{right:.1f}{arc} 1 {right:.1f},{top + 2 * half:.1f}'
        f'H{left:.1f}{arc} 1 {left:.1f},{top:.1f}Z"/>'
        f'<path class="tm-shape tm-rim" d="M{right:.1f},{top:.1f}{arc} 0 {right:.1f},{top + 2 * half:.1f}"/>'
    )


def _route(route: Route) -> str:
    """Level where it runs through a column, a smooth bend where it changes its height between two columns."""
    points = list(route.points)
    x, y = points[-1]
    downwards = len(points) == 2 and points[0][0] == x
    head = ""
    if route.arrow and downwards:
        head = f'<path class="tm-head" d="M{x:.1f},{y:.1f}l-4,-{_HEAD:g}h8Z"/>'
        points[-1] = (x, y - _HEAD + 1)
    elif route.arrow:
        head = f'<path class="tm-head" d="M{x:.1f},{y:.1f}l-{_HEAD:g},-4v8Z"/>'
        # Level before the head, so that it points where the line goes.
        points[-1:] = [(x - _HEAD - 1, y), (x - _HEAD + 1, y)]
    path = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
    for (from_x, from_y), (to_x, to_y) in pairwise(points):
        if from_y == to_y or from_x == to_x:
            path += f"L{to_x:.1f},{to_y:.1f}"
        else:
            middle = (from_x + to_x) / 2
            path += f"C{middle:.1f},{from_y:.1f} {middle:.1f},{to_y:.1f} {to_x:.1f},{to_y:.1f}"
    return f'<path class="tm-route" d="{path}"/>{head}'


def _route_label(route: Route) -> str:
    """In the middle of the longest bend, in front of everything."""
    (from_x, from_y), (to_x, to_y) = max(pairwise(route.points), key=lambda hop: abs(hop[1][0] - hop[0][0]))
    x, y = (from_x + to_x) / 2, (from_y + to_y) / 2 + 3.5
    return f'<text class="tm-label" x="{x:.1f}" y="{y:.1f}">{_fitting(route.label, DETAIL_SIZE, 210)}</text>'


def _at(rect: Rect) -> str:
    return f'x="{rect.x:.1f}" y="{rect.y:.1f}" width="{rect.width:.1f}" height="{rect.height:.1f}"'
