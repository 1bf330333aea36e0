"""Pictures of applications: nothing overlaps, every name is text, and the words say the same as the drawing."""

from __future__ import annotations

from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.graph._arrangement import Rect, arrange
from workbench.graph._lettering import shortened, width
from workbench.graph.layout import Box, Key, Link, layers, place
from workbench.graph.picture import Kind, Picture, PictureEdge, PictureNode, svg, text

_SVG = "{http://www.w3.org/2000/svg}"


def _chain(*ids: str) -> list[PictureEdge]:
    return [PictureEdge(source, target) for source, target in pairwise(ids)]


def _operators(stage: str, *ids: str) -> list[PictureNode]:
    return [PictureNode(id_, id_, "operator", stage) for id_ in ids]


def _stream(id_: str, kind: Kind = "stream-source", detail: str = "") -> PictureNode:
    return PictureNode(id_, id_, kind, None, detail)


LINEAR = Picture(
    "delays",
    [
        _stream("flights", detail="3 partitions"),
        *_operators("stage 1", "filter", "partition_by"),
        _stream("by-carrier", "stream-intermediate"),
        *_operators("stage 2", "window"),
        _stream("hourly", "stream-sink"),
    ],
    _chain("flights", "filter", "partition_by", "by-carrier", "window", "hourly"),
)
DIAMOND = Picture(
    "diamond",
    [_stream("in"), *_operators("stage 1", "split", "left", "right", "merge"), _stream("out", "stream-sink")],
    [*_chain("in", "split", "left", "merge", "out"), *_chain("split", "right", "merge")],
)
TWO_INPUTS = Picture(
    "two inputs",
    [
        _stream("flights"),
        _stream("weather"),
        *_operators("stage 1", "filter", "convert", "merge"),
        _stream("late", "stream-sink"),
        PictureNode("print", "print", "sink", "stage 1"),
    ],
    [
        *_chain("flights", "filter", "merge"),
        *_chain("weather", "convert", "merge", "print"),
        PictureEdge("merge", "late", "late rows"),
    ],
)


@st.composite
def applications(draw: st.DrawFn) -> Picture:
    """Stages of one to seven operators, each joined to earlier ones, with streams between the stages."""
    nodes = [_stream(f"source {number}") for number in range(draw(st.integers(1, 3)))]
    edges: list[PictureEdge] = []
    streams = [node.id for node in nodes]
    for stage in range(draw(st.integers(1, 4))):
        operators: list[str] = []
        for number in range(draw(st.integers(1, 7))):
            id_ = f"operator {stage}.{number}"
            reads = draw(st.lists(st.sampled_from([*streams, *operators][-6:]), min_size=1, max_size=3, unique=True))
            edges += [PictureEdge(source, id_, draw(st.sampled_from(["", "", "keys"]))) for source in reads]
            operators.append(id_)
        nodes += _operators(f"stage {stage}", *operators)
        for number, writer in enumerate(
            draw(st.lists(st.sampled_from(operators), min_size=1, max_size=2, unique=True))
        ):
            id_ = f"stream {stage}.{number}"
            nodes.append(_stream(id_, "stream-intermediate", draw(st.sampled_from(["", "4 partitions"]))))
            edges.append(PictureEdge(writer, id_))
            streams.append(id_)
    return Picture("drawn", nodes, edges)


def _apart(one: Rect, other: Rect) -> bool:
    return (
        one.x + one.width <= other.x
        or other.x + other.width <= one.x
        or one.y + one.height <= other.y
        or other.y + other.height <= one.y
    )


def _holds(outer: Rect, inner: Rect) -> bool:
    return (
        outer.x <= inner.x
        and inner.x + inner.width <= outer.x + outer.width + 0.01
        and outer.y <= inner.y
        and inner.y + inner.height <= outer.y + outer.height + 0.01
    )


@given(applications())
@settings(deadline=None, max_examples=80)
def test_nothing_overlaps_and_every_operator_is_in_its_stage_alone(picture: Picture) -> None:
    arranged = arrange(picture)
    assert arranged.nodes.keys() == {node.id for node in picture.nodes}
    assert all(_apart(one, other) for one, other in combinations(arranged.nodes.values(), 2))
    assert all(_apart(one, other) for one, other in combinations(arranged.stages.values(), 2))
    card = Rect(0, 0, arranged.width, arranged.height)
    for node in picture.nodes:
        assert _holds(card, arranged.nodes[node.id])
        for name, frame in arranged.stages.items():
            rect = arranged.nodes[node.id]
            assert _holds(frame, rect) if name == node.stage else _apart(frame, rect)


@given(applications())
@settings(deadline=None, max_examples=80)
def test_no_edge_runs_through_a_node(picture: Picture) -> None:
    arranged = arrange(picture)
    for route in arranged.routes:
        for (from_x, from_y), (to_x, to_y) in pairwise(route.points):
            # A bend stays within the heights of its ends, so a box outside its rectangle is not touched.
            left, right = sorted((from_x, to_x))
            top, bottom = sorted((from_y, to_y))
            swept = Rect(left, top, right - left, bottom - top)
            for rect in arranged.nodes.values():
                core = Rect(rect.x + 1, rect.y + 1, rect.width - 2, rect.height - 2)
                assert _apart(swept, core)


@given(applications())
@settings(deadline=None, max_examples=40)
def test_every_edge_can_be_followed_to_an_arrow_head(picture: Picture) -> None:
    arranged = arrange(picture)
    starts = {route.points[0] for route in arranged.routes}
    ends = {route.points[-1]: route for route in arranged.routes}

    def is_met(point: tuple[float, float]) -> bool:
        return any(abs(point[0] - x) < 0.01 and abs(point[1] - y) < 0.01 for x, y in starts)

    for end, route in ends.items():
        assert route.arrow or is_met(end)
    for node in picture.nodes:
        rect = arranged.nodes[node.id]
        heads = [end for end, route in ends.items() if route.arrow and _holds(rect, Rect(*end, 0, 0))]
        assert bool(heads) == any(edge.target == node.id for edge in picture.edges)


@pytest.mark.parametrize("picture", [LINEAR, DIAMOND, TWO_INPUTS], ids=lambda picture: picture.title)
def test_a_picture_is_well_formed_and_shows_every_name(picture: Picture) -> None:
    root = ElementTree.fromstring(svg(picture))
    shown = {"".join(element.itertext()) for element in root.iter(f"{_SVG}text")}
    assert {node.label for node in picture.nodes} <= shown
    assert {node.stage for node in picture.nodes if node.stage} <= shown
    assert {picture.title} | {edge.label for edge in picture.edges if edge.label} <= shown
    assert svg(picture) == svg(picture)


@given(st.text(max_size=300), st.text(max_size=300))
@settings(deadline=None)
def test_any_name_is_text_and_never_markup(name: str, detail: str) -> None:
    hostile = "<script>alert(1)</script>\"'&]]>-->" + name
    picture = Picture(
        hostile,
        [
            PictureNode(hostile, hostile, "stream-source", None, detail),
            PictureNode("two", hostile, "operator", hostile, detail),
        ],
        [PictureEdge(hostile, "two", hostile)],
    )
    root = ElementTree.fromstring(svg(picture).encode())
    assert {element.tag.removeprefix(_SVG) for element in root.iter()} <= {
        "svg",
        "style",
        "rect",
        "path",
        "g",
        "text",
        "title",
    }
    names = {attribute for element in root.iter() for attribute in element.attrib}
    assert not any(attribute.lower().startswith("on") or "href" in attribute for attribute in names)
    assert "id" not in names
    text(picture).encode()


def test_a_long_name_is_shortened_and_its_tooltip_has_all_of_it() -> None:
    name = "flights " * 60 + "end"
    picture = Picture("long", [PictureNode("x", name, "operator", name)], [])
    root = ElementTree.fromstring(svg(picture))
    shown = [element.text or "" for element in root.iter(f"{_SVG}text") if element.find(f"{_SVG}title") is None]
    assert any(part.endswith("…") and len(part) < 50 for part in shown)
    assert [title.text for title in root.iter(f"{_SVG}title")].count(name) == 2
    assert arrange(picture).width < 400


@given(st.text(), st.floats(20, 400))
def test_a_shortened_text_fits_and_begins_like_the_whole(words: str, room: float) -> None:
    short = shortened(words, 12, room)
    assert width(short, 12) <= room + 1e-6 or len(short) == 1
    assert short == words or (short.endswith("…") and words.startswith(short[:-1]))


def test_an_emoji_of_several_characters_is_shortened_as_one() -> None:
    astronaut = "\N{WOMAN}\u200d\N{ROCKET}"
    for room in range(14, 200):
        kept = shortened(astronaut * 10, 12, room).removesuffix("…")
        assert kept == astronaut * (len(kept) // len(astronaut))


def test_forty_nodes_stay_narrow_enough_to_scroll_and_are_drawn_at_once() -> None:
    ids = [f"map {number}" for number in range(38)]
    picture = Picture(
        "forty",
        [_stream("in"), *_operators("stage 1", *ids), _stream("out", "stream-sink")],
        _chain("in", *ids, "out"),
    )
    arranged = arrange(picture)
    assert arranged.width < 2_000
    assert len(ElementTree.fromstring(svg(picture)).findall(f"{_SVG}g")) == 41


def test_the_words_name_each_stage_once_and_what_is_read_where_it_is_not_the_line_above() -> None:
    assert text(LINEAR).splitlines() == [
        "delays",
        "  flights (source stream, 3 partitions)",
        "  stage 1",
        "    filter ← flights",
        "    partition_by",
        "  by-carrier (intermediate stream) ← partition_by",
        "  stage 2",
        "    window ← by-carrier",
        "  hourly (output stream) ← window",
    ]
    assert text(TWO_INPUTS).splitlines() == [
        "two inputs",
        "  flights (source stream)",
        "  weather (source stream)",
        "  stage 1",
        "    filter ← flights",
        "    convert ← weather",
        "    merge ← filter, convert",
        "    print (function)",
        "  late (output stream) ← merge",
    ]


def test_operators_without_a_fork_are_stacked_and_parallel_ones_share_a_column() -> None:
    line = arrange(LINEAR).nodes
    assert line["filter"].x == line["partition_by"].x and line["filter"].y < line["partition_by"].y
    diamond = arrange(DIAMOND).nodes
    assert diamond["left"].x == diamond["right"].x and diamond["left"].width == diamond["right"].width
    assert diamond["split"].x < diamond["left"].x < diamond["merge"].x


def test_edges_of_a_plain_chain_are_level() -> None:
    for route in arrange(LINEAR).routes:
        heights = [y for _, y in route.points]
        is_step = len({x for x, _ in route.points}) == 1
        assert is_step or max(heights) - min(heights) < 1


def test_a_source_that_is_needed_late_stands_next_to_its_reader() -> None:
    boxes: dict[Key, Box] = {name: Box(10, 10) for name in ("source", "one", "two", "three", "table")}
    links = [*(Link(*pair) for pair in pairwise(("source", "one", "two", "three"))), Link("table", "three")]
    assert layers(boxes, links) == {"source": 0, "one": 1, "two": 2, "three": 3, "table": 2}


def test_boxes_that_need_not_cross_do_not() -> None:
    boxes: dict[Key, Box] = {name: Box(10, 10) for name in "abcdef"}
    placed = place(boxes, [Link("a", "f"), Link("b", "e"), Link("c", "d")], column_gap=10, row_gap=10)
    assert [placed.centres[one][1] for one in "abc"] == [placed.centres[other][1] for other in "fed"]


def test_a_cycle_is_drawn_and_does_not_hang() -> None:
    nodes = [_stream("in"), *_operators("stage 1", "a", "b", "c"), _stream("loop", "stream-intermediate")]
    edges = [*_chain("in", "a", "b", "c", "a"), *_chain("b", "loop", "a"), PictureEdge("c", "c")]
    picture = Picture("cycle", nodes, edges)
    ElementTree.fromstring(svg(picture))
    assert len(text(picture).splitlines()) == 7


def test_an_empty_application_has_a_picture_too() -> None:
    empty = Picture("nothing yet", [], [])
    assert "nothing yet" in svg(empty)
    assert text(empty) == "nothing yet"


def test_a_picture_refuses_nodes_that_can_not_be_told_apart_and_edges_from_nowhere() -> None:
    with pytest.raises(ValueError, match="same id"):
        Picture("twice", [_stream("x"), _stream("x")], [])
    with pytest.raises(ValueError, match="'y'"):
        Picture("nowhere", [_stream("x")], [PictureEdge("x", "y")])
