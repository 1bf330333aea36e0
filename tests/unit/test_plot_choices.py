"""The figure of the order taken, read back: every bar stands for messages that were taken there, for that reason."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench import plots
from workbench.errors import UnknownColumn
from workbench.plots._choice_lanes import MOST_PIECES, ordered, task_orders
from workbench.plots._choices import MOST_TASKS

HOSTILE = "<b>x</b><a href='http://e.org'>$a^2$ %{x}"
Turn = tuple[int, str, str, int, str]


def choices(turns: Sequence[Turn], task: str = "Partition 0") -> pd.DataFrame:
    """A frame as `run.choices()` gives it, from (batch, task, stream, messages, why)."""
    offsets: dict[tuple[str, str], int] = {}
    positions: dict[tuple[int, str], int] = {}
    rows = []
    for batch, who, stream, messages, why in turns:
        offset, position = offsets.get((who, stream), 0), positions.get((batch, who), 0)
        rows.append((batch, who, position, stream, 0, offset, messages, why))
        offsets[who, stream], positions[batch, who] = offset + messages, position + messages
    columns = ["batch", "task", "position", "stream", "partition", "offset", "messages", "why"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.assign(time=pd.Timestamp("2024-05-01", tz="UTC"))


def bars(figure: go.Figure) -> list[tuple[float, float, int, float, str]]:
    """(start, length, lane, thickness, hover) of each bar."""
    return [
        bar
        for trace in figure.data
        if trace.type == "bar" and trace.customdata is not None
        for bar in zip(trace.base, trace.x, trace.y, trace.width, trace.customdata, strict=True)
    ]


def test_each_turn_is_a_bar_in_the_lane_of_its_ssp() -> None:
    who = "Partition 0"
    frame = choices([(0, who, "b", 30, "bootstrap"), (0, who, "a", 5, "alone"), (1, who, "b", 7, "priority 2")])
    figure = plots.choices(frame)
    found = sorted((start, length, lane) for start, length, lane, _, _ in bars(figure))
    assert found == [(0, 30, 1), (30, 5, 0), (35, 7, 1)]
    assert list(figure.layout.yaxis.ticktext) == ["a[0]", "b[0]"]
    named = [trace.name for trace in figure.data if trace.type == "bar" and trace.showlegend is not False]
    assert named == ["bootstrap", "alone", "priority 2"]
    hover = next(text for start, _, _, _, text in bars(figure) if start == 35)
    assert "7 messages" in hover and "priority 2" in hover and "batch 1" in hover and "from offset 30" in hover
    lines = next(trace for trace in figure.data if trace.type == "scatter")
    assert list(lines.x[::3]) == [0, 35], "a line where each batch begins"


def test_turns_of_one_ssp_for_one_reason_are_one_bar_across_batches() -> None:
    frame = choices([(batch, "Partition 0", "a", 10, "alone") for batch in range(5)])
    ((start, length, _, _, hover),) = bars(plots.choices(frame))
    assert (start, length) == (0, 50) and "batches 0 to 4" in hover


def test_tasks_have_strips_in_the_order_people_count_and_only_so_many() -> None:
    frame = choices([(0, f"Partition {task}", "a", 10, "alone") for task in range(30)])
    figure = plots.choices(frame)
    titles = [note.text.split(" <")[0].strip() for note in figure.layout.annotations if "Partition" in note.text]
    assert titles == [f"Partition {task}" for task in range(MOST_TASKS)]
    assert f"The first {MOST_TASKS} of 30 tasks" in figure.layout.title.subtitle.text


@settings(max_examples=40, deadline=None)
@given(turns=st.integers(1, 3_000), lanes=st.integers(1, 4), tasks=st.integers(1, 3), seed=st.integers(0, 99))
def test_however_many_turns_the_bars_are_few_and_no_message_is_lost(
    turns: int, lanes: int, tasks: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    who, which = random.integers(0, tasks, turns), random.integers(0, lanes, turns)
    frame = choices(
        [
            (turn // 100, f"Partition {who[turn]}", f"s{which[turn]}", int(random.integers(1, 9)), ("alone", "earliest")[turn % 2])
            for turn in range(turns)
        ]
    )  # fmt: skip
    rows = ordered(frame)
    names = sorted(set(rows["task"]))
    orders = task_orders(rows, names, ["alone", "earliest"])
    assert sum(len(order.lane) for order in orders) <= MOST_PIECES
    for order in orders:
        mine = frame[frame["task"] == order.name]
        for lane, ssp in enumerate(order.ssps):
            taken = order.taken[order.lane == lane].sum()
            assert taken == pytest.approx(mine.loc[mine["stream"] == ssp[:-3], "messages"].sum(), rel=1e-6)
        assert order.taken == pytest.approx(order.share * order.length)
        assert (order.share <= 1 + 1e-9).all() and (order.share > 0).all()
    table = plots.choices_table(frame)
    assert table["messages"].sum() == frame["messages"].sum()
    assert table.groupby("task")["share"].sum().to_numpy() == pytest.approx(1)


def test_what_alternates_too_fast_to_see_is_drawn_as_thick_as_its_share() -> None:
    who = "Partition 0"
    frame = choices(
        [(0, who, stream, count, "earliest") for _ in range(5_000) for stream, count in (("a", 1), ("b", 3))]
    )
    figure = plots.choices(frame)
    for _, _, lane, thickness, hover in bars(figure):
        assert thickness == pytest.approx((0.25, 0.75)[lane] * 0.8, abs=0.02)
        assert "about" in hover
    assert "thickness is the share" in figure.layout.annotations[0].text
    assert len(figure.to_json()) < 100_000


def test_a_hundred_thousand_turns_are_light() -> None:
    random = np.random.default_rng(1)
    count = 100_000
    frame = pd.DataFrame(
        {
            "batch": np.arange(count) // 500,
            "task": "Partition 0",
            "position": np.arange(count) % 500,
            "stream": np.where(random.random(count) < 0.3, "a", "b"),
            "partition": 0,
            "offset": np.arange(count),
            "messages": 1,
            "why": "earliest",
        }
    )
    figure = plots.choices(frame)
    assert len(bars(figure)) <= 500 and len(figure.to_json()) < 300_000
    lines = next(trace for trace in figure.data if trace.type == "scatter")
    assert len(lines.x) <= 3 * 60
    assert "a line at every 4th" in figure.layout.annotations[0].text


def test_the_text_twin_has_a_row_for_each_task_ssp_and_reason() -> None:
    turns = [(0, "Partition 10", "a", 4, "alone"), (0, "Partition 9", "b", 6, "priority 1"), (1, "Partition 9", "b", 2, "priority 1"), (1, "Partition 9", "a", 8, "alone")]  # fmt: skip
    table = plots.choices_table(choices(turns))
    assert table.to_dict("records")[0] == {
        "task": "Partition 9", "stream": "b", "partition": 0, "why": "priority 1", "messages": 8, "share": 0.5,
        "runs": 2, "longest": 6, "first_batch": 0, "last_batch": 1,
    }  # fmt: skip
    assert table["task"].tolist() == ["Partition 9", "Partition 9", "Partition 10"]


def test_names_are_shown_letter_by_letter() -> None:
    figure = plots.choices(choices([(0, "Partition 0", HOSTILE, 4, HOSTILE), (0, "Partition 0", "a", 4, "alone")]))
    shown = [
        *figure.layout.yaxis.ticktext,
        *(trace.name or "" for trace in figure.data),
        *(bar[4] for bar in bars(figure)),
    ]
    assert not any("<a" in text or "%{x}" in text or "$a" in text for text in shown)


def test_an_empty_frame_and_one_of_another_kind() -> None:
    empty = choices([])
    assert plots.choices(empty).layout.annotations[0].text == "nothing was to be chosen"
    assert plots.choices_table(empty).empty and "share" in plots.choices_table(empty)
    with pytest.raises(UnknownColumn, match="frame of choices"):
        plots.choices(pd.DataFrame({"batch": [1]}))
