"""Startpoints themselves: what they are, their JSON, and how the log resolves them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from workbench.errors import InvalidStartpoint, InvalidStartpointRequest, UnresolvableStartpoint
from workbench.messages import WatermarkMessage
from workbench.names import SSP
from workbench.startpoints import (
    STALE_AFTER,
    Startpoint,
    StartpointOldest,
    StartpointSpecific,
    StartpointTimestamp,
    StartpointUpcoming,
    StartpointVisitor,
    by_duration,
    shift_by,
    startpoint_from_json,
    whole_application,
    whole_stream,
)
from workbench.systems.log import Rows, StreamLog
from workbench.systems.log.startpoints import by_duration_on, count_on, latest_event_time, ranges_on, resolve_on

NOW = 1_700_000_000_000
S0 = SSP("log", "s", 0)

OF_SAMZA: list[tuple[Startpoint, dict[str, Any]]] = [
    (
        StartpointSpecific(42, created=7),
        {"@type": "StartpointSpecific", "creationTimestamp": 7, "specificOffset": "42"},
    ),
    (
        StartpointTimestamp(-123456, created=7),
        {"@type": "StartpointTimestamp", "creationTimestamp": 7, "timestampOffset": -123456},
    ),
    (StartpointOldest(created=7), {"@type": "StartpointOldest", "creationTimestamp": 7}),
    (StartpointUpcoming(created=7), {"@type": "StartpointUpcoming", "creationTimestamp": 7}),
]


@pytest.fixture
def log(log_dir: Path) -> StreamLog:
    return StreamLog(log_dir)


def timed(*times: int | None) -> pa.Table:
    return pa.table({"id": list(range(len(times))), "time": pa.array(times, pa.timestamp("ms"))})


def test_a_startpoint_is_made_now_unless_told_otherwise() -> None:
    before = time.time_ns() // 1_000_000
    made = StartpointOldest().created
    assert before <= made <= time.time_ns() // 1_000_000
    assert StartpointSpecific(3, created=5).created == 5
    with pytest.raises(FrozenInstanceError):
        StartpointSpecific(3).offset = 4  # type: ignore[misc]


def test_startpoints_are_equal_by_kind_creation_time_and_position() -> None:
    assert StartpointSpecific(1, created=1) == StartpointSpecific(1, created=1)
    others = {
        StartpointSpecific(1, created=1),
        StartpointSpecific(1, created=2),
        StartpointSpecific(2, created=1),
        StartpointTimestamp(1, created=1),
        StartpointTimestamp(1, "append", created=1),
        StartpointOldest(created=1),
        StartpointUpcoming(created=1),
    }
    assert len(others) == 7


@pytest.mark.parametrize(("startpoint", "data"), OF_SAMZA)
def test_json_is_that_of_samza_in_both_directions(startpoint: Startpoint, data: dict[str, Any]) -> None:
    assert startpoint.to_json() == data
    assert startpoint_from_json(json.loads(json.dumps(data))) == startpoint


def test_a_look_up_by_append_time_says_so_in_json_and_one_by_event_time_need_not() -> None:
    appended = StartpointTimestamp(5, "append", created=7)
    assert appended.to_json()["by"] == "append"
    assert startpoint_from_json(appended.to_json()) == appended
    assert "by" not in StartpointTimestamp(5, created=7).to_json()
    assert startpoint_from_json({**appended.to_json(), "by": "event"}) == StartpointTimestamp(5, created=7)


def test_an_offset_may_be_a_number_in_json() -> None:
    data = {"@type": "StartpointSpecific", "creationTimestamp": 7, "specificOffset": 42}
    assert startpoint_from_json(data) == StartpointSpecific(42, created=7)


@pytest.mark.parametrize("startpoint", [startpoint for startpoint, _ in OF_SAMZA], ids=lambda each: each.KIND)
@pytest.mark.parametrize("missing", [{}, {"creationTimestamp": None}])
def test_without_a_creation_time_nothing_looks_fresh(startpoint: Startpoint, missing: dict[str, None]) -> None:
    data = {key: value for key, value in startpoint.to_json().items() if key != "creationTimestamp"}
    with pytest.raises(InvalidStartpoint, match="does not say when it was made"):
        startpoint_from_json(data | missing)


SPECIFIC = {"@type": "StartpointSpecific", "creationTimestamp": 7}
TIMESTAMP = {"@type": "StartpointTimestamp", "creationTimestamp": 7}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ([], "list, not an object"),
        (None, "NoneType, not an object"),
        ({}, '"@type" of a startpoint must be one of .*not None'),
        ({"@type": "StartpointOldset", "creationTimestamp": 7}, "Did you mean 'StartpointOldest'"),
        ({"@type": ["StartpointOldest"], "creationTimestamp": 7}, "must be one of"),
        (SPECIFIC, "needs the key 'specificOffset'"),
        (TIMESTAMP, "needs the key 'timestampOffset'"),
        ({**SPECIFIC, "specificOffset": "1", "specificOfset": "2"}, "no key 'specificOfset'.*Did you mean 'specificOffset'"),
        ({**SPECIFIC, "specificOffset": "-1"}, "offset .* must be a whole number, as text, not '-1'"),
        ({**SPECIFIC, "specificOffset": "٤٢"}, "must be a whole number"),
        ({**SPECIFIC, "specificOffset": "4 2"}, "must be a whole number"),
        ({**SPECIFIC, "specificOffset": "1\n"}, "must be a whole number"),
        ({**SPECIFIC, "specificOffset": -1}, "between 0 and"),
        ({**SPECIFIC, "specificOffset": "9" * 19}, "between 0 and"),
        ({**SPECIFIC, "specificOffset": True}, "must be a whole number"),
        ({**SPECIFIC, "specificOffset": None}, "must be a whole number"),
        ({**SPECIFIC, "specificOffset": "1", "creationTimestamp": "7"}, "creation time .* must be a whole number"),
        ({**SPECIFIC, "specificOffset": "1", "creationTimestamp": 2**63}, "creation time .* between"),
        ({**TIMESTAMP, "timestampOffset": None}, "timestamp .* must be a whole number, not None"),
        ({**TIMESTAMP, "timestampOffset": 1.5}, "must be a whole number, not 1.5"),
        ({**TIMESTAMP, "timestampOffset": 10**5000}, "a very large number"),
        ({**TIMESTAMP, "timestampOffset": 1, "by": "apend"}, "'event' or 'append', not by 'apend'.*Did you mean 'append'"),
    ],
)  # fmt: skip
def test_what_is_no_startpoint_is_refused_in_a_sentence(data: Any, sentence: str) -> None:
    with pytest.raises(InvalidStartpoint, match=sentence):
        startpoint_from_json(data)


@pytest.mark.parametrize("wrong", [True, 1.0, "1", None, -1])
def test_an_offset_that_can_not_be_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(InvalidStartpoint, match="offset of a startpoint"):
        StartpointSpecific(wrong)


def test_it_is_fresh_for_less_than_twelve_hours_whichever_way_the_clock_is_wrong() -> None:
    made = StartpointOldest(created=NOW)
    assert STALE_AFTER == 12 * 3_600_000
    assert made.is_fresh(NOW) and made.is_fresh(NOW + STALE_AFTER - 1)
    assert not made.is_fresh(NOW + STALE_AFTER)
    assert made.is_fresh(NOW - STALE_AFTER + 1)
    assert not StartpointOldest(created=NOW * 1_000).is_fresh(NOW)  # microseconds: for ever ahead of all others


def test_people_read_what_it_is() -> None:
    assert [str(each) for each, _ in OF_SAMZA] == [
        "offset 42", "event time 1969-12-31T23:57:56.544Z", "oldest", "upcoming",
    ]  # fmt: skip
    assert str(StartpointTimestamp(2**62, "append")) == f"append time {2**62} ms"


def test_the_visitor_of_a_system_says_what_it_does_not_support() -> None:
    class OnlyOldest(StartpointVisitor[int]):
        ssp = SSP("elsewhere", "s", 3)

        def visit_oldest(self, startpoint: StartpointOldest) -> int:
            return 11

    assert StartpointOldest().accept(OnlyOldest()) == 11
    for startpoint in (StartpointSpecific(1), StartpointTimestamp(1), StartpointUpcoming()):
        with pytest.raises(UnresolvableStartpoint, match=r"elsewhere/s\[3\].*OnlyOldest does not support"):
            startpoint.accept(OnlyOldest())


def test_oldest_and_upcoming_are_the_ends_of_what_is_kept(log: StreamLog) -> None:
    stream, resolve = log.create("s", 2), resolve_on(log)
    assert resolve(S0, StartpointOldest()) == resolve(S0, StartpointUpcoming()) == 0
    stream.append(timed(1, 2, 3, 4))
    stream.trim(0, 3)
    assert resolve(S0, StartpointOldest()) == 3
    assert resolve(S0, StartpointUpcoming()) == 4
    stream.append(timed(5))
    assert resolve(S0, StartpointUpcoming()) == 5
    assert resolve(SSP("log", "s", 1), StartpointUpcoming()) == 0


def test_a_specific_offset_is_the_first_to_consume_and_must_be_there(log: StreamLog) -> None:
    stream, resolve = log.create("s", 1), resolve_on(log)
    stream.append(timed(1, 2, 3, 4))
    stream.trim(0, 2)
    assert [resolve(S0, StartpointSpecific(offset)) for offset in (2, 3, 4)] == [2, 3, 4]
    for offset in (0, 1, 5):
        with pytest.raises(UnresolvableStartpoint, match=rf"offset {offset} of log/s\[0\].*its offsets are 2 to 4"):
            resolve(S0, StartpointSpecific(offset))


def test_a_rewind_to_an_event_time_repeats_every_row_of_that_time_or_later_whatever_their_order(log: StreamLog) -> None:
    stream, resolve = log.create("s", 1), resolve_on(log)
    times = [5, 1, None, 9, 3, 12, 8, 2, 30]
    for first in range(0, len(times), 2):
        stream.append(timed(*times[first : first + 2]), time_column="time")
        stream.inject(WatermarkMessage(0))
    rows = [
        (entry.offset + index, when.value // 1_000_000 if when is not None else None)
        for entry in stream.read(0)
        if isinstance(entry, Rows)
        for index, when in enumerate(entry.table["time"].cast(pa.timestamp("ns")).to_pylist())
    ]
    assert [when for _, when in rows] == times
    for time_ in range(32):
        start = resolve(S0, StartpointTimestamp(time_))
        skipped = [when for offset, when in rows if offset < start]
        assert all(when is None or when < time_ for when in skipped)
        assert start == stream.heads()[0] or dict(rows)[start] >= time_  # type: ignore[operator]
    assert resolve(S0, StartpointTimestamp(6)) == rows[3][0]
    assert 3 in [when for offset, when in rows if offset > rows[3][0]], "older rows behind it come again"


def test_a_time_after_everything_is_the_next_message_to_come(log: StreamLog) -> None:
    stream, resolve = log.create("s", 2), resolve_on(log)
    stream.append(timed(10, 20), time_column="time")
    stream.end()
    assert resolve(S0, StartpointTimestamp(21)) == stream.heads()[0] == 3
    assert resolve(S0, StartpointTimestamp(2**63 - 1, "append")) == 3
    assert resolve(SSP("log", "s", 1), StartpointTimestamp(5)) == 1, "nothing but an end: no row to wait for"


def test_append_times_are_exact_and_count_control_messages(log: StreamLog, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1_000]
    monkeypatch.setattr("workbench.systems.log.commits.time.time_ns", lambda: clock[0] * 1_000_000)
    stream, resolve = log.create("s", 1), resolve_on(log)
    stream.append(timed(1, 2))
    clock[0] = 2_000
    stream.inject(WatermarkMessage(5))
    clock[0] = 3_000
    stream.append(timed(3))
    found = {at: resolve(S0, StartpointTimestamp(at, "append")) for at in (0, 1_000, 1_001, 2_000, 2_001, 3_000, 3_001)}
    assert found == {0: 0, 1_000: 0, 1_001: 2, 2_000: 2, 2_001: 3, 3_000: 3, 3_001: 4}


def test_what_can_not_be_resolved_is_told_with_its_place_and_its_range(log: StreamLog) -> None:
    log.create("s", 1).append(timed(1, 2))
    resolve = resolve_on(log)
    with pytest.raises(
        UnresolvableStartpoint, match=r"event time 1970-01-01T00:00:00.005Z of log/s\[0\].*offsets are 0 to 2"
    ):
        resolve(S0, StartpointTimestamp(5))
    with pytest.raises(UnresolvableStartpoint, match=r"log/s\[7\].*no partition 7"):
        resolve(SSP("log", "s", 7), StartpointOldest())
    with pytest.raises(UnresolvableStartpoint, match=r"log/t\[0\].*no stream 't'"):
        resolve(SSP("log", "t", 0), StartpointUpcoming())
    with pytest.raises(UnresolvableStartpoint, match=r"no such system\. Systems here: 'log'"):
        resolve(SSP("kafka", "s", 0), StartpointOldest())


def test_user_and_control_messages_are_counted_apart_from_any_offset_to_any_other(log: StreamLog) -> None:
    stream, count = log.create("s", 1), count_on(log)
    stream.append(timed(1, 2, 3))
    stream.inject(WatermarkMessage(1))
    stream.inject(WatermarkMessage(2))
    stream.append(timed(4, 5))
    stream.end()
    kinds = "uuuccuuc"
    for start in range(9):
        for end in range(start, 9):
            assert count(S0, start, end) == (kinds[start:end].count("u"), kinds[start:end].count("c"))
    stream.trim(0, 2)
    assert count(S0, 0, 99) == (3, 3)
    assert count(S0, 5, 1) == (0, 0)


def test_ranges_and_the_latest_event_time_come_from_the_index(log: StreamLog) -> None:
    log.create("s", 2).append(timed(5, 90, 7), 1, time_column="time")
    log.create("t", 1).append(timed(1))
    assert ranges_on(log, ["s"]) == {S0: (0, 0), SSP("log", "s", 1): (0, 3)}
    assert latest_event_time(log, "s") == 90
    assert latest_event_time(log, "t") is None


def test_a_duration_ago_is_counted_from_now_only_where_times_are_near_now(log: StreamLog) -> None:
    assert by_duration("2h", "append", created=NOW) == StartpointTimestamp(NOW - 7_200_000, "append", created=NOW)
    assert by_duration("90min", before=1_000, created=NOW) == StartpointTimestamp(1_000 - 5_400_000, created=NOW)
    assert abs(by_duration("1h", "append").created - time.time() * 1_000) < 60_000
    with pytest.raises(InvalidStartpointRequest, match="need not be near now"):
        by_duration("1h")
    log.create("s", 2).append(timed(5, 90_000, 7), 1, time_column="time")
    log.create("t", 1).append(timed(70_000), time_column="time")
    log.create("u", 1).append(timed(1))
    assert by_duration_on(log, ["t", "s", "u"], "1s", created=NOW) == StartpointTimestamp(89_000, created=NOW)
    assert by_duration_on(log, "t", "1s", created=NOW) == StartpointTimestamp(69_000, created=NOW)
    assert by_duration_on(log, "u", "1s", "append", created=NOW) == StartpointTimestamp(
        NOW - 1_000, "append", created=NOW
    )
    with pytest.raises(InvalidStartpointRequest, match="No row of 'u' has an event time"):
        by_duration_on(log, "u", "1s")


def test_whole_streams_and_applications_are_many_startpoints_alike() -> None:
    oldest = StartpointOldest(created=1)
    assert [(each.ssp, each.startpoint) for each in whole_stream("s", 2, oldest)] == [
        (S0, oldest), (SSP("log", "s", 1), oldest),
    ]  # fmt: skip
    assert [each.ssp.partition for each in whole_stream("s", [3, 1], oldest)] == [3, 1]
    everything = whole_application({"s": 2, "t": 1}, oldest, "Partition 0")
    assert [(*each.ssp[1:], each.task) for each in everything] == [
        ("s", 0, "Partition 0"), ("s", 1, "Partition 0"), ("t", 0, "Partition 0"),
    ]  # fmt: skip


def test_a_shift_goes_from_where_each_task_is_and_as_far_as_the_partition_goes() -> None:
    s1, b = SSP("log", "s", 1), SSP("log", "b", 0)
    positions = {"Partition 0": {S0: 10, b: 5}, "Partition 1": {s1: 3, b: 7}}
    ranges = {S0: (0, 20), s1: (2, 20), b: (0, 8)}
    shifted = {(each.ssp, each.task): each.startpoint for each in shift_by(positions, ranges, -4, created=1)}
    assert shifted == {
        (S0, None): StartpointSpecific(6, created=1),
        (s1, None): StartpointSpecific(2, created=1),
        (b, "Partition 0"): StartpointSpecific(1, created=1),
        (b, "Partition 1"): StartpointSpecific(3, created=1),
    }
    [only] = shift_by(positions, ranges, 4, ssps=[b], task="Partition 1", created=1)
    assert (only.task, only.startpoint) == ("Partition 1", StartpointSpecific(8, created=1))
    with pytest.raises(InvalidStartpointRequest, match=r"Partition 0 has no position in log/s\[0\] yet"):
        shift_by({"Partition 0": {S0: None}}, ranges, 1)


def test_neither_spark_nor_pandas_nor_the_engine_is_needed_to_write_a_startpoint() -> None:
    script = (
        "import sys, workbench.commands.startpoint, workbench.startpoints, workbench.systems.log.startpoints\n"
        "print([name for name in ('pyspark', 'pandas', 'workbench.engine') if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert found.stdout == "[]\n", found.stderr
