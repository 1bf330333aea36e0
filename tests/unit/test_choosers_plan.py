"""The plan of a batch: what it may read, how it tells why, what it costs, and how it is recorded."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence

import numpy as np
import pytest

from workbench.choosers import (
    HIGHEST_PRIORITY,
    Admission,
    ChooserPolicy,
    LaneArrivals,
    LanePosition,
    Run,
    Runs,
    admitted_lanes,
    decode_runs,
    encode_runs,
    plan_runs,
)
from workbench.choosers.lanes import Times
from workbench.errors import InvalidChooser, InvalidRuns
from workbench.names import SSP
from workbench.times import NO_TIME

A, B, C = SSP("log", "a", 0), SSP("log", "b", 0), SSP("log", "c.with.dots", 0)
TABLE, TABLE_1 = SSP("log", "table", 0), SSP("log", "table", 1)
ROUND_ROBIN = ChooserPolicy()
ALIGNED = ChooserPolicy("time_aligned")


def told(runs: Sequence[Run]) -> list[tuple[int, int, str]]:
    return [(run.lane, run.count, run.why) for run in runs]


def timed(ssp: SSP, *times: int) -> LaneArrivals:
    return LaneArrivals(ssp, len(times), event_times=np.array(times, dtype=np.int64))


def test_a_lower_priority_gets_what_the_higher_ones_leave() -> None:
    lanes = [LaneArrivals(A, 100, priority=1), LaneArrivals(B, 6, priority=5), LaneArrivals(C, 3, priority=9)]
    assert told(plan_runs(ROUND_ROBIN, lanes, 12).runs) == [(2, 3, "priority 9"), (1, 6, "priority 5"), (0, 3, "alone")]
    assert told(plan_runs(ROUND_ROBIN, lanes, 5).runs) == [(2, 3, "priority 9"), (1, 2, "priority 5")]
    assert plan_runs(ROUND_ROBIN, lanes, 5).runs.taken(3) == [0, 2, 3]


def test_each_run_tells_why_it_goes_before_what_else_waits() -> None:
    lanes = [
        LaneArrivals(A, 2),
        LaneArrivals(B, 1, priority=HIGHEST_PRIORITY),
        LaneArrivals(C, 1, priority=5),
        LaneArrivals(TABLE, 3, priority=5, bootstrap=True, head_at_start=2),
    ]
    assert told(plan_runs(ROUND_ROBIN, lanes, 99).runs) == [
        (3, 2, "bootstrap"),
        (1, 1, "highest priority"),
        (2, 1, "priority 5, round robin"),
        (3, 1, "priority 5"),
        (0, 2, "alone"),
    ]
    assert told(plan_runs(ALIGNED, [timed(A, 3, 5), timed(B, 4)], 9).runs) == [
        (0, 1, "earliest"),
        (1, 1, "earliest"),
        (0, 1, "alone"),
    ]
    tiers = [LaneArrivals(A, 1, priority=1), LaneArrivals(B, 0, priority=2), LaneArrivals(C, 1, priority=3)]
    assert told(plan_runs(ROUND_ROBIN, tiers, 9).runs) == [(2, 1, "priority 3"), (0, 1, "alone")]
    batches = ChooserPolicy("starting_alignment", 10)
    assert {run.why for run in plan_runs(batches, [lanes[0], LaneArrivals(B, 3)], 3).runs} == {"aligned, batches of 10"}


def test_the_turn_and_the_batch_begun_go_into_the_next_batch_as_json() -> None:
    lanes = [LaneArrivals(ssp, 9) for ssp in (A, B, C)]
    first = plan_runs(ROUND_ROBIN, lanes, 4)
    assert first.runs.order().tolist() == [0, 1, 2, 0]
    assert plan_runs(ROUND_ROBIN, lanes, 4, json.loads(json.dumps(first.state))).runs.order().tolist() == [1, 2, 0, 1]
    threes = ChooserPolicy(batch_size=3)
    first = plan_runs(threes, lanes, 4)
    assert first.state == {"turns": [list(C), list(A), list(B)], "begun": [[0, list(B), 1]]}
    assert plan_runs(threes, lanes, 4, first.state).runs.order().tolist() == [1, 1, 2, 2]


def test_the_same_arguments_give_the_same_choice_and_are_not_changed() -> None:
    lanes = [LaneArrivals(ssp, 9) for ssp in (A, B, C)]
    state = plan_runs(ROUND_ROBIN, lanes, 4).state
    before = json.dumps(state)
    assert plan_runs(ROUND_ROBIN, lanes, 4, state) == plan_runs(ROUND_ROBIN, lanes, 4, state)
    assert json.dumps(state) == before


def test_times_are_read_only_where_they_decide_and_no_further_than_the_limit() -> None:
    asked: list[int] = []

    def times(count: int) -> Times:
        asked.append(count)
        return np.arange(count)

    lanes = [
        LaneArrivals(A, 1_000, event_times=times),
        LaneArrivals(B, 20, event_times=times, priority=1),
        LaneArrivals(C, 0, event_times=times, priority=1),
    ]
    plan_runs(ALIGNED, lanes, 100)
    assert asked == []
    plan_runs(ALIGNED, [lanes[0], LaneArrivals(B, 1_000, event_times=times)], 100)
    assert asked == [100, 100]


def test_no_limit_no_lanes_and_nothing_waiting_choose_nothing() -> None:
    for lanes, limit in (([LaneArrivals(A, 3)], 0), ([], 9), ([LaneArrivals(A, 0), LaneArrivals(B, 0)], 9)):
        choice = plan_runs(ROUND_ROBIN, lanes, limit)
        assert (len(choice.runs), choice.runs.messages, choice.runs.taken(len(lanes))) == (0, 0, [0] * len(lanes))
        assert decode_runs(encode_runs(choice.runs)) == choice.runs


@pytest.mark.parametrize("limit", [-1, 1.5, None, True])
def test_a_limit_is_a_number_of_messages(limit: object) -> None:
    with pytest.raises(InvalidChooser, match="limit"):
        plan_runs(ROUND_ROBIN, [], limit)  # type: ignore[arg-type]


def test_lanes_that_contradict_themselves_are_refused_by_name() -> None:
    with pytest.raises(InvalidChooser, match=r"log/a\[0\] is given twice"):
        plan_runs(ROUND_ROBIN, [LaneArrivals(A, 1), LaneArrivals(A, 2)], 9)
    with pytest.raises(InvalidChooser, match=r"log/b\[0\] has 3 messages waiting, but 2 event times"):
        plan_runs(ALIGNED, [timed(A, 1, 2), LaneArrivals(B, 3, event_times=np.array([1, 2]))], 9)
    with pytest.raises(InvalidChooser, match=r"log/b\[0\] has 3 messages waiting, but 1 kinds"):
        plan_runs(ROUND_ROBIN, [LaneArrivals(B, 3, kinds=np.zeros(1, dtype=np.uint8))], 9)


def test_a_bootstrap_stream_that_does_not_get_through_in_one_batch_keeps_the_others_waiting() -> None:
    lanes = [LaneArrivals(A, 9, priority=9), LaneArrivals(TABLE, 5, bootstrap=True, head_at_start=5)]
    assert told(plan_runs(ROUND_ROBIN, lanes, 4).runs) == [(1, 4, "bootstrap")]
    assert told(plan_runs(ROUND_ROBIN, lanes, 7).runs) == [(1, 5, "bootstrap"), (0, 2, "alone")]


def test_a_bootstrap_lane_that_retention_emptied_or_that_a_drain_closed_keeps_nobody_waiting() -> None:
    emptied = LaneArrivals(TABLE, 0, 6, bootstrap=True, head_at_start=10)
    trimmed = LaneArrivals(TABLE, 3, 10, bootstrap=True, started_at=6, head_at_start=10)
    closed = LaneArrivals(TABLE, 2, 6, bootstrap=False, started_at=0, head_at_start=10)
    for lane in (emptied, trimmed, closed):
        assert plan_runs(ROUND_ROBIN, [LaneArrivals(A, 2), lane], 1).runs.taken(2) == [1, 0]


def position(ssp: SSP, at: int, head: int | None, **more: object) -> LanePosition:
    return LanePosition(ssp, at, head_at_start=head, **{"bootstrap": ssp.stream == "table", **more})  # type: ignore[arg-type]


def test_the_gate_admits_bootstrap_streams_only_until_each_has_reached_its_head_in_every_task() -> None:
    others = [position(A, 0, 50), position(B, 0, None)]
    closed = admitted_lanes([*others, position(TABLE, 10, 10), position(TABLE_1, 3, 7)])
    assert closed == Admission(frozenset({TABLE, TABLE_1}), {TABLE_1: 4})
    assert not closed.all_admitted
    opened = admitted_lanes([*others, position(TABLE, 10, 10), position(TABLE_1, 8, 7)])
    assert opened.all_admitted and opened.admitted == {A, B, TABLE, TABLE_1}


@pytest.mark.parametrize(
    "never",
    [
        position(TABLE, 10, 10),
        position(TABLE, 12, 10),
        position(TABLE, 6, 10, oldest=10),
        position(TABLE, 0, 0),
        position(TABLE, 0, None),
        position(TABLE, 0, 10, ended=True),
        position(TABLE, 0, 10, bootstrap=False),
    ],
    ids=["at its head", "beyond", "emptied by retention", "never filled", "appeared later", "ended", "no bootstrap"],
)
def test_an_ssp_that_nobody_has_to_wait_for(never: LanePosition) -> None:
    assert admitted_lanes([never, position(A, 0, 5)]).admitted == {TABLE, A}


def alternating(count: int) -> Runs:
    return Runs(np.arange(count) % 2, np.ones(count, dtype=np.int64), np.zeros(count, dtype=np.int64), ("round robin",))


def test_a_million_runs_are_some_hundred_kilobytes_of_text_and_a_few_are_a_line() -> None:
    assert len(encode_runs(alternating(1_000_000))) < 10_000
    order = np.random.default_rng(7).integers(0, 3, 1_000_000)
    starts = np.flatnonzero(np.diff(order, prepend=-1))
    counts = np.diff(starts, append=len(order))
    by_chance = Runs(order[starts], counts, np.zeros(len(starts), dtype=np.int64), ("earliest",))
    text = encode_runs(by_chance)
    assert len(by_chance) > 600_000 and len(text) < 400_000
    assert decode_runs(text) == by_chance
    assert len(encode_runs(Runs.of([Run(0, 5_000, "round robin"), Run(3, 70_000, "alone")]))) < 120


@pytest.mark.parametrize(
    "text",
    ["", "?", "AAAA", encode_runs(alternating(9))[:-8], encode_runs(alternating(9))[4:], json.dumps([1, 0])],
)
def test_damaged_text_of_runs_is_refused(text: str) -> None:
    with pytest.raises(InvalidRuns, match="can not be read"):
        decode_runs(text)


def test_runs_are_a_sequence() -> None:
    runs = Runs.of([Run(2, 3, "x"), Run(0, 1, "y"), Run(2, 2, "x")])
    assert (runs[1], runs[-1], list(runs[1:])) == (Run(0, 1, "y"), Run(2, 2, "x"), [Run(0, 1, "y"), Run(2, 2, "x")])
    assert runs != Runs.of([Run(2, 3, "x"), Run(0, 1, "y"), Run(2, 2, "y")]) and runs != list(runs)
    assert runs == decode_runs(encode_runs(runs)) == Runs(runs.lanes, runs.counts, np.array([1, 0, 1]), ("y", "x"))
    assert runs.words == ("x", "y") and runs.messages == 6 and runs.taken(4) == [1, 0, 5, 0]
    assert repr(runs) == "Runs(3 of lane 2 (x), 1 of lane 0 (y), 2 of lane 2 (x))"


def test_runs_that_were_planned_apart_are_joined_on_the_lanes_of_the_task() -> None:
    inner = Runs.of([Run(1, 3, "x"), Run(0, 1, "y")]).on_lanes([4, 2])
    joined = Runs.joined([inner, Runs.of([]), Runs.of([Run(0, 2, "y"), Run(0, 7, "z")])])
    assert list(joined) == [Run(2, 3, "x"), Run(4, 1, "y"), Run(0, 2, "y"), Run(0, 7, "z")]
    assert joined.words == ("x", "y", "z") and joined.taken(5) == [9, 0, 3, 0, 1]
    assert len(Runs.joined([])) == 0 and len(Runs.of([]).on_lanes([])) == 0


@pytest.mark.parametrize("kind", ["round_robin", "time_aligned", "starting_alignment"])
def test_a_million_messages_of_three_inputs_are_planned_in_well_under_a_second(kind: str) -> None:
    chance = np.random.default_rng(7)
    lanes = [
        LaneArrivals(ssp, 333_333, event_times=np.arange(333_333) * 10 + chance.integers(-500, 500, 333_333))
        for ssp in (A, B, C)
    ]
    began = time.thread_time()
    choice = plan_runs(ChooserPolicy(kind), lanes, 1_000_000)
    assert time.thread_time() - began < 1  # 0.03 to 0.06 s where it was measured
    assert choice.runs.messages == 999_999


def test_time_alignment_keeps_the_inputs_together() -> None:
    lanes = [timed(A, *range(0, 1_000, 1)), timed(B, *range(0, 1_000, 10))]
    times = [lane.times(lane.count) for lane in lanes]
    order = plan_runs(ALIGNED, lanes, 2_000).runs.order()
    merged = np.full(len(order), NO_TIME)
    for lane, found in enumerate(times):
        assert found is not None
        merged[order == lane] = found
    assert (np.diff(merged) >= 0).all()


def test_the_choosers_need_neither_spark_nor_the_engine() -> None:
    script = (
        "import workbench.choosers, sys;"
        "print([name for name in sys.modules if name.split('.')[0] in {'pyspark', 'pandas', 'plotly', 'ipywidgets'}"
        " or name.startswith(('workbench.engine', 'workbench.systems', 'workbench.graph', 'workbench.session'))])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
