"""The preview says exactly what the next start does, before it does."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from workbench.messages import WatermarkMessage
from workbench.names import SSP
from workbench.startpoints import (
    STALE_AFTER,
    PreviewRow,
    Request,
    Startpoint,
    StartpointManager,
    StartpointOldest,
    StartpointSpecific,
    StartpointTimestamp,
    StartpointUpcoming,
    Unreadable,
    consumers,
    preview,
    preview_frame,
    rewinds,
)
from workbench.systems.log import Rows, StreamLog
from workbench.systems.log.startpoints import preview_on, ranges_on, resolve_on

NOW = 1_700_000_000_000
T0, T1 = "Partition 0", "Partition 1"
S0, S1, B = SSP("log", "s", 0), SSP("log", "s", 1), SSP("log", "b", 0)


@pytest.fixture
def log(log_dir: Path) -> StreamLog:
    """`s` has two partitions of 10 rows and, behind the fifth, 2 control messages; `b` one of 6 rows."""
    log = StreamLog(log_dir)
    s, b = log.create("s", 2), log.create("b", 1)
    for partition in range(2):
        s.append(timed(range(5)), partition, "time")
        s.inject(WatermarkMessage(1), [partition])
        s.inject(WatermarkMessage(2), [partition])
        s.append(timed(range(5, 10)), partition, "time")
    b.append(timed(range(6)), time_column="time")
    return log


def timed(times: Iterable[int]) -> pa.Table:
    return pa.table({"time": pa.array(list(times), pa.timestamp("ms"))})


POSITIONS: dict[str, dict[SSP, int | None]] = {T0: {S0: 10, B: 2}, T1: {S1: 12, B: 5}}


def only(rows: list[PreviewRow], **wanted: Any) -> PreviewRow:
    [row] = [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]
    return row


def test_replayed_and_skipped_messages_are_counted_user_and_control_apart(log: StreamLog) -> None:
    requests = [
        Request(S0, StartpointSpecific(3, created=NOW)),
        Request(S1, StartpointOldest(created=NOW)),
        Request(B, StartpointUpcoming(created=NOW)),
    ]
    rows = preview_on(log, POSITIONS, requests, at=NOW)
    assert only(rows, stream="s", partition=0) == PreviewRow(
        task=T0, stream="s", partition=0, startpoint="offset 3", source="ssp", current=10, oldest=0, head=12, resolved=3,
        replayed=5, skipped=0, replayed_control=2, skipped_control=0, taken=False, state="applies",
    )  # fmt: skip
    assert (only(rows, stream="s", partition=1).replayed, only(rows, partition=1).replayed_control) == (10, 2)
    assert [(row.task, row.current, row.skipped) for row in rows if row.stream == "b"] == [(T0, 2, 4), (T1, 5, 1)]
    assert [row.task for row in rows] == [T0, T0, T1, T1]


def test_it_tells_who_wins_and_what_is_not_applied_and_why(log: StreamLog) -> None:
    requests = [
        Request(B, StartpointSpecific(1, created=NOW)),
        Request(B, StartpointSpecific(0, created=NOW + 1), T1),
        Request(S0, StartpointSpecific(99, created=NOW)),
        Request(S1, StartpointOldest(created=NOW - STALE_AFTER)),
        Request(SSP("log", "other", 0), StartpointOldest(created=NOW)),
    ]
    rows = preview_on(log, POSITIONS, requests, at=NOW, unreadable=[Unreadable("n", "k", "it is no JSON")])
    assert [(row.state, row.source) for row in rows if row.stream == "b"] == [
        ("applies", "ssp"), ("applies", "task"), ("overridden", "ssp"),
    ]  # fmt: skip
    assert only(rows, stream="b", task=T1, state="overridden").resolved is None
    assert only(rows, partition=0, stream="s").state.startswith("unresolvable: The startpoint offset 99 of log/s[0]")
    assert only(rows, partition=1, stream="s").state.startswith("stale: it was made at 2023-11-14T10:13:20Z")
    assert only(rows, stream="other").state == "not consumed"
    assert only(rows, stream=None).state == "unreadable: it is no JSON"


def test_nothing_is_replayed_twice_or_made_up_where_retention_was_or_no_position_is(log: StreamLog) -> None:
    log.stream("s").trim(0, 8)
    log.stream("s").trim(1, 8)
    positions: dict[str, dict[SSP, int | None]] = {T0: {S0: 3}, T1: {S1: None}}
    rows = preview_on(log, positions, [Request(ssp, StartpointSpecific(9, created=NOW)) for ssp in (S0, S1)], at=NOW)
    assert (rows[0].oldest, rows[0].skipped, rows[0].replayed) == (8, 1, 0)
    assert (rows[1].resolved, rows[1].skipped, rows[1].replayed) == (9, None, None)


def test_messages_that_retention_removed_are_not_asked_for() -> None:
    asked: list[tuple[int, int]] = []

    def count(ssp: SSP, start: int, end: int) -> tuple[int, int]:
        asked.append((start, end))
        return end - start, 0

    for current, resolved in ((3, 9), (3, 8), (9, 8), (9, 9)):
        request = Request(S0, StartpointSpecific(resolved, created=NOW))
        preview(
            {T0: {S0: current}}, [request], ranges={S0: (8, 12)}, resolve=lambda *_, to=resolved: to, count=count, at=NOW
        )  # fmt: skip
    assert asked == [(8, 9), (8, 9)]


def test_rewinds_are_the_tasks_and_ssps_that_see_messages_again() -> None:
    offsets = {T0: {S0: 3, B: 2}, T1: {S1: 13, B: 4}, "Partition 2": {S0: 1}}
    assert rewinds(POSITIONS, offsets) == {T0: {S0: (10, 3)}, T1: {B: (5, 4)}}


def test_a_frame_has_a_column_for_each_field_also_when_it_is_empty(log: StreamLog) -> None:
    rows = preview_on(log, POSITIONS, [Request(S0, StartpointOldest(created=NOW))], at=NOW)
    unreadable = preview_on(log, POSITIONS, [], at=NOW, unreadable=[Unreadable("n", "k", "r")])
    frames = [preview_frame(rows), preview_frame([]), preview_frame(unreadable)]
    for frame in frames:
        assert list(frame.columns)[:4] == ["task", "stream", "partition", "startpoint"]
        assert frame["replayed"].dtype == frame["partition"].dtype == pd.Int64Dtype()
        assert frame["taken"].dtype == bool
    assert frames[0]["replayed"].sum() == 8 and len(frames[1]) == 0


def test_consumers_follow_from_a_plan_also_for_broadcast_and_for_partitions_that_are_new() -> None:
    found = consumers({"s": [4, 5], "b": [1, 2, 3], "one": [9]}, {"s": 3, "b": 1, "one": 1})
    assert found == {
        T0: {S0: 4, B: 1, SSP("log", "one", 0): 9},
        T1: {S1: 5, B: 2},
        "Partition 2": {SSP("log", "s", 2): None, B: 3},
    }
    assert consumers({"b": [7]}, {"b": 1}, broadcast=["b"]) == {T0: {B: 7}}


KINDS = {
    "specific": StartpointSpecific(4, created=NOW),
    "event time": StartpointTimestamp(6, created=NOW),
    "append time": StartpointTimestamp(0, "append", created=NOW),
    "oldest": StartpointOldest(created=NOW),
    "upcoming": StartpointUpcoming(created=NOW),
}
FIRST = {"specific": 4, "event time": 8, "append time": 0, "oldest": 0, "upcoming": 12}


@pytest.mark.parametrize("known", [True, False], ids=["with a checkpoint", "without"])
@pytest.mark.parametrize("partitions", [1, 3, 16])
@pytest.mark.parametrize("broadcast", [False, True], ids=["partitioned", "broadcast"])
@pytest.mark.parametrize("source", ["ssp", "task"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_first_offset_of_each_task_is_the_previewed_one(
    log_dir: Path, kind: str, source: str, broadcast: bool, partitions: int, known: bool
) -> None:
    """The design document's test plan, at the level of the manager: all kinds, broadcast or not, partition counts."""
    log = StreamLog(log_dir)
    stream = log.create("in", 1 if broadcast else partitions)
    for partition in range(stream.partitions):
        stream.append(timed(range(5)), partition, "time")
    stream.inject(WatermarkMessage(1))
    stream.inject(WatermarkMessage(2))
    for partition in range(stream.partitions):
        stream.append(timed(range(5, 10)), partition, "time")
    tasks = {
        f"Partition {task}": {SSP("log", "in", 0 if broadcast else task): 7 if known else None}
        for task in range(partitions)
    }
    manager = StartpointManager(log, "app", lambda: NOW)
    startpoint: Startpoint = KINDS[kind]
    for task, ssps in tasks.items():
        for ssp in ssps:
            manager.write(ssp, startpoint, task if source == "task" else None)

    rows = preview_on(log, tasks, manager.all().requests, at=NOW)
    taken = manager.fan_out(tasks)
    offsets = taken.resolved(resolve_on(log))
    assert len(rows) == partitions == len(list(taken))
    for task, ssps in tasks.items():
        [(ssp, current)] = ssps.items()
        row = only(rows, task=task)
        assert offsets[task][ssp] == row.resolved == FIRST[kind]
        assert (row.source, taken.applies[task][ssp].source) == (source, source)
        if current is None:
            assert row.replayed is row.skipped is None
            continue
        again = list(stream.read(ssp.partition, offsets[task][ssp]))
        consumed = sum(len(entry) for entry in again if isinstance(entry, Rows))
        expected = sum(len(entry) for entry in stream.read(ssp.partition, current) if isinstance(entry, Rows))
        assert consumed - expected == (row.replayed or 0) - (row.skipped or 0)
    # After the commit that covers them, nothing is left and nothing would be applied.
    assert manager.remove_consumed(taken.receipts) == partitions
    assert not manager.fan_out(tasks) and log.metadata.namespaces() == []
    assert ranges_on(log, ["in"])
