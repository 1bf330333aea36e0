"""A user's own chooser: how it is given, what it sees, what it must not do; and the driver that asks it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from workbench.choosers import (
    ChooserDriver,
    ChooserPolicy,
    IncomingEnvelope,
    LaneArrivals,
    MessageChooser,
    RoundRobinChooser,
    by,
    lane_of_entries,
    plan_runs,
)
from workbench.errors import ChooserFailed, InvalidChoice, InvalidChooser, UnknownColumn
from workbench.messages import ControlRun, DrainMessage, MessageType, WatermarkMessage
from workbench.names import SSP

A, B, C = SSP("log", "a", 0), SSP("log", "b", 0), SSP("log", "c.with.dots", 0)
TABLE = SSP("log", "table", 0)


def flights(ssp: SSP, delays: list[int | None], first: int = 0, **options: Any) -> LaneArrivals:
    return lane_of_entries(ssp, first, [pa.table({"delay": pa.array(delays, pa.int64())})], **options)


def most_delayed(envelopes: list[IncomingEnvelope]) -> IncomingEnvelope:
    return max(envelopes, key=lambda envelope: envelope.payload["delay"])


def driver(option: Any, batch_size: int = 1) -> ChooserDriver:
    return ChooserDriver(ChooserPolicy.from_option(option, batch_size))


def taken(choice: Any) -> list[int]:
    order: list[int] = choice.runs.order().tolist()
    return order


@pytest.mark.parametrize(
    ("option", "kind"),
    [
        (None, "round_robin"),
        ("round_robin", "round_robin"),
        ("round-robin", "round_robin"),
        ("Time aligned", "time_aligned"),
        ("time-aligned", "time_aligned"),
        ("starting-alignment", "starting_alignment"),
    ],
)
def test_a_built_in_chooser_is_given_by_name(option: str | None, kind: str) -> None:
    assert ChooserPolicy.from_option(option, 7) == ChooserPolicy(kind, 7)
    policy = ChooserPolicy(kind, 7)
    assert ChooserPolicy.from_option(policy) is policy
    assert ChooserPolicy.from_json(json.loads(json.dumps(policy.to_json()))) == policy


@pytest.mark.parametrize(
    ("option", "name"),
    [
        (RoundRobinChooser, "RoundRobinChooser"),
        (lambda: RoundRobinChooser(), "lambda"),
        (most_delayed, "most_delayed"),
        (by(lambda envelope: envelope.offset), "by lambda"),
        (by(most_delayed, highest_first=True), "by most_delayed, highest first"),  # type: ignore[arg-type]
    ],
)
def test_an_own_chooser_is_a_class_a_maker_a_function_or_a_key(option: Any, name: str) -> None:
    policy = ChooserPolicy.from_option(option, 2)
    assert (policy.kind, policy.name, policy.batch_size) == ("own", name, 2)
    assert policy.own is not None
    first, second = policy.own(), policy.own()
    assert isinstance(first, MessageChooser) and first is not second
    data = json.loads(json.dumps(policy.to_json()))
    assert ChooserPolicy.from_json(data, policy.own) == policy
    with pytest.raises(InvalidChooser, match=r"not part of a policy's JSON"):
        ChooserPolicy.from_json(data)
    with pytest.raises(InvalidChooser, match="ChooserDriver"):
        plan_runs(policy, [], 1)


def test_what_is_no_chooser_is_refused_with_what_there_is() -> None:
    with pytest.raises(InvalidChooser, match=r"no chooser 'time_alined'.*'time_aligned'.*mean 'time_aligned'\?"):
        ChooserPolicy.from_option("time_alined")
    with pytest.raises(InvalidChooser, match="give the class RoundRobinChooser"):
        ChooserPolicy.from_option(RoundRobinChooser())  # type: ignore[arg-type]
    for wrong in (3, MessageChooser, dict, max, lambda a, b: a):
        with pytest.raises(InvalidChooser, match="A chooser is the name of one"):
            ChooserPolicy.from_option(wrong)  # type: ignore[arg-type]


def test_the_most_delayed_flights_go_first() -> None:
    lanes = [flights(A, [5, 80, 1]), flights(B, [7, 2]), flights(C, [None, 3])]
    assert taken(driver(by(lambda e: e.payload["delay"], highest_first=True)).plan(lanes, 99)) == [2, 1, 0, 0, 2, 1, 0]
    choice = driver(most_delayed).plan(lanes[:2], 99)
    assert [(run.lane, run.count, run.why) for run in choice.runs] == [
        (1, 1, "most_delayed"),
        (0, 2, "most_delayed"),
        (1, 1, "most_delayed"),
        (0, 1, "alone"),
    ]


def test_an_own_chooser_decides_within_a_priority_and_after_the_bootstrap() -> None:
    lanes = [
        flights(A, [1, 9], priority=1),
        flights(B, [5], priority=1),
        flights(C, [0], priority=7),
        flights(TABLE, [3, 3], bootstrap=True, head_at_start=2),
    ]
    choice = driver(most_delayed).plan(lanes, 99)
    assert taken(choice) == [3, 3, 2, 1, 0, 0]
    assert [run.why for run in choice.runs] == ["bootstrap", "priority 7", "most_delayed", "alone"]


def test_a_chooser_is_kept_from_batch_to_batch() -> None:
    calls: list[object] = []

    class Told(RoundRobinChooser):
        def register(self, ssp: SSP, offset: int | None) -> None:
            calls.append((ssp.stream, offset))

        def start(self) -> None:
            calls.append("start")

        def stop(self) -> None:
            calls.append("stop")

        def update(self, envelope: IncomingEnvelope) -> None:
            calls.append(envelope.offset)
            super().update(envelope)

    asked = driver(Told)
    assert taken(asked.plan([LaneArrivals(A, 3, 10)], 2)) == [0, 0]
    assert calls == [("a", 10), "start", 10, 11, 12]
    assert taken(asked.plan([LaneArrivals(B, 1, 5), LaneArrivals(A, 1, 12)], 9)) == [1, 0]
    assert calls[5:] == [("b", 5), 5]
    asked.close()
    asked.close()
    assert calls[7:] == ["stop"]


def test_a_batch_that_was_planned_and_never_ran_is_planned_anew() -> None:
    asked = driver(RoundRobinChooser)
    lanes = [LaneArrivals(A, 3), LaneArrivals(B, 3)]
    first = asked.plan(lanes, 3)
    assert taken(asked.plan(lanes, 3)) == taken(first) == [0, 1, 0]


def test_an_input_that_is_paused_is_not_taken_and_goes_on_where_it_was() -> None:
    asked = driver(RoundRobinChooser)
    asked.plan([LaneArrivals(A, 3), LaneArrivals(B, 3)], 1)
    assert taken(asked.plan([LaneArrivals(A, 2, 1)], 9)) == [0, 0]
    assert taken(asked.plan([LaneArrivals(A, 0, 3), LaneArrivals(B, 3)], 9)) == [1, 1, 1]


def test_a_message_that_retention_took_after_it_was_shown_is_not_counted() -> None:
    asked = driver(RoundRobinChooser)
    asked.plan([LaneArrivals(A, 9), LaneArrivals(B, 9)], 1)
    choice = asked.plan([LaneArrivals(A, 3, 6), LaneArrivals(B, 1)], 9)
    assert choice.runs.taken(2) == [3, 1]


def test_what_a_chooser_holds_back_stays_and_may_go_later() -> None:
    asked = driver(lambda envelopes: envelopes[0] if len(envelopes) > 1 else None)
    assert taken(asked.plan([LaneArrivals(A, 2), LaneArrivals(B, 1)], 9)) == [0, 1]
    assert taken(asked.plan([LaneArrivals(A, 1, 1), LaneArrivals(B, 0, 1)], 9)) == []
    assert taken(asked.plan([LaneArrivals(A, 1, 1), LaneArrivals(B, 2, 1)], 9)) == [0]


class Twice(RoundRobinChooser):
    """Returns everything a second time."""

    last: IncomingEnvelope | None = None

    def choose(self) -> IncomingEnvelope | None:
        again, self.last = self.last, None
        if again is None:
            again = self.last = super().choose()
        return again


class Invents(RoundRobinChooser):
    def choose(self) -> IncomingEnvelope | None:
        return IncomingEnvelope(A, 99)


class Strange(RoundRobinChooser):
    def choose(self) -> IncomingEnvelope | None:
        return "a"  # type: ignore[return-value]


@pytest.mark.parametrize("chooser", [Twice, Invents, Strange])
def test_a_chooser_that_breaks_the_contract_is_told_which_one_it_was(chooser: type[MessageChooser]) -> None:
    with pytest.raises(InvalidChoice, match=f"{chooser.__name__} returned .*not outstanding.*Outstanding are: log/"):
        driver(chooser).plan([LaneArrivals(A, 3), LaneArrivals(B, 3)], 9)


def test_an_exception_of_a_chooser_is_told_with_its_place_and_its_cause() -> None:
    def divides(envelopes: list[IncomingEnvelope]) -> IncomingEnvelope:
        return min(envelopes, key=lambda envelope: 1 // envelope.payload["delay"])

    asked = driver(divides)
    told = r"divides raised ZeroDivisionError: .*\nIt had chosen 1 messages .*log/a\[0\] at offset 1"
    with pytest.raises(ChooserFailed, match=told) as failed:
        asked.plan([flights(A, [4, 0])], 9)
    assert isinstance(failed.value.__cause__, ZeroDivisionError)
    assert taken(asked.plan([flights(A, [4, 2])], 9)) == [0, 0]


def test_a_wrong_column_is_told_with_those_there_are() -> None:
    with pytest.raises(UnknownColumn, match=r"'dealy' in the rows of log/a\[0\].*mean 'delay'"):
        driver(by(lambda envelope: envelope.payload["dealy"])).plan([flights(A, [4, 0])], 9)


def test_an_envelope_shows_rows_keys_times_and_control_messages_as_they_lie_in_the_log() -> None:
    early = pa.table({"at": [10, None, 30], "plane": ["x", "y", "z"]})
    late = pa.table({"at": [40], "plane": ["w"]})
    controls = ControlRun.from_messages([WatermarkMessage(30, "Partition 0", 2), DrainMessage("run", "Partition 1", 2)])
    lane = lane_of_entries(A, 7, [early, controls, late], time_column="at", key_column="plane", priority=3)
    assert (lane.count, lane.start_offset, lane.priority) == (6, 7, 3)
    seen = list(lane.envelopes(9))
    assert [envelope.offset for envelope in seen] == [7, 8, 9, 10, 11, 12]
    assert [envelope.event_time for envelope in seen] == [10, None, 30, None, None, 40]
    assert [envelope.key for envelope in seen] == ["x", "y", "z", None, None, "w"]
    assert [envelope.kind for envelope in seen[2:5]] == [MessageType.USER, MessageType.WATERMARK, MessageType.DRAIN]
    assert dict(seen[0].payload) == {"at": 10, "plane": "x"} and len(seen[0].payload) == 2
    assert seen[3].payload["timestamp"] == 30 and seen[4].payload["runId"] == "run"
    assert seen[5].payload["plane"] == "w" and seen[1].payload["plane"] == "y", "in any order"
    assert [envelope.offset for envelope in lane.envelopes(2, first=3)] == [10, 11]


def test_a_payload_is_read_only_when_it_is_asked_for() -> None:
    class Unreadable:
        def key(self, index: int) -> object:
            raise AssertionError

        payload: Callable[[int], Any] = key

    lanes = [LaneArrivals(ssp, 50, content=Unreadable()) for ssp in (A, B)]
    assert driver(RoundRobinChooser).plan(lanes, 99).runs.messages == 99


def test_the_content_of_a_wrong_index_is_an_error() -> None:
    lane = flights(A, [1, 2])
    assert lane.content is not None
    with pytest.raises(IndexError, match=r"2 messages of log/a\[0\] wait"):
        lane.content.payload(2)


def test_a_trivial_rule_is_asked_for_many_messages_a_second() -> None:
    count = 20_000
    delays = pa.table({"delay": np.arange(count) % 97, "at": np.arange(count)})
    for option in (lambda envelopes: envelopes[0], by(lambda e: e.payload["delay"])):
        lanes = [lane_of_entries(ssp, 0, [delays], time_column="at") for ssp in (A, B, C)]
        began = time.thread_time()
        assert driver(option).plan(lanes, 3 * count).runs.messages == 3 * count
        # 330,000 to 440,000 messages per second of one core where it was measured; a busy one gets four times as long.
        assert 3 * count / (time.thread_time() - began) > 80_000
