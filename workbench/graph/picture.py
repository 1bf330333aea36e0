"""The picture of an application: plain data in, one self-contained SVG or its text twin out.

Nothing here knows operators or logs. Streams run from left to right; the operators of a stage that follow each other
without a fork are stacked, so that an application of several stages stays as wide as a notebook.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from workbench.graph._arrangement import arrange
from workbench.graph._drawing import draw
from workbench.graph._lettering import one_line
from workbench.graph.layout import Box, Link, layers

Kind = Literal["stream-source", "stream-intermediate", "stream-sink", "operator", "sink"]

_WORDS = {
    "stream-source": "source stream",
    "stream-intermediate": "intermediate stream",
    "stream-sink": "output stream",
    "operator": "",
    "sink": "function",
}


@dataclass(frozen=True)
class PictureNode:
    """A stream, an operator, or a function that takes what comes out.

    `stage` is the name of the stage it belongs to, None for what lies between stages. `detail` is a short remark, such as
    "3 partitions".
    """

    id: str
    label: str
    kind: Kind
    stage: str | None = None
    detail: str = ""

    @property
    def remark(self) -> str:
        """What kind of thing it is, and its detail."""
        return ", ".join(part for part in (_WORDS[self.kind], self.detail) if part)


@dataclass(frozen=True)
class PictureEdge:
    """Messages go from the node `source` to the node `target`."""

    source: str
    target: str
    label: str = ""


@dataclass(frozen=True)
class Picture:
    """A graph to be shown. Names may be any text.

    Raises `ValueError` if two nodes have the same id, or an edge starts or ends nowhere.
    """

    title: str
    nodes: Sequence[PictureNode]
    edges: Sequence[PictureEdge]

    def __post_init__(self) -> None:
        ids = {node.id for node in self.nodes}
        if len(ids) < len(self.nodes):
            raise ValueError(f"Two nodes of the picture {self.title!r} have the same id.")
        for edge in self.edges:
            if missing := {edge.source, edge.target} - ids:
                raise ValueError(f"An edge of the picture {self.title!r} ends at {missing}, which is not a node.")


def svg(picture: Picture) -> str:
    """The picture as one SVG element, to be put into a page or a file as it is.

    It has no scripts, no identifiers and no outside resources; names are text, never markup. Colours follow JupyterLab's
    theme where there is one, and elsewhere are those of a light card, its background included.
    """
    return draw(picture, arrange(picture))


def text(picture: Picture) -> str:
    """The picture in words: one line for each stream and operator, the operators of a stage indented under its name.

    A line names what it reads from after "←", unless that is just the operator in the line above.
    """
    names = {node.id: one_line(node.label) for node in picture.nodes}
    lines = [one_line(picture.title)]
    above: PictureNode | None = None
    for node in _reading_order(picture):
        same_stage = above is not None and above.stage == node.stage is not None
        if node.stage is not None and not same_stage:
            lines.append(f"  {one_line(node.stage)}")
        sources = dict.fromkeys(edge.source for edge in picture.edges if edge.target == node.id)
        follows = same_stage and above is not None and list(sources) == [above.id]
        lines.append(
            ("  " if node.stage is None else "    ")
            + names[node.id]
            + (f" ({one_line(node.remark)})" if node.remark else "")
            + (f" ← {', '.join(names[source] for source in sources)}" if sources and not follows else "")
        )
        above = node
    return "\n".join(lines)


def _reading_order(picture: Picture) -> list[PictureNode]:
    """Each node after those it reads from, as far as there is no cycle, the nodes of a stage in one run."""
    frame = {node.id: f"stage {node.stage}" if node.stage is not None else f"node {node.id}" for node in picture.nodes}
    ends = [(edge.source, edge.target) for edge in picture.edges]
    between = [Link(frame[source], frame[target]) for source, target in ends if frame[source] != frame[target]]
    inner = layers({node.id: Box(0, 0) for node in picture.nodes}, [Link(*pair) for pair in ends])
    outer = layers({name: Box(0, 0) for name in frame.values()}, between)
    position = {name: number for number, name in enumerate(dict.fromkeys(frame.values()))}
    return sorted(picture.nodes, key=lambda node: (outer[frame[node.id]], position[frame[node.id]], inner[node.id]))
