"""Figures say what their frames say; each claim is read back from the figure, not from a picture of it."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench import plots
from workbench.errors import UnknownColumn
from workbench.plots._labels import dates, duration, escaped, in_order, label, moment
from workbench.plots._stages import NAMES, stages
from workbench.plots._stairs import band, corners, points_per_line, stretch

UTC = "datetime64[ms, UTC]"
HOSTILE = "<b>x</b><br><a href='http://e.org'>&amp; $a^2$ %{x} \"😀"
FIGURES: list[tuple[Callable[..., go.Figure], Callable[..., pd.DataFrame]]] = [
    (plots.watermarks, plots.watermarks_table),
    (plots.who_holds_back, plots.who_holds_back_table),
    (plots.end_of_stream, plots.end_of_stream_table),
    (plots.batches, plots.batches_table),
    (plots.bookkeeping, plots.bookkeeping_table),
    (plots.late_rows, plots.late_rows_table),
]

Row = tuple[int, str, str | None, str]


def at(text: str | None) -> pd.Timestamp:
    return pd.NaT if text is None else pd.Timestamp(text, tz="UTC").as_unit("ms")


def times(values: Sequence[str | None]) -> pd.Series:
    return pd.Series(np.array(values, dtype="datetime64[ms]")).dt.tz_localize("UTC")


def watermarks_frame(rows: Sequence[Row], stage: str = "stage 1: s", stream: str = "s") -> pd.DataFrame:
    """Rows of (batch, task, watermark, state), committed one second after another."""
    start = np.datetime64("2024-05-01T10:00:00", "ms")
    return pd.DataFrame(
        {
            "batch": pd.Series([row[0] for row in rows], dtype="int64"),
            "time": times([str(start + np.timedelta64(row[0], "s")) for row in rows]),
            "task": [row[1] for row in rows],
            "stage": stage,
            "stream": stream,
            "watermark": times([row[2] for row in rows]),
            "state": [row[3] for row in rows],
        }
    )


def two_tasks() -> pd.DataFrame:
    """Task 1 is silent at first, then behind, then idle; both end."""
    return watermarks_frame(
        [
            (0, "Partition 0", "2013-01-01T01:00", "active"),
            (0, "Partition 1", None, "unknown"),
            (1, "Partition 0", "2013-01-01T03:00", "active"),
            (1, "Partition 1", "2013-01-01T01:00", "active"),
            (2, "Partition 0", "2013-01-01T04:00", "active"),
            (2, "Partition 1", "2013-01-01T01:00", "idle"),
            (3, "Partition 0", "2013-01-01T05:00", "active"),
            (3, "Partition 1", None, "finished"),
            (4, "Partition 0", None, "finished"),
            (4, "Partition 1", None, "finished"),
        ]
    )


def ends_frame(rows: Sequence[tuple[str, str, str, bool]]) -> pd.DataFrame:
    """Rows of (task, stream, upstream task, heard)."""
    return pd.DataFrame(
        {
            "task": [row[0] for row in rows],
            "stage": [f"stage 1: {row[1]}" for row in rows],
            "stream": [row[1] for row in rows],
            "upstream_task": [row[2] for row in rows],
            "heard": [row[3] for row in rows],
            "batch": pd.Series([7 if row[3] else None for row in rows], dtype="Int64"),
            "time": times(["2024-05-01T10:00" if row[3] else None for row in rows]),
        }
    )


def batches_frame(late: Sequence[int] = (0, 5, 0), watermarks: Sequence[str | None] | None = None) -> pd.DataFrame:
    count = len(late)
    return pd.DataFrame(
        {
            "batch": np.arange(count),
            "time": times(
                [str(np.datetime64("2024-05-01T10:00", "ms") + np.timedelta64(i, "s")) for i in range(count)]
            ),
            "seconds": 0.5,
            "input_messages": 100,
            "control_messages": 4,
            "output_messages": 10,
            "late_messages": list(late),
            "messages_per_second": 200.0,
            "lowest_watermark": times(watermarks or [f"2013-01-01T{i % 24:02}:00" for i in range(count)]),
            "open_rows": 3,
            "tasks": 2,
        }
    )


def bookkeeping_frame(rows: Sequence[tuple[str, str, str | None, bool, str]], total: int = 2) -> pd.DataFrame:
    """Rows of (task, upstream task, value, heard, state) about watermarks of one stream."""
    return pd.DataFrame(
        {
            "task": [row[0] for row in rows],
            "stream": "s",
            "partition": 0,
            "kind": "watermark",
            "upstream_task": [row[1] for row in rows],
            "value": times([row[2] for row in rows]),
            "heard": [row[3] for row in rows],
            "total": pd.Series([total if row[3] else None for row in rows], dtype="Int64"),
            "reconciled": times([None] * len(rows)),
            "state": [row[4] for row in rows],
        }
    )


def named(figure: go.Figure, name: str) -> list[Any]:
    return [trace for trace in figure.data if trace.name == name]


def texts(part: Any) -> Iterator[str]:
    """Every text in a figure, as plotly gets it (its JSON writes some characters as codes)."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, dict | list):
        for inner in part.values() if isinstance(part, dict) else part:
            yield from texts(inner)


def points(trace: Any) -> list[tuple[Any, Any]]:
    return list(zip(trace.x, trace.y, strict=True))


# Every figure


@pytest.mark.parametrize(("figure", "table"), FIGURES)
def test_an_empty_frame_gives_a_figure_that_says_so_and_an_empty_table(
    figure: Callable[..., go.Figure], table: Callable[..., pd.DataFrame]
) -> None:
    drawn = figure(pd.DataFrame())
    assert [annotation.text for annotation in drawn.layout.annotations] == ["nothing recorded yet"]
    assert drawn.layout.title.text.endswith("?</b>")
    assert len(table(pd.DataFrame())) == 0


@pytest.mark.parametrize(("figure", "table"), FIGURES)
def test_a_frame_of_something_else_is_refused_with_the_columns_it_has(
    figure: Callable[..., go.Figure], table: Callable[..., pd.DataFrame]
) -> None:
    for draw in (figure, table):
        with pytest.raises(UnknownColumn, match="has: 'something'"):
            draw(pd.DataFrame({"something": [1]}))


@pytest.mark.parametrize(
    ("figure", "frame"),
    [
        (plots.watermarks, two_tasks()),
        (plots.who_holds_back, two_tasks()),
        (plots.end_of_stream, ends_frame([("Partition 0", "s", "source", True)])),
        (plots.batches, batches_frame()),
        (plots.late_rows, batches_frame()),
        (plots.bookkeeping, bookkeeping_frame([("Partition 0", "Partition 0", "2013-01-01", True, "active")])),
    ],
)
def test_a_figure_is_a_pure_function_and_names_no_address_on_the_network(
    figure: Callable[..., go.Figure], frame: pd.DataFrame
) -> None:
    before = frame.copy()
    first = figure(frame).to_json()
    pd.testing.assert_frame_equal(frame, before)
    assert figure(frame.sample(frac=1, random_state=1)).to_json() == first
    assert "http" not in first


def test_names_that_plotly_would_interpret_are_shown_letter_by_letter_everywhere() -> None:
    marks = two_tasks().assign(stage=HOSTILE, stream=HOSTILE).replace({"task": {"Partition 1": HOSTILE}})
    ends = ends_frame([(HOSTILE, HOSTILE, "Partition 0", True), ("Partition 0", HOSTILE, HOSTILE, False)])
    heard = [(HOSTILE, "Partition 0", "2013-01-01", True, "active"), ("Partition 0", HOSTILE, None, False, "unknown")]
    book = bookkeeping_frame(heard).assign(stream=HOSTILE)
    for figure in (
        plots.watermarks(marks),
        plots.who_holds_back(marks),
        plots.end_of_stream(ends),
        plots.bookkeeping(book),
    ):
        shown = "\n".join(texts(json.loads(figure.to_json())))
        for interpreted in ("<b>x", "<a", "$", '%{x} "', "&amp; &"):
            assert interpreted not in shown
        assert "&lt;b&gt;x&lt;/b&gt;&lt;br&gt;" in shown
        assert '&#37;{x} "😀' in shown
    # The tables are plain text: there a name is what it is.
    assert HOSTILE in set(plots.watermarks_table(marks)["task"])


def test_plotly_is_met_only_in_the_plots() -> None:
    root = Path(plots.__file__).parents[1]
    met = set()
    for module in root.rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.split(".")[0] == "plotly" for name in names):
                met.add(module.relative_to(root).parts[0])
    # `engine.figures` names the type that it returns.
    assert met <= {"plots", "engine"}
    assert "plots" in met


def test_states_and_neighbouring_tasks_differ_in_more_than_colour() -> None:
    for sign in ("colour", "symbol", "words"):
        assert len({getattr(look, sign) for look in plots.STATES.values()}) == 5
    looks = {(plots.task_colour(f"Partition {i}"), plots.task_symbol(f"Partition {i}")) for i in range(189)}
    assert len(looks) == 189
    assert len({plots.task_colour(f"Partition {i}") for i in range(27)}) == 27


# Watermarks


def test_a_stair_starts_when_it_is_known_dots_while_idle_and_ends_in_a_star() -> None:
    figure = plots.watermarks(two_tasks())
    solid, dotted = named(figure, "Partition 1")
    assert (solid.line.dash, dotted.line.dash) == ("solid", "dot")
    assert solid.line.shape == "hv"
    assert points(solid)[:2] == [(1, "2013-01-01T01:00:00.000"), (2, "2013-01-01T01:00:00.000")]
    assert points(dotted)[:2] == [(2, "2013-01-01T01:00:00.000"), (3, "2013-01-01T01:00:00.000")]
    [stars] = [trace for trace in figure.data if trace.marker.symbol == "star" and trace.x != (None,)]
    assert (tuple(stars.x), tuple(stars.y), stars.yaxis) == ((3, 4), (1.0, 1.0), "y2")
    assert stars.customdata[1].endswith("2 of 2 tasks have finished")


def test_the_minimum_is_unknown_while_any_task_is_and_leaves_out_those_that_finished() -> None:
    [lowest] = named(plots.watermarks(two_tasks()), "minimum over the tasks")
    assert points(lowest) == [
        (1, "2013-01-01T01:00:00.000"),
        (2, "2013-01-01T01:00:00.000"),
        (3, "2013-01-01T05:00:00.000"),
        (4, "2013-01-01T05:00:00.000"),
        (None, None),
    ]


def test_no_sentinel_becomes_a_time() -> None:
    frame = watermarks_frame([(0, "Partition 0", None, "unknown"), (1, "Partition 0", None, "finished")])
    figure = plots.watermarks(frame)
    shown = figure.to_json()
    assert "1970" not in shown
    assert "292" not in shown
    assert not figure.layout.yaxis.showticklabels
    assert "finished without a watermark" in shown


def test_event_times_before_1970_are_drawn_and_those_beyond_all_calendars_are_counted() -> None:
    frame = watermarks_frame(
        [(0, "Partition 0", "1912-04-14T23:40", "active"), (1, "Partition 0", "275760-01-01", "active")]
    )
    figure = plots.watermarks(frame)
    assert points(named(figure, "Partition 0")[0])[0] == (0, "1912-04-14T23:40:00.000")
    assert "275760" not in figure.to_json()
    assert "1 beyond the year 9999 not drawn" in figure.layout.title.subtitle.text


def test_a_task_is_where_its_furthest_behind_stream_is() -> None:
    left = watermarks_frame([(0, "Partition 0", "2013-01-01T05:00", "active"), (1, "Partition 0", None, "finished")])
    right = watermarks_frame(
        [(0, "Partition 0", None, "unknown"), (1, "Partition 0", "2013-01-01T02:00", "idle")], stream="other"
    )
    [stage] = stages(pd.concat([left, right]))
    assert [NAMES[code] for code in stage.state[:, 0]] == ["unknown", "idle"]
    assert np.isnat(stage.watermark[0, 0])
    assert str(stage.watermark[1, 0]) == "2013-01-01T02:00:00.000"


def test_a_task_without_a_row_in_a_batch_stays_where_it_was() -> None:
    frame = two_tasks()
    frame = frame[~((frame["task"] == "Partition 1") & (frame["batch"] == 2))]
    [stage] = stages(frame)
    assert [NAMES[code] for code in stage.state[:, 1]] == ["unknown", "active", "active", "finished", "finished"]


def test_stages_share_the_time_axis_and_tasks_keep_colour_and_order_in_each() -> None:
    frame = pd.concat([two_tasks(), two_tasks().assign(stage="stage 10: t"), two_tasks().assign(stage="stage 2: u")])
    figure = plots.watermarks(frame)
    titles = [annotation.text.split("   ")[0] for annotation in figure.layout.annotations]
    assert titles == ["stage 1: s", "stage 2: u", "stage 10: t"]
    assert {trace.line.color for trace in named(figure, "Partition 0")} == {plots.task_colour("Partition 0")}
    assert sum(bool(trace.showlegend is not False) for trace in named(figure, "Partition 0")) == 1
    assert figure.layout.yaxis5.matches == "y"


def test_many_tasks_become_a_band_with_the_slowest_as_lines() -> None:
    base = np.datetime64("2013-01-01", "ms")
    rows: list[Row] = [
        (
            batch,
            f"Partition {task}",
            str(base + np.timedelta64(batch * (10 if task == 77 else 60 + task), "m")),
            "active",
        )
        for batch in range(5)
        for task in range(256)
    ]
    figure = plots.watermarks(watermarks_frame(rows))
    lines = {trace.name for trace in figure.data if str(trace.name).startswith("Partition")}
    assert "Partition 77" in lines
    assert len(lines) <= 4
    [area] = named(figure, "from lowest to highest of all tasks")
    assert area.fill == "toself"
    assert (min(y for y in area.y if y), max(y for y in area.y if y)) == (
        "2013-01-01T00:00:00.000",
        "2013-01-01T21:00:00.000",
    )


def test_the_table_of_watermarks_says_where_each_task_is_since_when_and_how_far_behind() -> None:
    table = plots.watermarks_table(two_tasks().query("batch <= 2"))
    assert table.to_dict("list") == {
        "stage": ["stage 1: s", "stage 1: s"],
        "task": ["Partition 0", "Partition 1"],
        "state": ["active", "idle"],
        "watermark": [at("2013-01-01T04:00"), at("2013-01-01T01:00")],
        "behind": [pd.Timedelta(0), pd.Timedelta(hours=3)],
        "since_batch": [2, 2],
    }
    assert table["watermark"].dtype == UTC
    ended = plots.watermarks_table(two_tasks())
    assert ended["state"].tolist() == ["finished", "finished"]
    assert ended["watermark"].isna().all()
    assert ended["since_batch"].tolist() == [4, 3]


# Who holds it back


def test_stretches_name_the_task_the_state_and_the_distance_to_the_next() -> None:
    table = plots.who_holds_back_table(two_tasks())
    assert list(zip(table["task"], table["state"], table["from_batch"], table["to_batch"], strict=True)) == [
        ("Partition 1", "unknown", 0, 0),
        ("Partition 1", "active", 1, 1),
        ("Partition 1", "idle", 2, 2),
        ("Partition 0", "active", 3, 3),
        ("all tasks", "finished", 4, 4),
    ]
    assert table["behind_next"].tolist()[1:3] == [pd.Timedelta(hours=2), pd.Timedelta(hours=3)]
    assert table["behind_next"].isna().tolist() == [True, False, False, True, True]


def test_tasks_that_are_level_hold_it_back_together_and_are_told_apart_from_those_ahead() -> None:
    base = np.datetime64("2013-01-01T00:00", "ms")
    frame = watermarks_frame(
        [
            (batch, f"Partition {task}", str(base + np.timedelta64(hours, "h")), "active")
            for batch, row in enumerate([(2, 1, 4, 4, 4), (3, 3, 4, 4, 4), (4, 4, 4, 4, 5), (6, 6, 6, 6, 6)])
            for task, hours in enumerate(row)
        ]
    )
    table = plots.who_holds_back_table(frame)
    assert table[["task", "from_batch", "to_batch"]].values.tolist() == [
        ["Partition 1", 0, 0],
        ["Partition 0, Partition 1", 1, 1],
        ["4 tasks", 2, 2],
        ["all tasks", 3, 3],
    ]
    hours = [None if pd.isna(behind) else behind / pd.Timedelta(hours=1) for behind in table["behind_next"]]
    assert hours == [1, 1, 1, None]
    figure = plots.who_holds_back(frame)
    [level] = named(figure, "several tasks, level")
    assert list(level.base) == [0.5, 1.5, 2.5]
    assert level.marker.color not in {plots.task_colour(f"Partition {task}") for task in range(5)}
    assert [text.split(":")[0] for text in level.customdata] == [
        "<b>Partition 0, Partition 1</b>", "<b>4 tasks</b>", "<b>all tasks</b>",
    ]  # fmt: skip
    assert "input s<br>" in level.customdata[0]
    assert list(level.text) == ["2 tasks", "4 tasks", "all tasks"], "what fits into the bars"


def test_of_several_inputs_the_one_that_is_behind_is_named() -> None:
    stage = "stage 1: clicks, views"
    clicks, views = ("01:00", "05:00", "05:00", "06:00"), ("02:00", "02:00", "05:00", "05:30")
    frame = pd.concat(
        [
            watermarks_frame(
                [(batch, "Partition 0", f"2013-01-01T{hour}", "active") for batch, hour in enumerate(hours)],
                stage=stage,
                stream=stream,
            )
            for stream, hours in (("clicks", clicks), ("views", views))
        ]
    )
    table = plots.who_holds_back_table(frame)
    assert table[["task", "stream", "from_batch", "to_batch"]].values.tolist() == [
        ["Partition 0", "clicks", 0, 0],
        ["Partition 0", "views", 1, 1],
        ["Partition 0", "clicks, views", 2, 2],
        ["Partition 0", "views", 3, 3],
    ]
    [bar] = named(plots.who_holds_back(frame.query("batch < 2")), "Partition 0")
    assert list(bar.text) == ["Partition 0: clicks", "Partition 0: views"]
    assert ["input clicks" in hover for hover in bar.customdata] == [True, False]


def test_bars_have_the_task_colour_cover_each_batch_once_and_hatch_what_is_not_active() -> None:
    figure = plots.who_holds_back(two_tasks())
    [bar] = named(figure, "Partition 1")
    assert bar.marker.color == plots.task_colour("Partition 1")
    assert list(bar.marker.pattern.shape) == ["", plots.STATES["idle"].pattern]
    covered = sorted(
        (base, base + width)
        for trace in figure.data
        if trace.base is not None
        for base, width in zip(trace.base, trace.x, strict=True)
    )
    assert covered == [(-0.5, 0.5), (0.5, 1.5), (1.5, 2.5), (2.5, 3.5), (3.5, 4.5)]


def test_a_strip_that_flickers_is_shortened_to_its_most_frequent_holders() -> None:
    base = np.datetime64("2013-01-01", "ms")
    rows: list[Row] = []
    for batch in range(3_000):
        ahead = 1 if batch % 3 == 0 else 0
        for task in (0, 1):
            rows.append(
                (batch, f"Partition {task}", str(base + np.timedelta64(2 * batch + (task == ahead), "s")), "active")
            )
    figure = plots.who_holds_back(watermarks_frame(rows))
    assert sum(len(trace.base) for trace in figure.data if trace.base is not None) <= 400
    assert "most frequent" in figure.layout.title.subtitle.text
    [usual] = named(figure, "Partition 1")
    assert sum(usual.x) == 3_000


# End of stream


def test_each_pair_is_ended_or_not_yet_and_the_margin_counts() -> None:
    frame = ends_frame(
        [
            ("Partition 0", "s", "Partition 0", True),
            ("Partition 0", "s", "Partition 10", False),
            ("Partition 1", "s", "Partition 0", True),
            ("Partition 1", "s", "Partition 10", True),
        ]
    )
    figure = plots.end_of_stream(frame)
    [ended] = [trace for trace in figure.data if trace.type == "heatmap" and trace.name == "✓ ended"]
    [waiting] = [trace for trace in figure.data if trace.type == "heatmap" and trace.name == "· not yet"]
    np.testing.assert_array_equal(np.array(ended.z), [[1, np.nan], [1, 1]])
    np.testing.assert_array_equal(np.array(waiting.z), [[np.nan, 1], [np.nan, np.nan]])
    assert list(ended.x) == ["0", "10"]
    assert [a.text for a in figure.layout.annotations if " of " in a.text] == ["1 of 2", "2 of 2"]
    table = plots.end_of_stream_table(frame)
    assert table[["task", "heard", "total", "waiting_for"]].values.tolist() == [
        ["Partition 0", 1, 2, "Partition 10"],
        ["Partition 1", 2, 2, ""],
    ]
    assert table["batch"].tolist() == [7, 7]


def test_an_end_that_no_task_said_is_drawn_but_does_not_count_as_an_upstream_task() -> None:
    frame = ends_frame(
        [
            ("Partition 0", "s", "Partition 0", True),
            ("Partition 0", "s", "Partition 1", False),
            ("Partition 0", "s", "source", True),
            ("Partition 0", "of a source", "source", True),
        ]
    )
    figure = plots.end_of_stream(frame)
    assert [a.text for a in figure.layout.annotations if " of " in a.text and a.text[0].isdigit()] == [
        "1 of 1",
        "1 of 2",
    ]
    assert "2 of 3 ends" in figure.layout.title.subtitle.text
    assert (
        max(np.isfinite(np.array(trace.z, dtype=float)).sum() for trace in figure.data if trace.type == "heatmap") == 2
    )
    table = plots.end_of_stream_table(frame)
    assert table[["stream", "heard", "total", "waiting_for"]].values.tolist() == [
        ["of a source", 1, 1, ""],
        ["s", 1, 2, "Partition 1"],
    ]


@pytest.mark.parametrize("upstream", [1, 40])
def test_the_legend_of_a_matrix_lies_below_it_where_no_width_cuts_it_off(upstream: int) -> None:
    figure = plots.end_of_stream(ends_frame([("Partition 0", "s", f"Partition {n}", n > 0) for n in range(upstream)]))
    legend, margin = figure.layout.legend, figure.layout.margin
    assert (legend.orientation, legend.x, legend.xanchor) == ("h", 0, "left")
    assert (legend.yref, legend.y, legend.yanchor) == ("container", 0, "bottom")
    assert margin.b >= 64 + 30 and margin.r < 100


def test_nobody_heard_yet_is_no_error_and_has_no_batch() -> None:
    frame = ends_frame([("Partition 0", "s", "source", False)])
    assert plots.end_of_stream_table(frame)["batch"].isna().all()
    assert "0 of 1 ends" in plots.end_of_stream(frame).layout.title.subtitle.text


def test_streams_stand_in_the_order_of_the_stages_that_read_them() -> None:
    frame = pd.concat(
        [
            ends_frame([("Partition 0", "a", "Partition 0", True)]).assign(stage="stage 2: a"),
            ends_frame([("Partition 0", "z", "source", True)]).assign(stage="stage 1: z"),
        ]
    )
    assert plots.end_of_stream_table(frame)["stream"].tolist() == ["z", "a"]


# Batches and late rows


def test_the_panels_of_batches_hold_the_numbers_of_the_frame() -> None:
    figure = plots.batches(batches_frame(late=(0, 5, 0), watermarks=[None, "2013-01-01", None]))
    assert {trace.name: list(trace.y) for trace in figure.data if trace.type == "bar"} == {
        "messages/s": [200.0, 200.0, 200.0],
        "late rows": [0, 5, 0],
        "control messages": [4, 4, 4],
    }
    [stairs] = [trace for trace in figure.data if trace.type == "scatter" and trace.y != (None,)]
    assert points(stairs)[0] == (1, "2013-01-01T00:00:00.000")
    assert "3 batches, 300 input messages in 1.5 s, 200 per second" in figure.layout.title.subtitle.text
    assert plots.batches_table(batches_frame()).loc["late_messages"].to_dict() == {
        "total": 5.0,
        "median": 0.0,
        "largest": 5.0,
        "last": 0.0,
    }


def test_grouped_batches_keep_sums_and_weigh_rates_by_time() -> None:
    frame = batches_frame(late=[1] * 1_200)
    frame.loc[0, ["seconds", "messages_per_second"]] = [0.0, np.inf]
    figure = plots.batches(frame)
    bars = {trace.name: trace for trace in figure.data if trace.type == "bar"}
    assert len(bars["late rows"].y) == 400
    assert sum(bars["late rows"].y) == 1_200
    assert bars["messages/s"].y[0] == 200.0
    assert bars["late rows"].customdata[1] == "batches 3 to 5"


def test_a_single_batch_without_messages_or_watermark_is_drawn() -> None:
    frame = batches_frame(late=[0], watermarks=[None]).assign(input_messages=0, messages_per_second=0.0, seconds=0.0)
    said = [annotation.text for annotation in plots.batches(frame).layout.annotations]
    assert "no watermark after any batch: not yet known, or finished" in said
    assert np.isnan(plots.batches_table(frame).loc["messages_per_second", "total"])


def test_late_rows_are_counted_shared_and_told_apart_from_none() -> None:
    figure = plots.late_rows(batches_frame(late=(0, 5, 10)))
    assert figure.layout.title.subtitle.text == "15 late rows, 5.00% of 300 input messages."
    [share] = [trace for trace in figure.data if trace.type == "scatter"]
    assert list(share.y) == [0.0, 2.5, 5.0]
    none = plots.late_rows(batches_frame(late=(0, 0)))
    assert none.layout.annotations[0].text == "none of 200 input messages was late"
    table = plots.late_rows_table(batches_frame(late=(0, 5, 10)))
    assert table[["batch", "late_messages", "share", "total"]].values.tolist() == [[1, 5, 0.05, 5], [2, 10, 0.1, 15]]


def test_by_event_time_late_rows_stand_at_the_watermark_and_none_gets_lost() -> None:
    frame = batches_frame(late=(1, 2, 4, 8), watermarks=[None, "1969-12-31T23:00", "1969-12-31T23:00", "1970-01-02"])
    figure = plots.late_rows(frame, by="event time")
    [bars] = [trace for trace in figure.data if trace.type == "bar"]
    assert (bars.x[0], bars.y[0], sum(bars.y)) == ("1969-12-31T23:00:00.000", 6, 14)
    assert "1 of them came in batches without a watermark" in figure.layout.title.subtitle.text
    nowhere = plots.late_rows(batches_frame(late=[3], watermarks=[None]), by="event time")
    assert "none of them in a batch with a known watermark" in nowhere.layout.annotations[0].text


# Bookkeeping


def test_cells_are_relative_to_the_newest_and_never_heard_is_no_time() -> None:
    frame = bookkeeping_frame(
        [
            ("Partition 0", "Partition 0", "2013-01-01T10:00", True, "active"),
            ("Partition 0", "Partition 1", None, False, "active"),
            ("Partition 1", "Partition 0", "2013-01-01T04:00", True, "idle"),
            ("Partition 1", "Partition 1", None, True, "idle"),
        ]
    )
    figure = plots.bookkeeping(frame)
    cells = {trace.name: np.array(trace.z) for trace in figure.data if trace.type == "heatmap"}
    np.testing.assert_array_equal(cells["behind"], [[0, np.nan], [np.nan, np.nan]])
    np.testing.assert_array_equal(cells["idle idle"], [[np.nan, np.nan], [6, np.nan]])
    np.testing.assert_array_equal(cells["· never heard"], [[np.nan, 1], [np.nan, np.nan]])
    np.testing.assert_array_equal(cells["✓ finished"], [[np.nan, np.nan], [np.nan, 1]])
    assert figure.layout.coloraxis.colorbar.title.text == "hours<br>behind"
    assert [a.text for a in figure.layout.annotations if " of " in a.text] == ["1 of 2", "2 of 2"]
    table = plots.bookkeeping_table(frame)
    assert table[["consumer", "heard", "total", "slowest"]].values.tolist() == [
        ["Partition 0", 1, 2, "Partition 1"],
        ["Partition 1", 2, 2, "Partition 0"],
    ]
    assert table["reconciled"].dtype == UTC


def test_a_watermark_that_no_task_sent_is_drawn_but_not_counted_among_the_upstream_tasks() -> None:
    heard = [
        ("Partition 0", "Partition 0", "2013-01-01T10:00", True, "active"),
        ("Partition 0", "Partition 1", None, False, "active"),
        ("Partition 0", "source", "2013-01-01T08:00", True, "active"),
    ]
    frame = pd.concat([bookkeeping_frame(heard), bookkeeping_frame([heard[2]], total=0).assign(stream="of a source")])
    figure = plots.bookkeeping(frame)
    assert [a.text for a in figure.layout.annotations if " of " in a.text and a.text[0].isdigit()] == [
        "1 of 1",
        "1 of 2",
    ]
    [cells] = [
        trace for trace in figure.data if trace.type == "heatmap" and trace.name == "behind" and len(trace.x) == 3
    ]
    np.testing.assert_array_equal(np.array(cells.z), [[0, np.nan, 2]])
    table = plots.bookkeeping_table(frame)
    assert table[["stream", "heard", "total"]].values.tolist() == [["of a source", 1, 1], ["s", 1, 2]]


def test_the_bookkeeping_of_one_task_has_its_partitions_as_rows() -> None:
    frame = bookkeeping_frame([("Partition 0", "Partition 0", "2013-01-01", True, "active")])
    assert plots.bookkeeping_table(frame.drop(columns="task"))["consumer"].tolist() == ["partition 0"]
    both = pd.concat([frame, frame.assign(partition=4)])
    consumers = ["Partition 0, partition 0", "Partition 0, partition 4"]
    assert plots.bookkeeping_table(both)["consumer"].tolist() == consumers


def test_ends_without_watermarks_say_that_none_was_heard() -> None:
    frame = bookkeeping_frame([("Partition 0", "Partition 0", None, True, "finished")]).assign(kind="end of stream")
    assert plots.bookkeeping(frame).layout.annotations[0].text == "no watermark has been heard yet"
    assert plots.bookkeeping_table(frame)["kind"].tolist() == ["end of stream"]


def test_256_consumers_by_256_producers_fit_into_a_page() -> None:
    tasks = [f"Partition {number}" for number in range(256)]
    frame = bookkeeping_frame(
        [(task, upstream, "2013-01-01", True, "active") for task in tasks for upstream in tasks], total=256
    )
    figure = plots.bookkeeping(frame)
    assert figure.layout.height < 1_000
    assert len(figure.to_json()) < 4_000_000
    assert len(figure.layout.yaxis.tickvals) < 60


# Labels and stairs


def test_names_are_counted_not_spelled() -> None:
    assert in_order(["Partition 10", "Partition 9", "b", "Partition 9", "10", "9"]) == [
        "9",
        "10",
        "Partition 9",
        "Partition 10",
        "b",
    ]


@given(st.text(max_size=80))
def test_an_escaped_name_holds_nothing_that_plotly_interprets_and_can_be_read_back(name: str) -> None:
    shown = escaped(name)
    assert not set("<>$%") & set(shown)
    back = shown
    for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&#36;", "$"), ("&#37;", "%"), ("&amp;", "&")):
        back = back.replace(entity, character)
    assert back == "".join(" " if character.isspace() else character for character in name)


def test_a_long_name_keeps_both_its_ends() -> None:
    assert label("a" * 100 + "1", most=9) == "aaaa…aaa1"
    assert label("short") == "short"


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (350, "350 ms"),
        (18_000, "18 s"),
        (125_000, "2 min 5 s"),
        (10_800_000, "3 h"),
        (187_200_000, "2 d 4 h"),
        (-60_000, "−1 min"),
        (float("nan"), "unknown"),
    ],
)
def test_durations_are_told_in_their_two_largest_units(milliseconds: float, shown: str) -> None:
    assert duration(milliseconds) == shown


def test_moments_are_utc_and_as_short_as_they_are_exact() -> None:
    assert moment(np.datetime64("1912-04-14T23:40", "ms")) == "1912-04-14 23:40:00 UTC"
    assert moment(np.datetime64("2013-01-01T00:00:00.120", "ms")) == "2013-01-01 00:00:00.120 UTC"
    assert moment(np.datetime64("NaT", "ms")) == "not yet known"


STAIRS = st.lists(st.one_of(st.none(), st.integers(-50, 50)), min_size=1, max_size=400)


def as_times(values: Sequence[int | None]) -> np.ndarray[Any, np.dtype[np.datetime64]]:
    return np.array([np.datetime64("NaT") if value is None else value for value in values], dtype="datetime64[ms]")


@given(STAIRS)
def test_up_to_the_bound_corners_draw_the_same_stairs(values: list[int | None]) -> None:
    positions = corners(as_times(values), np.zeros(len(values), dtype=np.int8), most=len(values))
    drawn, rebuilt = iter(positions.tolist()), []
    upcoming = next(drawn)
    for index in range(len(values)):
        if index == upcoming:
            height = values[index]
            upcoming = next(drawn, -1)
        rebuilt.append(height)
    assert rebuilt == values


@given(STAIRS, st.integers(6, 60))
@settings(max_examples=60)
def test_beyond_the_bound_ends_extremes_and_gaps_stay(values: list[int | None], most: int) -> None:
    times = as_times(values)
    positions = corners(times, np.isnat(times).astype(np.int8), most)
    assert len(positions) <= most
    assert positions.tolist() == sorted(set(positions.tolist()))
    kept = [values[position] for position in positions]
    known = [value for value in values if value is not None]
    assert kept[0] == values[0]
    assert positions[-1] == len(values) - 1
    assert (None in kept) == (None in values)
    if known:
        left = [value for value in kept if value is not None]
        assert (min(left), max(left)) == (min(known), max(known))


def test_the_points_of_a_figure_are_bounded_however_long_the_run() -> None:
    base = np.datetime64("2013-01-01", "ms")
    rows: list[Row] = [
        (batch, f"Partition {task}", str(base + np.timedelta64(batch * (task + 1), "s")), "active")
        for batch in range(4_000)
        for task in range(12)
    ]
    figure = plots.watermarks(watermarks_frame(rows))
    assert 1_000 < sum(len(trace.x) for trace in figure.data) <= 24_000
    assert max(len(trace.x) for trace in figure.data) <= points_per_line(12)
    [last] = named(figure, "Partition 11")
    assert points(last)[-1][0] == 3_999


def test_a_gap_splits_stretches_and_bands() -> None:
    x, y = [0, 1, 2, 3], ["a", None, "b", "b"]
    assert stretch(x, y, np.array([True, False, True, True])) == ([0, 1, None, 2, 3], ["a", "a", None, "b", "b"])
    xs, ys = band(x, ["a", None, "b", "c"], ["d", None, "e", "f"])
    assert xs.count(None) == 2
    assert xs[: xs.index(None)] == [0, 1, 1, 0, 0]
    assert ys[: ys.index(None)] == ["d", "d", "a", "a", "d"]


def test_dates_beyond_what_an_axis_can_hold_are_gaps() -> None:
    assert dates(np.array(["NaT", "-0004-01-01", "12000-01-01", "0001-01-01"], dtype="datetime64[ms]")) == [
        None,
        None,
        None,
        "0001-01-01T00:00:00.000",
    ]
