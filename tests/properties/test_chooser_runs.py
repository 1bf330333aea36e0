"""Choosers at work in a job: what is admitted, in which order it is taken, and that neither changes the result."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.jobs import EPOCH_MS, events, write_events
from tests.support.local import LocalJob
from workbench.choosers import (
    ChooserDriver,
    ChooserOption,
    ChooserPolicy,
    IncomingEnvelope,
    LaneArrivals,
    MessageChooser,
    RoundRobinChooser,
    Runs,
    by,
    decode_runs,
)
from workbench.choosers.policy import BUILT_IN
from workbench.drain import write_notification
from workbench.engine.batch_plan import BatchPlan
from workbench.engine.failures import TaskFailed
from workbench.errors import InvalidChooser
from workbench.graph import Application
from workbench.messages import MAX_TIMESTAMP, WatermarkMessage
from workbench.names import SSP
from workbench.systems.log import Rows, StreamLog
from workbench.times import NO_TIME
from workbench.windows import tumbling

STREAMS = ("a", "b", "c")


@pytest.fixture
def log(tmp_path: Path) -> StreamLog:
    return StreamLog(tmp_path / "log")


def fill(log: StreamLog, rows: int = 120, *, partitions: int = 2, disorder_ms: int = 0, end: bool = True) -> None:
    for number, stream in enumerate(STREAMS):
        tables = events(rows, partitions=partitions, disorder_ms=disorder_ms, seed=number)
        write_events(log, tables, stream, end=end)


def merged(*, bound: int = 0, name: str = "merged", **options: dict[str, Any]) -> Application:
    """Three inputs → one stream; its rows in the order taken in "out", and hourly panes of it in "panes".

    `options` are those of the inputs, by stream.
    """
    app = Application(name)
    first, *others = (
        app.input(stream, **{"event_time": "at", "out_of_orderness": bound, **options.get(stream, {})})
        for stream in STREAMS
    )
    both = first.merge(*others)
    both.send_to("out")
    both.partition_by("key", partitions=3).window(tumbling("1h"), late="late").aggregate(n=("id", "count")).send_to(
        "panes"
    )
    return app


def plans(job: LocalJob) -> Iterator[tuple[BatchPlan, BatchPlan]]:
    """Run to the end; the plans before and after each batch."""
    before = job.plan
    while job.step():
        yield before, job.plan
        before = job.plan


def moved(before: BatchPlan, after: BatchPlan, stream: str) -> list[int]:
    return [now - then for then, now in zip(before.positions[stream], after.positions[stream], strict=True)]


def orders(plan: BatchPlan) -> dict[str, Runs]:
    return {task: decode_runs(runs) for task, runs in plan.order.items()}


class Patient(MessageChooser):
    """Takes the SSPs in turn, but remembers how often it was asked and rests every fifth time: it has a memory."""

    def __init__(self) -> None:
        self.inner = RoundRobinChooser()
        self.asked = 0

    def update(self, envelope: IncomingEnvelope) -> None:
        self.inner.update(envelope)

    def choose(self) -> IncomingEnvelope | None:
        self.asked += 1
        return None if self.asked % 40 == 0 else self.inner.choose()


def highest(outstanding: Sequence[IncomingEnvelope]) -> IncomingEnvelope:
    return max(outstanding, key=lambda envelope: envelope.payload["value"])


OWN: dict[str, ChooserOption] = {
    "a class": Patient,
    "a function": highest,
    "by a key": by(lambda envelope: envelope.payload["value"], highest_first=True),
}
ALL: dict[str, ChooserOption] = {**{kind: kind for kind in BUILT_IN}, **OWN}


# Admission.


@pytest.mark.parametrize("chooser", ALL)
def test_a_batch_takes_no_more_messages_than_its_limit(log: StreamLog, chooser: str) -> None:
    fill(log)
    job = LocalJob(merged(), log, max_messages=50, chooser=ALL[chooser])
    taken = [sum(sum(moved(before, after, stream)) for stream in STREAMS) for before, after in plans(job)]
    assert max(taken) <= 50
    assert sum(taken) == 3 * (120 + 2), "all rows, and the end of each partition"


@pytest.mark.parametrize("chooser", ALL)
def test_a_lower_priority_gets_only_what_the_higher_ones_leave(log: StreamLog, chooser: str) -> None:
    fill(log, 150)
    app = merged(a={"priority": -1}, b={"priority": 7})
    job = LocalJob(app, log, max_messages=40, chooser=ALL[chooser])
    low_moved = 0
    for before, after in plans(job):
        for higher, lower in (("b", "c"), ("b", "a"), ("c", "a")):
            # Lane i of each source is read by task i.
            for left, taken in zip(_left(log, after, higher), moved(before, after, lower), strict=True):
                # A chooser that rests gives nothing, whatever its priority.
                if ALL[chooser] is not Patient:
                    assert not (left and taken), f"{lower} went while {left} messages of {higher} waited"
                low_moved += taken
    assert low_moved


def _left(log: StreamLog, plan: BatchPlan, stream: str) -> list[int]:
    return [head - now for head, now in zip(log.stream(stream).heads(), plan.positions[stream], strict=True)]


@pytest.mark.parametrize("chooser", ALL)
@pytest.mark.parametrize("options", [{}, {"priority": -5}], ids=["", "of low priority"])
def test_nothing_else_is_read_anywhere_before_each_bootstrap_stream_is_where_its_head_was(
    log: StreamLog, chooser: str, options: dict[str, int]
) -> None:
    fill(log, 90)
    app = merged(b={"bootstrap": True, **options}, c={"bootstrap": True})
    job = LocalJob(app, log, max_messages=30, chooser=ALL[chooser])
    heads = {stream: log.stream(stream).heads() for stream in ("b", "c")}
    waited = 0
    for before, after in plans(job):
        behind = any(
            position < head
            for stream in ("b", "c")
            for position, head in zip(before.positions[stream], heads[stream], strict=True)
        )
        if behind:
            waited += 1
            assert moved(before, after, "a") == [0, 0]
            assert {run.why for runs in orders(after).values() for run in runs if run.lane > 0} == {"bootstrap"}
    assert waited > 3
    assert job.status == "finished"


def test_what_is_appended_to_a_bootstrap_stream_after_the_start_is_not_waited_for(log: StreamLog) -> None:
    fill(log, 60, end=False)
    job = LocalJob(merged(b={"bootstrap": True}), log, max_messages=40)
    read_too_early = 0
    for turn in range(12):
        log.stream("b").append(events(50, partitions=1, disorder_ms=0, seed=turn)[0], turn % 2, time_column="at")
        before = job.plan
        assert job.step()
        caught_up = all(position >= 30 for position in before.positions["b"])
        read_too_early += not caught_up and any(moved(before, job.plan, "a"))
    assert read_too_early == 0
    assert job.plan.positions["b"] > [60, 60], "it goes on growing faster than it is read"
    job.release()


@pytest.mark.parametrize("case", ["never written", "emptied by retention", "only its end", "one empty partition"])
def test_a_bootstrap_stream_from_which_nothing_will_come_blocks_nobody(log: StreamLog, case: str) -> None:
    for stream in ("a", "c"):
        write_events(log, events(60, partitions=2, disorder_ms=0), stream)
    bootstrap = log.create("b", 2)
    if case == "emptied by retention":
        write_events(log, events(40, partitions=2, disorder_ms=0), "b", end=False)
        for partition, head in enumerate(bootstrap.heads()):
            bootstrap.trim(partition, head)
    elif case == "only its end":
        bootstrap.end()
    elif case == "one empty partition":
        bootstrap.append(events(20, partitions=1, disorder_ms=0)[0], 1, time_column="at")
    job = LocalJob(merged(b={"bootstrap": True}), log, max_messages=50)
    list(job.batches())
    assert job.plan.positions["a"] == job.plan.positions["c"] == [31, 31]
    assert job.plan.positions["b"] == bootstrap.heads()
    job.release()


@pytest.mark.parametrize("chooser", ALL)
def test_a_drain_completes_while_a_bootstrap_stream_lags_and_whatever_a_chooser_waits_for(
    log: StreamLog, chooser: str
) -> None:
    fill(log, 300, end=False)
    job = LocalJob(merged(b={"bootstrap": True}), log, max_messages=30, chooser=ALL[chooser])
    job.step()
    job.step()
    write_notification(log.metadata, job.deployment.run_id)
    job.run_to_end()
    assert job.status == "drained"
    assert job.plan.positions["a"] == [0, 0]
    assert log.stream("panes").to_pandas()["n"].sum() == sum(job.plan.positions["b"]) > 0


class Stubborn(MessageChooser):
    """Gives only what has the lowest priority in its eyes: messages of sources, and of stages nothing."""

    def __init__(self) -> None:
        self.inner = RoundRobinChooser()

    def update(self, envelope: IncomingEnvelope) -> None:
        if "." not in envelope.ssp.stream:
            self.inner.update(envelope)

    def choose(self) -> IncomingEnvelope | None:
        return self.inner.choose()


def test_a_drain_passes_a_chooser_that_holds_back_what_is_in_flight(log: StreamLog) -> None:
    write_events(log, events(200, partitions=2, disorder_ms=0), "a", end=False)
    app = Application("stubborn")
    hours = (
        app.input("a", event_time="at")
        .partition_by("key", partitions=2)
        .window(tumbling("1h"))
        .aggregate(n=("id", "count"))
    )
    hours.partition_by("key", partitions=2, name="stubborn.days").window(tumbling("1d")).aggregate(
        n=("n", "sum")
    ).send_to("days")
    job = LocalJob(app, log, max_messages=50, chooser=Stubborn)
    list(job.batches())
    assert sum(job.plan.positions["stubborn.key"]) == 0, "two streams between the stages, and it holds both"
    write_notification(log.metadata, job.deployment.run_id)
    job.run_to_end()
    assert job.status == "drained"
    admitted = sum(job.plan.positions["a"])
    assert 150 < admitted < 200, "so much in flight leaves nothing to the sources"
    assert log.stream("days").to_pandas()["n"].sum() == admitted


# The order.


@pytest.mark.parametrize("kind", BUILT_IN)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    batch_size=st.sampled_from([1, 1, 3, 16]),
    priorities=st.lists(st.sampled_from([0, 0, 4, -2]), min_size=3, max_size=3),
    bootstrap=st.sampled_from(["", "", "b"]),
    max_messages=st.integers(4, 40),
    growing=st.integers(0, 9),
    seed=st.integers(0, 999),
)
def test_the_recorded_order_is_that_of_the_chooser_message_by_message(
    kind: str, batch_size: int, priorities: list[int], bootstrap: str, max_messages: int, growing: int, seed: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = StreamLog(directory)
        options: dict[str, dict[str, Any]] = {}
        for number, (stream, priority) in enumerate(zip(STREAMS, priorities, strict=True)):
            tables = events(20 + 10 * number, partitions=2, disorder_ms=7_200_000, seed=seed + number)
            write_events(log, tables, stream, end=False)
            options[stream] = {"priority": priority, "bootstrap": stream == bootstrap}
        heads_at_start = {stream: log.stream(stream).heads() for stream in STREAMS}
        job = LocalJob(merged(**options), log, max_messages=max_messages, chooser=kind, batch_size=batch_size)
        drivers = [ChooserDriver(ChooserPolicy(kind, batch_size)) for _ in range(2)]
        lane_of = {read.stream: index for index, read in enumerate(job.deployment.source.inputs)}
        first = lane_of[STREAMS[0]]
        for turn in range(20):
            if growing and 0 < turn < 6:
                more = events(growing, partitions=1, disorder_ms=0, seed=turn)[0]
                log.stream(STREAMS[turn % 3]).append(more, turn % 2, time_column="at")
            before = job.plan
            if not job.step():
                break
            closed = bootstrap and any(
                now < head for now, head in zip(before.positions[bootstrap], heads_at_start[bootstrap], strict=True)
            )
            for task, driver in enumerate(drivers):
                recorded = decode_runs(job.plan.order[str(task)]) if str(task) in job.plan.order else Runs.of([])
                sources = [run for run in recorded if run.lane >= first]
                lanes = [
                    _arrivals(
                        log,
                        stream,
                        task,
                        before,
                        heads_at_start,
                        priority=2**31 - 1 if stream == bootstrap and not priority else priority,
                        shut=bool(closed) and stream != bootstrap,
                        bootstrap=bool(closed) and stream == bootstrap,
                    )
                    for stream, priority in zip(STREAMS, priorities, strict=True)
                ]
                taken = sum(run.count for run in sources)
                if not taken:
                    continue
                asked = driver.plan(lanes, taken).runs.on_lanes([lane_of[stream] for stream in STREAMS])
                assert list(asked) == sources
        job.release()


def _arrivals(
    log: StreamLog, stream: str, partition: int, before: BatchPlan, starts: dict[str, list[int]], *,
    priority: int, shut: bool, bootstrap: bool,
) -> LaneArrivals:  # fmt: skip
    """What waits, read row by row by other means than the job's."""
    position, head = before.positions[stream][partition], log.stream(stream).heads()[partition]
    rows = [entry.table for entry in log.stream(stream).read(partition, start=position) if isinstance(entry, Rows)]
    times = [time for table in rows for time in table["at"].cast(pa.int64()).to_pylist()]
    assert len(times) == head - position
    return LaneArrivals(
        SSP("log", stream, partition),
        0 if shut else len(times),
        position,
        priority,
        bootstrap,
        started_at=0,
        head_at_start=starts[stream][partition],
        head=position if shut else head,
        event_times=np.array(times, dtype=np.int64),
    )


@pytest.mark.parametrize("chooser", ALL)
def test_a_task_takes_its_messages_in_the_order_that_run_choices_tells(log: StreamLog, chooser: str) -> None:
    fill(log, 100, disorder_ms=3_600_000)
    job = LocalJob(merged(bound=3_600_000), log, max_messages=45, chooser=ALL[chooser]).run_to_end()
    choices = job.record.choices()
    choices = choices[choices["stream"].isin(STREAMS)]
    for task in range(2):
        held = {stream: _rows(log, stream, task) for stream in STREAMS}
        mine = choices[choices["task"] == f"Partition {task}"]
        told = [
            held[row.stream][offset]
            for row in mine.itertuples()
            for offset in range(row.offset, row.offset + row.messages)
            if offset in held[row.stream]
        ]
        out = _rows(log, "out", task)
        assert [out[offset] for offset in sorted(out)] == told
        assert len(told) == 150


def _rows(log: StreamLog, stream: str, partition: int) -> dict[int, tuple[int, float]]:
    """Offset → a row, of which no two are equal."""
    found = {}
    for entry in log.stream(stream).read(partition):
        if isinstance(entry, Rows):
            pairs = zip(entry.table["id"].to_pylist(), entry.table["value"].to_pylist(), strict=True)
            found |= dict(enumerate(pairs, start=entry.offset))
    return found


def test_positions_and_offsets_of_the_choices_leave_no_gaps(log: StreamLog) -> None:
    fill(log, 80)
    job = LocalJob(merged(b={"priority": 1}), log, max_messages=33, chooser="time_aligned").run_to_end()
    choices = job.record.choices()
    for _, rows in choices.groupby(["batch", "task"]):
        ends = rows["position"] + rows["messages"]
        assert (
            rows["position"].iloc[0] == 0 and (rows["position"].iloc[1:].to_numpy() == ends.iloc[:-1].to_numpy()).all()
        )
    for _, rows in choices.groupby(["stream", "partition"]):
        ends = rows["offset"] + rows["messages"]
        assert rows["offset"].iloc[0] == 0 and (rows["offset"].iloc[1:].to_numpy() == ends.iloc[:-1].to_numpy()).all()


def test_batches_as_small_as_they_get_starve_no_input(log: StreamLog) -> None:
    fill(log, 40, partitions=1, end=False)
    job = LocalJob(merged(), log, max_messages=2, chooser="round_robin")
    for _ in range(9):
        job.step()
    assert [job.plan.positions[stream] for stream in STREAMS] == [[6], [6], [6]]
    job.release()


def test_a_turn_that_is_begun_outlasts_batches_in_which_its_task_has_nothing_to_do(log: StreamLog) -> None:
    fill(log, 8, end=False)
    job = LocalJob(merged(), log, max_messages=6, chooser="round_robin", batch_size=3)
    list(job.batches())
    log.stream("a").append(events(3, partitions=1, disorder_ms=0)[0], 0, time_column="at")
    job.step()
    kept = job.plan.choosers["1"]
    assert kept["outer"]["begun"], "4 messages of each lane: the last turn has one message"
    list(job.batches())
    assert job.plan.choosers["1"]["outer"] == kept["outer"]
    job.release()


# Crashes.


@pytest.mark.parametrize("chooser", ALL)
@pytest.mark.parametrize("after", ["plan", "tasks", "commit"])
def test_a_batch_that_died_is_taken_again_in_the_same_order(log: StreamLog, chooser: str, after: str) -> None:
    fill(log, disorder_ms=3_600_000, end=False)
    options: dict[str, Any] = {"max_messages": 60, "chooser": ALL[chooser]}
    app = merged(bound=3_600_000, b={"priority": 2})
    job = LocalJob(app, log, **options)
    job.step()
    job.step()
    job.crash(after)
    # More comes in the meantime, and with a higher priority: it must not change what was planned.
    log.stream("b").append(events(20, partitions=1, disorder_ms=0, seed=9)[0], 0, time_column="at")
    for stream in STREAMS:
        log.stream(stream).end()
    again = LocalJob(app, log, **options)
    assert again.unfinished is not None
    replayed = BatchPlan.from_json(again.unfinished)
    assert replayed.order and replayed.positions != job.plan.positions
    again.step()
    batch = again.plan
    assert batch.order == replayed.order
    choices = again.record.choices()
    last = choices[choices["batch"] == batch.batch - 1]
    for task, runs in orders(batch).items():
        recorded = last[last["task"] == f"Partition {task}"]
        assert list(zip(recorded["messages"], recorded["why"], strict=True)) == [(run.count, run.why) for run in runs]
    again.run_to_end()
    assert log.stream("panes").to_pandas()["n"].sum() + sum(log.stream("late").heads()) == 380
    assert not _rows_twice(log, "out")


def _rows_twice(log: StreamLog, stream: str) -> bool:
    return bool(log.stream(stream).to_pandas().duplicated(["id", "value"]).any())


# The result.


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    chooser=st.sampled_from([None, *ALL]),
    batch_size=st.sampled_from([None, None, 1, 2, 50]),
    priorities=st.lists(st.integers(-2, 3), min_size=3, max_size=3),
    bootstrap=st.sets(st.sampled_from(STREAMS), max_size=2),
    partitions=st.integers(1, 3),
    max_messages=st.integers(20, 200),
    crashes=st.frozensets(st.integers(0, 12)),
    drain_after=st.sampled_from([None, None, 0, 3, 6]),
    seed=st.integers(0, 999),
)
def test_no_chooser_changes_the_result(
    chooser: str | None,
    batch_size: int | None,
    priorities: list[int],
    bootstrap: set[str],
    partitions: int,
    max_messages: int,
    crashes: frozenset[int],
    drain_after: int | None,
    seed: int,
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = StreamLog(directory)
        tables = []
        for number, stream in enumerate(STREAMS):
            of = events(45, partitions=partitions, disorder_ms=1_800_000, seed=seed + number)
            write_events(log, of, stream)
            tables += of
        options = {
            stream: {"priority": priority, "bootstrap": stream in bootstrap}
            for stream, priority in zip(STREAMS, priorities, strict=True)
        }
        choice = {"chooser": None if chooser is None else ALL[chooser], "batch_size": batch_size}
        app = merged(bound=1_800_000, **options)
        job = LocalJob(app, log, max_messages=max_messages, **choice)
        if drain_after is not None:
            for _ in range(drain_after):
                job.step()
            write_notification(log.metadata, job.deployment.run_id)
            job.run_to_end(crashes)
            job = LocalJob(app, log, max_messages=max_messages, **choice)
        # One that rests plans batches of nothing, which are none; it is asked again as Spark does, trigger by trigger.
        _run_patiently(job, crashes)
        rows = pd.concat(table.to_pandas() for table in tables)
        truth = rows.groupby(["key", rows["at"].dt.floor("h")]).size()
        panes = log.stream("panes").to_pandas()
        hours = pd.to_datetime(panes["window_start"], utc=True)
        # The bounds of the inputs are those of each alone: their merge goes by the slowest.
        assert sum(log.stream("late").heads()) == 0
        found = panes.groupby(["key", hours.rename("at")])["n"].sum()
        assert found.to_dict() == truth.to_dict()
        assert drain_after is not None or not panes.duplicated(["key", "window_start"]).any()


def _run_patiently(job: LocalJob, crashes: frozenset[int]) -> None:
    for turn in range(400):
        if turn in crashes:
            job.step(commit=False)
        if not job.step() and job.status in ("finished", "drained"):
            break
    assert job.status in ("finished", "drained")
    job.release()


# What a user does wrong.


def failing(outstanding: Sequence[IncomingEnvelope]) -> IncomingEnvelope:
    return max(outstanding, key=lambda envelope: envelope.payload["delay"] / 0)


def dividing(outstanding: Sequence[IncomingEnvelope]) -> IncomingEnvelope:
    return outstanding[1 // (len(outstanding) - 3)]


def test_an_error_of_ones_own_chooser_is_told_with_its_line(log: StreamLog) -> None:
    fill(log, 30, partitions=1)
    job = LocalJob(merged(), log, chooser=dividing)
    with pytest.raises(TaskFailed) as raised:
        job.step()
    failure = raised.value.failure
    assert "The chooser dividing raised ZeroDivisionError: integer" in failure.message
    assert "It had chosen 0 messages of this batch. Outstanding were: log/a[0] at offset 0" in failure.message.replace(
        "\n", " "
    )
    assert failure.line.endswith("return outstanding[1 // (len(outstanding) - 3)]")
    assert "test_chooser_runs.py" in failure.line and "in dividing" in failure.line
    assert len(str(failure).splitlines()) < 10
    job.release()


def test_a_column_that_no_message_has_is_told_with_those_there_are(log: StreamLog) -> None:
    fill(log, 30, partitions=1)
    job = LocalJob(merged(), log, chooser=failing)
    with pytest.raises(
        TaskFailed, match=r"no column 'delay' in the rows of log/a\[0\]. It has: 'at', 'id', 'key', 'value'"
    ):
        job.step()
    job.release()


def test_a_choice_that_was_not_to_be_had_is_told_with_what_was(log: StreamLog) -> None:
    fill(log, 30, partitions=1)
    other = IncomingEnvelope.of(SSP("log", "elsewhere", 0), 3)
    job = LocalJob(merged(), log, chooser=lambda outstanding: other)
    with pytest.raises(TaskFailed, match=r"returned <message 3 of .*elsewhere.* Outstanding are: log"):
        job.step()
    job.release()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"chooser": "time_alignd"}, "did you mean 'time_aligned'"),
        ({"chooser": RoundRobinChooser()}, "one of its own|a chooser of its own"),
        ({"chooser": 3}, "not 3"),
        ({"chooser": lambda first, second: first}, "not <function"),
        ({"batch_size": 0}, "at least 1 .*not 0"),
        ({"batch_size": 2.5}, "not 2.5"),
        ({"batch_size": True}, "not True"),
    ],
)  # fmt: skip
def test_options_that_mean_nothing_are_refused_before_anything_is_locked(
    log: StreamLog, options: dict[str, Any], told: str
) -> None:
    fill(log, 30)
    with pytest.raises(InvalidChooser, match=f"(?i){told}"):
        LocalJob(merged(), log, **options)
    LocalJob(merged(), log).release()


@pytest.mark.parametrize("priority", [2**31 - 1, 1.5, True, "high"])
def test_a_priority_is_a_number_below_that_of_what_is_in_flight(priority: Any) -> None:
    with pytest.raises(InvalidChooser, match="A priority is an integer below"):
        merged(a={"priority": priority})


def test_time_alignment_of_an_input_without_event_times_is_warned_of(log: StreamLog) -> None:
    fill(log, 30)
    app = Application("timeless")
    for stream in STREAMS:
        app.input(stream, event_time="at" if stream == "a" else None).send_to(f"out of {stream}")
    with pytest.warns(UserWarning, match="none is named for 'b', 'c': messages without one go first"):
        LocalJob(app, log, chooser="time_aligned").release()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LocalJob(merged(name="other"), log, chooser="time_aligned").release()


def test_rows_without_a_time_and_control_messages_from_outside_go_at_once(log: StreamLog) -> None:
    tables = events(40, partitions=1, disorder_ms=0)
    nulls = tables[0].set_column(0, "at", pa.nulls(40, tables[0]["at"].type))
    log.create("a", 1).append(nulls, 0, time_column="at")
    for stream in ("b", "c"):
        write_events(log, tables, stream, end=False)
    log.stream("c").inject(WatermarkMessage(EPOCH_MS), [0])
    job = LocalJob(merged(), log, max_messages=60, chooser="time_aligned")
    job.step()
    first, *_ = orders(job.plan)["0"]
    assert (first.lane, first.count, first.why) == (1, 40, "earliest")
    assert NO_TIME < EPOCH_MS < MAX_TIMESTAMP
    job.release()


def test_ones_own_chooser_sees_the_sources_and_not_the_one_stream_between_the_stages(log: StreamLog) -> None:
    fill(log, 60)
    app = Application("narrow")
    first, *others = (app.input(stream, event_time="at") for stream in STREAMS)
    hours = (
        first.merge(*others).map(lambda f: f[["at", "key", "id"]], name="narrow", event_time="at").partition_by("key")
    )
    hours.window(tumbling("1h")).aggregate(n=("id", "count")).send_to("panes")
    job = LocalJob(app, log, max_messages=50, chooser=by(lambda envelope: envelope.payload["value"])).run_to_end()
    assert log.stream("panes").to_pandas()["n"].sum() == 180
    whys = job.record.choices().groupby("stream")["why"].unique()
    assert set(whys["narrow.key"]) == {"alone"}
    assert "by lambda" in set(whys["a"])
