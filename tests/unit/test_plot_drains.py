"""The figure of a drain says what the frame of a drain says, at every moment of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
import pytest

from tests.support.jobs import events, write_events
from tests.support.local import LocalJob
from tests.unit.test_plots import HOSTILE, texts, times
from workbench import plots
from workbench.drain import write_notification
from workbench.errors import UnknownColumn
from workbench.graph import Application
from workbench.plots._drain_rows import WORDS
from workbench.systems.log import StreamLog
from workbench.windows import tumbling

BEFORE, DRAINED, WAITING, PARTLY, ALL = WORDS


@dataclass(frozen=True)
class Row:
    """An SSP of a task. `done` is in seconds since the request; None: pending."""

    task: str = "Partition 0"
    stage: str = "stage 1: flights"
    done: float | None = None
    heard: int = 0
    expected: int = 2
    owed: str = ""
    rows: int = 0
    partition: int = 0

    @property
    def stream(self) -> str:
        return self.stage.split(": ", 1)[1]


def frame(rows: Sequence[Row], *, seen: float = 0.5) -> pd.DataFrame:
    """As `run.drains()` has it, requested at ten o'clock."""
    ten = pd.Timestamp("2024-05-01T10:00:00")

    def after(seconds: float | None) -> str | None:
        return None if seconds is None else (ten + pd.Timedelta(seconds=seconds)).isoformat()

    return pd.DataFrame(
        {
            "run_id": "monday",
            "task": [row.task for row in rows],
            "stage": [row.stage for row in rows],
            "stream": [row.stream for row in rows],
            "partition": [row.partition for row in rows],
            "pending": [row.done is None for row in rows],
            "heard": [row.heard for row in rows],
            "expected": [row.expected for row in rows],
            "heard_from": "",
            "owed_by": [row.owed for row in rows],
            "open_rows": [row.rows for row in rows],
            "requested": times([ten.isoformat()] * len(rows)),
            "seen": times([after(seen)] * len(rows)),
            "drained_at": times([after(row.done) for row in rows]),
            "batch": pd.Series([None if row.done is None else 7 for row in rows], dtype="Int64"),
        }
    )


FIRST, SECOND = "stage 1: flights", "stage 2: between"
HALFWAY = [
    Row("Partition 0", FIRST, 1.0, 1, 1),
    Row("Partition 1", FIRST, -60.0, 1, 1),
    Row("Partition 0", SECOND, None, 0, 2, "Partition 0, Partition 1", rows=1),
    Row("Partition 1", SECOND, None, 1, 2, "Partition 1", rows=1_234),
    Row("Partition 2", SECOND, None, 2, 2),
    Row("Partition 10", SECOND, 2.0, 2, 2),
]


def symbols(figure: go.Figure, state: str) -> list[go.Scatter]:
    """The symbols of tasks in a state, without those of the legend."""
    return [trace for trace in figure.data if trace.type == "scatter" and trace.name == state and trace.x != (None,)]


def bars(figure: go.Figure) -> list[go.Bar]:
    return [trace for trace in figure.data if trace.type == "bar"]


def hover(figure: go.Figure, state: str) -> str:
    return str(symbols(figure, state)[0].customdata[0])


def shown(figure: go.Figure) -> list[str]:
    return [annotation.text for annotation in figure.layout.annotations]


def test_an_empty_frame_gives_a_clear_figure_and_an_empty_table() -> None:
    nobody_asked = frame([])
    assert shown(plots.drains(nobody_asked)) == ["no drain recorded yet"]
    assert shown(plots.drains(pd.DataFrame())) == ["nothing recorded yet"]
    table = plots.drains_table(nobody_asked)
    assert len(table) == 0 and list(table) == list(plots.drains_table(frame(HALFWAY)))


@pytest.mark.parametrize("draw", [plots.drains, plots.drains_table])
def test_a_frame_of_something_else_is_refused(draw: Callable[[pd.DataFrame], object]) -> None:
    with pytest.raises(UnknownColumn, match="has: 'something'"):
        draw(pd.DataFrame({"something": [1]}))


def test_each_task_has_its_place_its_state_and_its_moment() -> None:
    figure = plots.drains(frame(HALFWAY))
    (done, later), (before,) = symbols(figure, DRAINED), symbols(figure, BEFORE)
    assert (done.x, done.y) == ((1.0,), (0,)) and (later.x, later.y) == ((2.0,), (3,))
    assert before.y == (1,) and before.x[0] < 0
    left, edge = figure.layout.xaxis.range
    assert left < before.x[0] and edge > 2.0
    for state, row in ((WAITING, 0), (PARTLY, 1), (ALL, 2)):
        (trace,) = symbols(figure, state)
        assert (trace.x, trace.y) == ((edge,), (row,))
    assert figure.layout.yaxis2.ticktext == ("Partition 0", "Partition 1", "Partition 2", "Partition 10")
    assert figure.layout.yaxis2.range == (3.5, -0.5), "the first task on top"
    assert figure.layout.yaxis.domain[0] > figure.layout.yaxis2.domain[1], "the first stage on top"
    assert figure.layout.title.subtitle.text == "3 of 6 are pending; requested at 2024-05-01 10:00:00 UTC."


def test_bars_run_from_where_the_drain_was_seen_and_pending_ones_are_hatched_up_to_the_edge() -> None:
    figure = plots.drains(frame(HALFWAY))
    edge = figure.layout.xaxis.range[1]
    ends = {(bar.base, bar.base + bar.x[0]): bar.marker.pattern.shape for bar in bars(figure)}
    assert ends == {(0.5, 1.0): None, (0.5, 2.0): None, (0.5, edge): "/"}
    assert len(bars(figure)) == 5, "none for the task that had ended before"


def test_states_differ_in_more_than_colour_and_the_legend_names_those_that_occur() -> None:
    figure = plots.drains(frame(HALFWAY))
    looks = {}
    for state in WORDS:
        marker = symbols(figure, state)[0].marker
        looks[state] = (marker.symbol, marker.color == "#ffffff")
    assert len(set(looks.values())) == 5
    legend = [trace.name for trace in figure.data if trace.showlegend is not False and trace.name]
    assert legend == ["requested", "seen by the job", DRAINED, WAITING, PARTLY, ALL, BEFORE]
    done = plots.drains(frame([HALFWAY[0]]))
    assert [t.name for t in done.data if t.showlegend is not False and t.name] == legend[:3]
    lines = [trace for trace in figure.data if trace.type == "scatter" and trace.mode == "lines" and trace.x != (None,)]
    assert {(trace.x[0], trace.line.dash) for trace in lines} == {(0.0, "dot"), (0.5, "solid")}


def test_the_margin_counts_markers_and_says_in_bold_where_some_are_owed() -> None:
    figure = plots.drains(frame(HALFWAY))
    margin = [text for text in shown(figure) if " of " in text and "task" not in text]
    assert margin == ["1 of 1", "1 of 1", "<b>0 of 2</b>", "<b>1 of 2</b>", "<b>2 of 2</b>", "2 of 2"]
    titles = [text for text in shown(figure) if text.startswith("stage")]
    assert "2 tasks: 1 drained, 1 had ended before" in titles[0]
    assert "4 tasks: 1 drained, 3 pending, 5 of 8 markers heard" in titles[1]


def test_hovering_tells_who_owes_what_the_task_holds_and_when_it_was_done() -> None:
    figure = plots.drains(frame(HALFWAY))
    partly = hover(figure, PARTLY)
    assert "<b>Partition 1</b>" in partly and "still pending" in partly and "heard 1 of 2 upstream tasks" in partly
    assert "owed by Partition 1" in partly and "holds 1,234 rows" in partly
    assert "holds 1 row<" in hover(figure, WAITING) + "<"
    assert "drained</b> in batch 7, 1.0 s after the request" in hover(figure, DRAINED)
    assert "owed by" not in hover(figure, DRAINED)
    assert "had ended before</b>, in batch 7" in hover(figure, BEFORE)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.62, "620 ms"), (1.64, "1.6 s"), (12.3, "12 s"), (125.0, "2 min 5 s")]
)
def test_how_long_it_took_is_told_as_exactly_as_matters(seconds: float, words: str) -> None:
    subtitle = plots.drains(frame([Row(done=seconds, heard=1, expected=1)])).layout.title.subtitle.text
    assert subtitle == f"Everything has drained, {words} after it was requested at 2024-05-01 10:00:00 UTC."


def test_a_task_that_another_one_told_is_not_shown_as_one_that_heard_nobody() -> None:
    figure = plots.drains(frame([Row("Partition 0", SECOND, 2.0, 0, 3)]))
    assert "told" in shown(figure) and "0 of 3" not in shown(figure)
    assert "told by the task" in hover(figure, DRAINED)


def test_a_task_with_several_inputs_is_one_row_that_is_done_when_the_last_of_them_is() -> None:
    orders = Row("Partition 0", "stage 2: orders", 2.0, 2, 2, rows=5)
    both = frame([orders, replace(orders, partition=1, done=None, heard=1, owed="Partition 3")])
    both["stage"] = "stage 2: orders, payments"
    both.loc[1, "stream"] = "payments"
    (row,) = plots.drains_table(both).to_dict("records")
    assert (row["state"], row["heard"], row["expected"]) == (PARTLY, 3, 4)
    assert row["owed_by"] == "Partition 3 (payments)" and row["open_rows"] == 5, "rows of a task, not of an input"
    done = both.assign(pending=False, drained_at=times(["2024-05-01T10:00:02", "2024-05-01T10:00:03"]), batch=[7, 9])
    (row,) = plots.drains_table(done).to_dict("records")
    assert (row["state"], row["seconds"], row["batch"]) == (DRAINED, 3.0, 9)


def test_the_table_says_the_same_in_words() -> None:
    table = plots.drains_table(frame(HALFWAY))
    assert table["state"].tolist() == [DRAINED, BEFORE, WAITING, PARTLY, ALL, DRAINED]
    assert table["owed_by"].tolist() == ["", "", "Partition 0, Partition 1", "Partition 1", "", ""]
    assert table["seconds"].fillna(-1).tolist() == [1.0, -60.0, -1, -1, -1, 2.0]
    assert table["batch"].fillna(-1).tolist() == [7, 7, -1, -1, -1, 7]
    many = ", ".join(f"Partition {number}" for number in range(64))
    (row,) = plots.drains_table(frame([Row(expected=64, owed=many)])).to_dict("records")
    assert row["owed_by"] == "Partition 0, Partition 1, Partition 2, Partition 3 and 60 more"


def test_stages_and_tasks_stand_in_the_order_people_count() -> None:
    rows = [Row(f"Partition {task}", f"stage {stage}: s", 1.0, 1, 1) for stage in (10, 2, 1) for task in (11, 2)]
    table = plots.drains_table(frame(rows))
    assert table["stage"].drop_duplicates().tolist() == ["stage 1: s", "stage 2: s", "stage 10: s"]
    assert table["task"].tolist()[:2] == ["Partition 2", "Partition 11"]


def test_a_request_that_waited_long_does_not_squeeze_the_drain_into_a_line() -> None:
    hour = 3_600.0
    figure = plots.drains(frame([Row(done=hour + 1, heard=1, expected=1)], seen=hour))
    assert symbols(figure, DRAINED)[0].x == (1.0,)
    assert figure.layout.xaxis.title.text == "seconds since the drain was seen"
    assert "1 h before it was seen" in figure.layout.title.subtitle.text
    assert "requested" not in {trace.name for trace in figure.data}
    slow = plots.drains(frame([Row(done=hour / 2, heard=1, expected=1)], seen=60.0))
    assert symbols(slow, DRAINED)[0].x == (30.0,)
    assert slow.layout.xaxis.title.text == "minutes since the drain was requested"


def test_a_drain_of_which_nothing_is_done_yet_or_whose_clocks_disagree_is_drawn() -> None:
    figure = plots.drains(frame([Row()], seen=0.0))
    left, edge = figure.layout.xaxis.range
    assert left < 0 < edge
    early = plots.drains(frame([Row(done=0.5, heard=1, expected=1)], seen=-2.0))
    assert early.layout.xaxis.range[0] < -2 and bars(early)[0].base == -2.0


def test_names_are_shown_letter_by_letter_and_stay_plain_in_the_table() -> None:
    rows = [Row(HOSTILE, f"stage 1: {HOSTILE}", owed=HOSTILE), Row("Partition 0", f"stage 1: {HOSTILE}", 1.0, 2)]
    figure = plots.drains(frame(rows))
    said = "\n".join(texts(json.loads(figure.to_json())))
    for interpreted in ("<b>x", "<a", "$", '%{x} "', "&amp; &"):
        assert interpreted not in said
    assert "&lt;b&gt;x&lt;/b&gt;&lt;br&gt;" in said and '&#37;{x} "😀' in said
    assert HOSTILE in set(plots.drains_table(frame(rows))["task"])


def test_64_tasks_in_each_of_four_stages_fit_and_every_row_is_there() -> None:
    rows = [
        Row(f"Partition {task}", f"stage {stage}: s{stage}", 1.0 if stage < 3 else None, task if stage == 3 else 0, 64)
        for stage in range(1, 5)
        for task in range(64)
    ]
    figure = plots.drains(frame(rows))
    assert figure.layout.height <= 2_100
    drawn = sum(len(trace.x) for state in WORDS for trace in symbols(figure, state))
    assert drawn == 256
    named = figure.layout.yaxis4.ticktext
    assert 20 <= len(named) <= 40 and named[0] == "Partition 0"
    assert max(trace.marker.size for state in WORDS for trace in symbols(figure, state)) <= 6.5


def test_a_figure_is_a_pure_function_of_its_frame_and_names_no_address() -> None:
    drains = frame(HALFWAY)
    before = drains.copy()
    first = plots.drains(drains).to_json()
    pd.testing.assert_frame_equal(drains, before)
    assert plots.drains(drains.sample(frac=1, random_state=1)).to_json() == first
    assert "http" not in first


def test_a_real_drain_is_drawn_stage_by_stage_until_nothing_is_pending(tmp_path: Path) -> None:
    log = StreamLog(tmp_path)
    write_events(log, events(300, partitions=2, disorder_ms=0), end=False)
    app = Application("chain")
    stream = app.input("events", event_time="at").partition_by("key", partitions=3, name="between")
    stream.window(tumbling("1h")).aggregate(n=("id", "count")).send_to("panes")
    job = LocalJob(app, log, routing={"drain": "broadcast"})
    list(job.batches())
    assert shown(job.record.figures.drains()) == ["no drain recorded yet"]
    write_notification(log.metadata, job.deployment.run_id)
    job.step()
    table = plots.drains_table(job.record.drains())
    assert table.groupby("stage", sort=False)["state"].agg(set).tolist() == [{DRAINED}, {WAITING}]
    assert table["open_rows"].sum() > 0
    assert "3 of 5 are pending" in job.record.figures.drains().layout.title.subtitle.text
    job.run_to_end()
    table = plots.drains_table(job.record.drains())
    assert set(table["state"]) == {DRAINED} and (table["heard"] == table["expected"]).all()
    assert table.groupby("stage", sort=False)["seconds"].max().is_monotonic_increasing
    assert "Everything has drained" in job.record.figures.drains().layout.title.subtitle.text
