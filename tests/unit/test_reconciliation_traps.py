"""Reconciliation where the original falls short, and the parts that no property draws by chance."""

from __future__ import annotations

import json

import pytest

from workbench.errors import InvalidIdlePolicy, InvalidOption
from workbench.messages import (
    MAX_TIMESTAMP,
    ControlMessage,
    ControlRun,
    DrainMessage,
    EndOfStreamMessage,
    WatermarkMessage,
)
from workbench.names import SSP
from workbench.reconciliation import Aggregator, InputState, Reconciliation, aggregate_partition

HERE = SSP("log", "by.carrier", 2)
END = EndOfStreamMessage("by.carrier")


def says(timestamp: int, task: str | None = None, of: int | None = 2) -> WatermarkMessage:
    return WatermarkMessage(timestamp, task, 0 if task is None else of)


def ends(task: str | None = None, of: int | None = 2) -> EndOfStreamMessage:
    return EndOfStreamMessage("by.carrier", task, 0 if task is None else of)


def drains(task: str | None = None, of: int = 2, run: str = "now") -> DrainMessage:
    return DrainMessage(run, task, 0 if task is None else of)


@pytest.fixture(params=["one by one", "runs"])
def tell(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    """Apply messages by the specification, or as one run: the same suite for both."""

    def apply(to: Reconciliation, *messages: ControlMessage, now: int | None = None) -> list[ControlMessage]:
        if request.param == "runs":
            return to.apply_run(ControlRun.from_messages(messages), now_ms=now)
        return [completed for message in messages for completed in to.apply(message, now_ms=now)]

    return apply


# Watermarks.


def test_the_watermark_is_unknown_until_all_have_reported_and_then_the_least(tell) -> None:
    r = Reconciliation(HERE)
    assert (r.watermark, r.state) == (None, InputState.UNKNOWN)
    assert tell(r, says(9, "A")) == []
    assert (r.watermark, r.state) == (None, InputState.UNKNOWN)
    assert tell(r, says(7, "B")) == [says(7)]
    assert (r.watermark, r.state) == (7, InputState.ACTIVE)
    assert r.watermarks.holders() == ["B"]


@pytest.mark.parametrize("time", [-1, -2, -86_400_000, -(2**63)])
def test_a_watermark_before_1970_is_a_watermark(tell, time: int) -> None:
    r = Reconciliation(HERE)
    assert tell(r, says(time, "A"), says(time, "B")) == [says(time)]
    assert r.watermark == time


def test_a_watermark_at_1970_is_not_taken_for_none(tell) -> None:
    r = Reconciliation(HERE)
    assert tell(r, says(-5)) == [says(-5)]
    assert tell(r, says(0)) == [says(0)]
    assert tell(r, says(0)) == []


def test_a_producer_too_many_does_not_freeze_the_watermark(tell) -> None:
    r = Reconciliation(HERE)
    tell(r, says(1, "A"), says(1, "B"), says(5, "X"))
    assert tell(r, says(8, "A"), says(9, "B")) == [says(5)]
    assert tell(r, says(10, "X")) == [says(8)]


def test_a_named_message_on_a_source_partition_counts_and_freezes_nothing(tell) -> None:
    r = Reconciliation(HERE)
    assert tell(r, says(4)) == [says(4)]
    assert tell(r, says(6, "A", of=1)) == [says(6)]
    assert tell(r, says(7)) == [says(7)]


def test_direct_and_named_messages_together_give_the_later_of_both(tell) -> None:
    r = Reconciliation(HERE)
    assert tell(r, says(10)) == [says(10)]
    assert tell(r, says(5, "A"), says(6, "B")) == []
    assert tell(r, says(11, "A"), says(12, "B")) == [says(11)]
    assert r.watermarks.agreed == 11
    assert r.watermarks.direct == 10


def test_a_larger_count_waits_for_more_and_takes_nothing_back_whatever_the_order(tell) -> None:
    r = Reconciliation(HERE)
    assert tell(r, says(5, "A", of=3), says(6, "B", of=2)) == []
    assert tell(r, says(4, "C", of=2)) == [says(4)]
    assert tell(r, says(9, "A", of=4), says(9, "B", of=2), says(9, "C", of=2)) == []
    assert r.watermark == 4
    assert tell(r, says(9, "D", of=2)) == [says(9)]


def test_what_was_agreed_before_the_count_rose_in_the_same_run_is_kept(tell) -> None:
    r = Reconciliation(HERE)
    assert tell(r, says(5, "A"), says(6, "B"), says(6, "A", of=3)) == [says(5)]
    later = Reconciliation(HERE)
    assert tell(later, says(1, "A"), says(1, "B"))[-1] == says(1)
    assert tell(later, says(8, "A"), says(7, "B"), says(2, "X"))[-1] == says(7)
    assert later.watermark == 7


def test_a_message_without_a_count_waits_until_the_reader_says_how_many(tell) -> None:
    unknown = Reconciliation(HERE)
    assert tell(unknown, says(5, "A", of=None), ends("A", of=None)) == []
    assert unknown.state is InputState.UNKNOWN
    told = Reconciliation(HERE, expected_tasks=2)
    assert tell(told, says(5, "A", of=None)) == []
    assert tell(told, says(6, "B", of=None)) == [says(5)]


# End of stream.


def test_the_end_raises_the_watermark_to_the_largest_first(tell) -> None:
    r = Reconciliation(HERE)
    tell(r, says(3, "A"), says(4, "B"))
    assert tell(r, ends("A"))[-1:] == [says(4)]
    assert tell(r, ends("B")) == [says(MAX_TIMESTAMP), END]
    assert (r.watermark, r.state, r.ended) == (MAX_TIMESTAMP, InputState.FINISHED, True)


def test_a_task_that_ended_holds_nobody_back(tell) -> None:
    r = Reconciliation(HERE)
    tell(r, says(3, "A"), says(3, "B"), ends("A"))
    assert tell(r, says(50, "B")) == [says(50)]
    assert not r.ended


@pytest.mark.parametrize("again", ["A", "B", "X", None])
def test_a_reached_end_is_never_undone(tell, again: str | None) -> None:
    r = Reconciliation(HERE)
    tell(r, ends("A"), ends("B"))
    assert tell(r, ends(again, of=3), says(5, again, of=3), drains(again, of=3)) == []
    assert r.ended


def test_a_named_end_after_a_direct_one_does_not_undo_it(tell) -> None:
    r = Reconciliation(HERE)
    assert tell(r, ends()) == [says(MAX_TIMESTAMP), END]
    assert tell(r, ends("A", of=5)) == []
    assert r.ended


def test_a_task_that_repeats_its_end_does_not_stand_for_another(tell) -> None:
    r = Reconciliation(HERE)
    assert END not in tell(r, ends("A"), ends("A"), ends("A"))
    assert not r.ended


def test_a_stream_without_any_message_has_not_ended() -> None:
    assert not Reconciliation(HERE).ended


def test_an_injected_end_raises_the_watermark_although_counts_disagree(tell) -> None:
    r = Reconciliation(HERE)
    tell(r, says(1, "A", of=3), says(1, "B", of=3))
    assert tell(r, ends("A", of=2), ends("B", of=2))[-2:] == [says(MAX_TIMESTAMP), END]


# Drain.


def test_a_drain_of_another_run_changes_nothing_and_is_told(tell) -> None:
    r = Reconciliation(HERE, "now")
    assert tell(r, drains(run="before"), drains("A", run="before"), drains("A")) == []
    assert (r.drained, r.drains.other_runs) == (False, {"before": 2})
    assert tell(r, drains("B")) == [says(MAX_TIMESTAMP), drains()]
    assert r.state is InputState.FINISHED


def test_of_many_other_runs_only_the_latest_are_kept(tell) -> None:
    r = Reconciliation(HERE, "now")
    tell(r, *(drains(run=f"run-{run}") for run in range(40)))
    assert list(r.drains.other_runs) == [f"run-{run}" for run in range(24, 40)]


@pytest.mark.parametrize("first", [ends("A"), drains("B")])
def test_a_drain_does_not_wait_for_a_task_that_ended(tell, first: ControlMessage) -> None:
    r = Reconciliation(HERE, "now")
    second = drains("B") if first == ends("A") else ends("A")
    assert tell(r, first) == []
    assert tell(r, second) == [says(MAX_TIMESTAMP), drains()], (
        "what windows hold is emitted before the drain is acted on"
    )
    assert r.drained
    assert not r.ended


def test_ends_alone_are_no_drain(tell) -> None:
    r = Reconciliation(HERE, "now")
    assert tell(r, ends("A"), ends("B"))[-1] == END
    assert not r.drained


def test_a_task_that_drained_and_ended_is_one_task(tell) -> None:
    r = Reconciliation(HERE, "now")
    assert tell(r, drains("A"), ends("A"), drains("A")) == []
    assert not r.drained


def test_in_another_run_nobody_has_drained_but_who_ended_has() -> None:
    r = Reconciliation(HERE, "before")
    r.apply(ends("A"))
    r.apply(drains("B", run="before"))
    assert r.drained
    r = Reconciliation.from_json(r.to_json()).in_run("now")
    assert not r.drained
    assert r.apply(drains("B")) == [drains()]


def test_a_new_generation_reads_old_times_as_new() -> None:
    r = Reconciliation(HERE, "now", expected_tasks=2)
    for message in (says(MAX_TIMESTAMP, "A"), says(MAX_TIMESTAMP, "B"), ends("A"), drains()):
        r.apply(message)
    r.start_generation()
    assert (r.watermark, r.finished, r.state) == (None, False, InputState.UNKNOWN)
    assert r.apply(says(1, "A", of=None)) == []
    assert r.apply(says(2, "B", of=None)) == [says(1)]


# Silence.


def test_a_silent_task_is_left_out_by_the_clock_alone_and_comes_back_without_a_step_back(tell) -> None:
    r = Reconciliation(HERE, idle_timeout_ms=100)
    tell(r, says(1, "A"), says(1, "B"), now=0)
    assert tell(r, says(50, "A"), now=60) == []
    assert r.tick(99) == []
    assert r.tick(100) == [says(50)]
    assert tell(r, says(7, "B"), now=110) == []
    assert r.watermark == 50
    assert tell(r, says(60, "A"), now=111) == []
    assert tell(r, says(55, "B"), now=112) == [says(55)]


@pytest.mark.parametrize("sign_of_life", [1, 0])
def test_an_equal_or_older_timestamp_shows_life_and_lowers_nothing(tell, sign_of_life: int) -> None:
    r = Reconciliation(HERE, idle_timeout_ms=100)
    tell(r, says(1, "A"), says(1, "B"), now=0)
    tell(r, says(50, "A"), says(sign_of_life, "B"), now=80)
    assert r.tick(150) == []
    assert r.watermarks.tasks == {"A": 50, "B": 1}
    assert r.tick(180) == []


def test_without_a_quorum_nobody_is_left_out_and_nobody_is_stuck_afterwards(tell) -> None:
    r = Reconciliation(HERE, idle_timeout_ms=100, quorum=1.0)
    tell(r, says(1, "A"), says(1, "B"), now=0)
    tell(r, says(50, "A"), now=90)
    assert r.tick(120) == []
    assert tell(r, says(20, "B"), now=130) == [says(20)]


def test_a_task_never_heard_is_left_out_once_its_time_is_up(tell) -> None:
    r = Reconciliation(HERE, idle_timeout_ms=100)
    tell(r, says(5, "A"), now=0)
    assert tell(r, says(6, "A"), now=90) == []
    assert r.tick(100) == [says(6)]
    tell(r, says(9, "A", of=4), now=110)
    assert r.tick(111) == []


def test_one_that_ended_can_not_speak_for_one_that_is_silent(tell) -> None:
    r = Reconciliation(HERE, idle_timeout_ms=100)
    tell(r, says(1, "A"), says(1, "B"), ends("A"), now=0)
    assert r.tick(1_000) == []
    assert r.watermark == 1


def test_what_the_last_one_heard_said_before_its_end_is_kept(tell) -> None:
    r = Reconciliation(HERE, idle_timeout_ms=100)
    tell(r, says(1, "A"), says(1, "B"), now=0)
    tell(r, says(5, "A"), now=90)
    assert r.tick(120) == [says(5)]
    assert tell(r, says(10, "A"), ends("A"), now=121) == [says(10)]


def test_those_that_ended_are_no_part_of_the_quorum(tell) -> None:
    r = Reconciliation(HERE, idle_timeout_ms=100)
    tell(r, *(says(1, task, of=4) for task in "ABCD"), ends("A", of=4), ends("B", of=4), now=0)
    tell(r, says(9, "C", of=4), now=90)
    assert r.tick(120) == [says(9)]


def test_the_idle_clock_stands_still_while_we_hold_the_input(tell) -> None:
    r = Reconciliation(HERE, idle_timeout_ms=100)
    tell(r, says(1, "A"), says(1, "B"), now=0)
    r.hold(50)
    assert r.state is InputState.HELD
    assert r.tick(5_000) == []
    r.release(5_000)
    tell(r, says(50, "A"), now=5_020)
    assert r.tick(5_049) == []
    assert r.tick(5_050) == [says(50)]


def test_an_input_from_which_nothing_comes_is_idle_until_something_does(tell) -> None:
    r = Reconciliation(HERE, idle_timeout_ms=100)
    r.tick(0)
    r.tick(99)
    assert r.state is InputState.UNKNOWN
    r.tick(100)
    assert r.state is InputState.IDLE
    tell(r, says(3), now=101)
    assert r.state is InputState.ACTIVE
    r.heard_data(180)
    r.tick(210)
    assert r.state is InputState.ACTIVE
    r.tick(280)
    assert r.state is InputState.IDLE


def test_no_time_passes_between_two_runs_or_backwards() -> None:
    r = Reconciliation(HERE, "before", idle_timeout_ms=100)
    for message in (says(1, "A"), says(1, "B"), says(50, "A")):
        r.apply(message, now_ms=1_000)
    r = Reconciliation.from_json(json.loads(json.dumps(r.to_json()))).in_run("now", idle_timeout_ms=100)
    assert r.tick(999_000) == []
    assert r.tick(5) == []
    r.apply(says(50, "A"), now_ms=90)
    assert r.tick(105) == [says(50)]


def test_in_the_same_run_in_run_changes_nothing() -> None:
    r = Reconciliation(HERE, "now", idle_timeout_ms=100, quorum=0.5)
    r.apply(says(1, "A"), now_ms=0)
    r.hold(10)
    before = json.dumps(r.to_json())
    assert json.dumps(r.in_run("now", idle_timeout_ms=100, quorum=0.5).to_json()) == before


def test_switching_the_idle_timeout_off_waits_for_everybody_again() -> None:
    r = Reconciliation(HERE, "now", idle_timeout_ms=100)
    r.apply(says(5, "A"), now_ms=0)
    r.tick(99)
    r.apply(says(6, "A"), now_ms=99)
    assert r.tick(100) == [says(6)]
    r.in_run("now")
    assert r.apply(says(9, "A")) == []


@pytest.mark.parametrize(("timeout", "quorum"), [(0, 0.5), (-1, 0.5), (1.5, 0.5), (True, 0.5), (1, 0), (1, 1.1)])
def test_an_idle_policy_that_can_not_be_is_refused(timeout: int, quorum: float) -> None:
    with pytest.raises(InvalidIdlePolicy):
        Reconciliation(HERE, idle_timeout_ms=timeout, quorum=quorum)


# Aggregation.


def test_the_owner_of_two_partitions_does_not_wait_for_itself() -> None:
    """The aggregate partition decides by itself, though the task's other partition has heard nothing yet."""
    aggregate, other = Reconciliation(HERE, "now"), Reconciliation(SSP("log", "by.carrier", 0), "now")
    aggregator = Aggregator(aggregate)
    aggregate.apply_run(ControlRun.from_messages([says(3, "A"), says(4, "B"), drains("A"), drains("B")]))
    messages = aggregator.to_rebroadcast()
    assert messages == [says(3), drains()]
    assert other.apply_run(ControlRun.from_messages(messages)) == [says(MAX_TIMESTAMP), drains()]


def test_duplicates_are_not_broadcast_again() -> None:
    r = Reconciliation(HERE, "now")
    aggregator = Aggregator(r)
    run = ControlRun.from_messages([says(3, "A"), says(4, "B"), ends("A"), ends("B")])
    r.apply_run(run)
    assert aggregator.to_rebroadcast() == [says(MAX_TIMESTAMP), END]
    r.apply_run(run)
    assert aggregator.to_rebroadcast() == []
    assert Aggregator(Reconciliation.from_json(r.to_json())).to_rebroadcast() == []


def test_an_injected_message_on_the_aggregate_partition_does_not_keep_the_others_waiting() -> None:
    r = Reconciliation(HERE, "now")
    aggregator = Aggregator(r)
    r.apply(says(1_000))
    assert aggregator.to_rebroadcast() == []
    r.apply_run(ControlRun.from_messages([says(30, "A"), says(40, "B")]))
    assert r.watermark == 1_000
    assert aggregator.to_rebroadcast() == [says(30)]


@pytest.mark.parametrize("partitions", [1, 2, 4, 7])
def test_the_aggregate_partition_exists_and_stays_where_it_is(partitions: int) -> None:
    chosen = [aggregate_partition(name, partitions) for name in ("test-stream", "", "a.b", "ü", "x" * 200)]
    assert all(0 <= partition < partitions for partition in chosen)
    assert [aggregate_partition(name, 64) for name in ("test-stream", "flights", "by.carrier")] == [48, 42, 51]


def test_a_stream_without_partitions_has_no_aggregate_one() -> None:
    with pytest.raises(InvalidOption):
        aggregate_partition("s", 0)


# Display and checkpoint.


def test_the_rows_name_who_said_what_and_of_how_many() -> None:
    r = Reconciliation(HERE, "now")
    for message in (says(3, "A"), says(1), ends("A"), drains("B", of=3)):
        r.apply(message)
    assert [tuple(row) for row in r.rows()] == [
        ("watermark", "A", MAX_TIMESTAMP, 2),
        ("watermark", None, 1, 2),
        ("end of stream", "A", None, 2),
        ("drain", "B", None, 3),
    ]


def test_a_checkpoint_restores_everything_in_any_state() -> None:
    r = Reconciliation(HERE, "now", idle_timeout_ms=10, quorum=0.4)
    for message in (says(3, "A", of=5), says(1, "Aufgabe ü", of=5), ends("B"), drains("C", of=3), drains("C", run="x")):
        r.apply(message, now_ms=5)
    r.tick(40)
    r.hold(50)
    copy = Reconciliation.from_json(json.loads(json.dumps(r.to_json())))
    assert copy.to_json() == r.to_json()
    assert (copy.watermarks, copy.ends, copy.drains, copy.clock) == (r.watermarks, r.ends, r.drains, r.clock)
    assert copy.state is InputState.HELD
    assert copy == r
