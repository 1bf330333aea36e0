"""Split applications: jobs that are connected by the log only give what one job gives, however they are interleaved."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.jobs import assert_hourly_is_true, events, hourly, write_events
from tests.support.local import LocalJob
from workbench.__main__ import main
from workbench.drain import read_notifications, write_notification
from workbench.engine.drains import clean_up_all_runs
from workbench.engine.left import by_partition
from workbench.engine.other_jobs import count_unread
from workbench.errors import IncompatibleCheckpoint, InvalidOption, SplitConflict
from workbench.graph import Application
from workbench.messages import MAX_TIMESTAMP
from workbench.names import SSP
from workbench.startpoints import StartpointManager, StartpointSpecific
from workbench.systems.log import StreamLog
from workbench.windows import tumbling

quick = settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
routings = st.sampled_from(["broadcast", "aggregate"])


@pytest.fixture
def log(tmp_path: Path) -> StreamLog:
    return StreamLog(tmp_path / "log")


def chain(stages: int, partitions: int = 3, *, total: bool = False, text_keys: bool = True) -> Application:
    """`stages` stages, partitioned by key between them; the last counts rows per hour and key."""
    app = Application("chain")
    stream = app.input("events", event_time="at", out_of_orderness="2h")
    if not text_keys:
        stream = stream.map(lambda f: f.assign(key=f["key"].str[4:].astype("int64")), name="keys are numbers")
    for stage in range(1, stages):
        stream = stream.partition_by("key", partitions=partitions, name=f"between-{stage}")
    more = {"total": ("value", "sum")} if total else {}
    stream.window(tumbling("1h"), late="late").aggregate(n=("id", "count"), ids=("id", "sum"), **more).send_to(
        "panes" if text_keys and not total else "new panes"
    )
    return app


def finish(job: LocalJob) -> str:
    """What a run does when all tasks are done; its status."""
    done = job.recorder.done_tasks(job.deployment.generation)
    assert set(done) == set(range(job.deployment.plan.tasks)), f"only the tasks {sorted(done)} are done"
    return end(job)


def end(job: LocalJob, status: str | None = None) -> str:
    status = status or job.status
    job.recorder.end_run(job.deployment.run_id, 0, status, None)
    if status in ("drained", "finished"):
        clean_up_all_runs(job.log.metadata, job.recorder)
    job.release()
    return status


def run_all(jobs: list[LocalJob]) -> list[str]:
    """Step them in turn until none has anything to do; all must be done."""
    until_idle(*jobs)
    return [finish(job) for job in jobs]


def until_idle(*jobs: LocalJob) -> None:
    """Step them in turn until none has anything to do."""
    while sum(len(job.step()) for job in jobs):
        pass


@contextmanager
def a_log() -> Iterator[StreamLog]:
    with tempfile.TemporaryDirectory() as directory:
        yield StreamLog(directory)


def panes_of(log: StreamLog, stream: str = "panes") -> pd.DataFrame:
    if stream not in log:
        return pd.DataFrame(columns=["key", "window_start", "n", "ids", "drained"])
    panes = log.stream(stream).to_pandas()
    return panes if len(panes) else pd.DataFrame(columns=["key", "window_start", "n", "ids", "drained"])


def counts(panes: pd.DataFrame) -> Counter[tuple[str, pd.Timestamp]]:
    keyed = panes.assign(
        key="key-" + panes["key"].astype(str).str.removeprefix("key-"),
        hour=pd.to_datetime(panes["window_start"], utc=True),
    )
    return Counter({key: int(n) for key, n in keyed.groupby(["key", "hour"])["n"].sum().items()})


def both(log: StreamLog) -> Counter[tuple[str, pd.Timestamp]]:
    """What the old and the new version have counted, in all."""
    return counts(panes_of(log)) + counts(panes_of(log, "new panes"))


def truth(tables: list[pa.Table]) -> Counter[tuple[str, pd.Timestamp]]:
    rows = pd.concat([table.to_pandas() for table in tables])
    return Counter({key: int(n) for key, n in rows.groupby(["key", rows["at"].dt.floor("h")]).size().items()})


@quick
@given(
    steps=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["step", "step", "plan", "tasks", "commit", "stop"]))),
    stages=st.integers(2, 3),
    sources=st.integers(1, 4),
    partitions=st.integers(1, 5),
    routing=routings,
    watermark=routings,
    end_of_stream=routings,
    seed=st.integers(0, 1_000),
)
def test_any_interleaving_with_crashes_and_restarts_gives_the_panes_of_one_job(
    steps: list[tuple[int, str]],
    stages: int,
    sources: int,
    partitions: int,
    routing: str,
    watermark: str,
    end_of_stream: str,
    seed: int,
) -> None:
    tables = events(400, partitions=sources, disorder_ms=7_200_000, seed=seed)
    options = {"routing": {"drain": routing, "watermark": watermark, "end_of_stream": end_of_stream}}
    with a_log() as log:
        write_events(log, tables)
        LocalJob(chain(stages, partitions), log, max_messages=70, **options).run_to_end()
        one = panes_of(log)
    with a_log() as log:
        write_events(log, tables)
        parts = chain(stages, partitions).split()
        assert [part.name for part in parts] == [f"chain stage {n + 1}" for n in range(stages)]
        jobs: dict[int, LocalJob] = {}

        def job(number: int) -> LocalJob:
            if number not in jobs:
                jobs[number] = LocalJob(parts[number], log, max_messages=70, **options)
            return jobs[number]

        for number, what in steps:
            number %= stages
            if what == "step":
                job(number).step()
            elif what == "stop":
                end(job(number), "stopped")
                del jobs[number]
            else:
                stopped = job(number)
                if stopped._planned() != stopped.offset:
                    stopped.crash(after=what)
                    del jobs[number]
        assert run_all([job(number) for number in range(stages)]) == ["finished"] * stages
        assert "late" not in log or not log.stream("late").to_pandas().size
        columns = ["key", "window_start", "n", "ids", "drained"]
        pd.testing.assert_frame_equal(
            panes_of(log)[columns].sort_values(columns[:2], ignore_index=True),
            one[columns].sort_values(columns[:2], ignore_index=True),
        )
        assert counts(one) == truth(tables)
        assert not one["drained"].any()


@quick
@given(
    stages=st.integers(2, 3),
    before=st.lists(st.integers(0, 2), max_size=12),
    order=st.permutations(range(3)),
    partitions=st.integers(1, 4),
    routing=routings,
    watermark=routings,
    ended=st.booleans(),
    seed=st.integers(0, 1_000),
)
def test_one_notification_drains_all_parts_and_the_next_version_goes_on_with_nothing_lost_or_doubled(
    stages: int,
    before: list[int],
    order: list[int],
    partitions: int,
    routing: str,
    watermark: str,
    ended: bool,
    seed: int,
) -> None:
    tables = events(400, partitions=2, disorder_ms=0, seed=seed)
    options = {"routing": {"drain": routing, "watermark": watermark}, "max_messages": 60}
    with a_log() as log:
        write_events(log, tables, end=ended)
        jobs = [LocalJob(part, log, run_id="monday", **options) for part in chain(stages, partitions).split()]
        for number in before:
            jobs[number % stages].step()
        write_notification(log.metadata, "monday")
        turns = [jobs[number] for number in order if number < stages]
        until_idle(*turns)
        early = panes_of(log)
        assert early["n"].sum() == min(sum(jobs[0].plan.positions["events"]), 400)
        statuses = []
        for job in turns:
            assert read_notifications(log.metadata).valid, "the others need it still"
            statuses.append(finish(job))
        assert set(statuses) <= {"drained", "finished"}
        assert read_notifications(log.metadata).valid == []
        for job in jobs[1:]:
            plan = job.deployment.plan
            (read,) = plan.inputs
            assert not count_unread(log, read.stream, by_partition(read, plan.tasks, job.plan))
            assert sum(job.recorder.open_rows().values()) == 0
        if not ended:
            log.stream("events").end()
        # Where a part has finished rather than drained, there is nothing of it to upgrade.
        all_drained = set(statuses) == {"drained"}
        upgraded = (
            chain(stages, partitions + 1, text_keys=False) if all_drained else chain(stages, partitions)
        ).split()
        again = run_all([LocalJob(part, log, run_id="tuesday", **options) for part in upgraded])
        assert again == ["finished"] * stages
        assert both(log) == truth(tables)


@quick
@given(
    before=st.lists(st.integers(0, 2), max_size=9),
    between=st.lists(st.integers(0, 2), max_size=6),
    routing=routings,
    watermark=routings,
    upgrade=st.booleans(),
    seed=st.integers(0, 1_000),
)
def test_parts_drained_one_after_the_other_lose_and_double_nothing(
    before: list[int], between: list[int], routing: str, watermark: str, upgrade: bool, seed: int
) -> None:
    tables = events(400, partitions=2, disorder_ms=0, seed=seed)
    options = {"routing": {"drain": routing, "watermark": watermark}, "max_messages": 60}
    with a_log() as log:
        write_events(log, tables, end=False)
        jobs = [LocalJob(part, log, run_id=f"run {n}", **options) for n, part in enumerate(chain(3).split())]
        for number in before:
            jobs[number].step()
        for number, job in enumerate(jobs):
            write_notification(log.metadata, f"run {number}")
            until_idle(job)
            assert finish(job) == "drained"
            for other in between:
                if other > number:
                    jobs[other].step()
            if number == 0 and sum(job.plan.positions["events"]):
                with pytest.raises(SplitConflict, match=r"'chain stage 1' begins anew, but 'chain stage 2'"):
                    LocalJob(chain(3).split()[0], log)
        assert read_notifications(log.metadata).valid == []
        early = panes_of(log)
        assert early["n"].sum() == sum(jobs[0].plan.positions["events"])
        log.stream("events").end()
        parts = chain(3, 4, text_keys=False).split() if upgrade else chain(3).split()
        assert run_all([LocalJob(part, log, **options) for part in parts]) == ["finished"] * 3
        assert both(log) == truth(tables)


@pytest.mark.parametrize("upgrade", [False, True])
@pytest.mark.parametrize("watermark", ["broadcast", "aggregate"])
def test_a_part_that_drains_alone_goes_on_behind_where_it_stopped_while_the_one_before_it_never_stops(
    log: StreamLog, upgrade: bool, watermark: str
) -> None:
    tables = events(600, partitions=3, disorder_ms=0)
    options = {"max_messages": 40, "routing": {"watermark": watermark, "end_of_stream": watermark}}
    write_events(log, tables, end=False)
    log.stream("events").end(1)
    first, last = (LocalJob(part, log, **options) for part in chain(2).split())
    for _ in range(9):
        first.step()
        last.step()
    write_notification(log.metadata, last.deployment.run_id)
    last.step()
    first.step()
    until_idle(last)
    assert finish(last) == "drained"
    assert panes_of(log)["drained"].any()
    until_idle(first)
    again = LocalJob(chain(2, total=upgrade).split()[1], log, **options)
    until_idle(first, again)
    assert both(log) != truth(tables)
    log.stream("events").end(0)
    log.stream("events").end(2)
    assert run_all([first, again]) == ["finished", "finished"]
    assert both(log) == truth(tables)
    assert sum(batch.summary["late_messages"] for batch in again.recorder.batches()) == 0


def test_the_drain_of_an_earlier_part_alone_is_no_end_of_time_for_the_next(log: StreamLog) -> None:
    write_events(log, events(300, partitions=2, disorder_ms=0), end=False)
    first, last = (LocalJob(part, log) for part in chain(2).split())
    until_idle(first, last)
    before = len(panes_of(log))
    write_notification(log.metadata, first.deployment.run_id)
    until_idle(first, last)
    assert finish(first) == "drained"
    assert len(panes_of(log)) == before and not panes_of(log)["drained"].any()
    assert last.status == "running"
    times = last.record.watermarks()["watermark"].dropna()
    assert (times < pd.Timestamp("2100-01-01", tz="UTC")).all() and MAX_TIMESTAMP not in times
    write_notification(log.metadata, last.deployment.run_id)
    until_idle(last)
    assert finish(last) == "drained"
    assert panes_of(log)["n"].sum() == 300


def test_a_part_that_starts_when_the_others_have_drained_hears_that_in_band(log: StreamLog) -> None:
    write_events(log, events(300, partitions=2, disorder_ms=0), end=False)
    first, last = chain(2).split()
    job = LocalJob(first, log, run_id="monday")
    until_idle(job)
    write_notification(log.metadata, "monday")
    until_idle(job)
    finish(job)
    assert read_notifications(log.metadata).valid == []
    late = LocalJob(last, log, run_id="monday")
    assert run_all([late]) == ["drained"]
    panes = panes_of(log)
    assert panes["n"].sum() == 300 and panes["drained"].any()
    log.stream("events").end()
    assert run_all([LocalJob(part, log) for part in chain(2, 5).split()]) == ["finished", "finished"]
    assert panes_of(log)["n"].sum() == 300


def mixed(partitions: int) -> Application:
    """A part in the middle that has a source of its own, and one that reads a broadcast stream beside another."""
    app = Application("mixed")
    keyed = app.input("events", event_time="at").partition_by("key", partitions=partitions, name="between-1")
    both = keyed.merge(app.input("more", event_time="at"))
    everywhere = both.filter("id < 0").broadcast(name="everywhere")
    last = both.partition_by("key", partitions=partitions + 1, name="between-2").merge(everywhere)
    last.window(tumbling("1h"), by="key").aggregate(n=("id", "count"), ids=("id", "sum")).send_to("panes")
    return app


@pytest.mark.filterwarnings("ignore:A drain was asked of the run")
@quick
@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 2), st.sampled_from(["step", "step", "step", "plan", "tasks", "commit", "stop", "drain"])
        ),
        max_size=25,
    ),
    together=st.booleans(),
    partitions=st.integers(1, 3),
    routing=routings,
    watermark=routings,
    end_of_stream=routings,
    seed=st.integers(0, 1_000),
)
def test_parts_that_are_drained_killed_and_deployed_again_at_any_moment_lose_and_double_nothing(
    steps: list[tuple[int, str]],
    together: bool,
    partitions: int,
    routing: str,
    watermark: str,
    end_of_stream: str,
    seed: int,
) -> None:
    tables = events(300, partitions=2, disorder_ms=0, seed=seed)
    more = [table.set_column(3, "id", pc.add(table["id"], 1_000)) for table in events(200, partitions=3, disorder_ms=0)]
    options = {"routing": {"drain": routing, "watermark": watermark, "end_of_stream": end_of_stream}}
    with a_log() as log:
        write_events(log, tables, end=False)
        log.stream("events").end(0)
        write_events(log, more[:partitions], "more", end=False)
        parts = mixed(partitions).split()
        jobs: dict[int, LocalJob] = {}
        days = dict.fromkeys(range(3), 0)

        def day(number: int) -> str:
            return f"day {days[0 if together else number]}" + ("" if together else f" of {number}")

        def job(number: int) -> LocalJob | None:
            """The job, deployed if it may be."""
            known = jobs.get(number)
            if known is not None and known.status in ("drained", "finished") and not known.step():
                finish(jobs.pop(number))
            if number not in jobs:
                with suppress(SplitConflict):
                    jobs[number] = LocalJob(parts[number], log, run_id=day(number), max_messages=50, **options)
            return jobs.get(number)

        for number, what in steps:
            current = job(number)
            if current is None:
                continue
            if what == "step":
                current.step()
            elif what == "drain":
                write_notification(log.metadata, current.deployment.run_id)
                days[0 if together else number] += 1
            elif what == "stop":
                end(jobs.pop(number), "stopped")
            elif current._planned() != current.offset:
                current.crash(after=what)
                del jobs[number]

        # In the end everybody is drained, upstream first, and what is left is read to its end by a last deployment.
        for _ in range(2):
            for number in range(3):
                current = job(number)
                if current is None:
                    continue
                write_notification(log.metadata, current.deployment.run_id)
                days[0 if together else number] += 1
                until_idle(*(jobs[other] for other in sorted(jobs)))
                for other in [other for other in jobs if jobs[other].status != "running"]:
                    finish(jobs.pop(other))
        for other in sorted(jobs):
            end(jobs.pop(other), "stopped")
        log.stream("events").end(1)
        log.stream("more").end()
        for attempt in range(3):
            last = [LocalJob(part, log, run_id=f"last {attempt}", **options) for part in parts]
            until_idle(*last)
            statuses = [finish(each) for each in last if each.status != "running"]
            if statuses == ["finished"] * 3:
                break
        assert statuses == ["finished"] * 3
        assert counts(panes_of(log)) == truth(tables) + truth(more[:partitions])


def test_a_drain_that_the_part_before_will_not_pass_on_ends_where_that_has_come_to(log: StreamLog) -> None:
    write_events(log, events(300, partitions=2, disorder_ms=0), end=False)
    first, last = (LocalJob(part, log, run_id="monday", max_messages=50) for part in chain(2).split())
    for _ in range(3):
        first.step()
        last.step()
    write_notification(log.metadata, "monday")
    until_idle(last)
    assert last.status == "running", "it waits for the markers of the part before"
    end(first, "failed")
    until_idle(last)
    assert finish(last) == "drained"
    first = LocalJob(chain(2).split()[0], log, run_id="tuesday", max_messages=50)
    last = LocalJob(chain(2).split()[1], log, run_id="tuesday", max_messages=50)
    log.stream("events").end()
    assert run_all([first, last]) == ["finished", "finished"]
    assert panes_of(log)["n"].sum() == 300


def test_a_rewind_is_for_parts_that_have_drained_together(log: StreamLog) -> None:
    tables = events(300, partitions=2, disorder_ms=0)
    write_events(log, tables, end=False)
    jobs = [LocalJob(part, log, run_id="monday") for part in chain(2).split()]
    until_idle(*jobs)
    manager = StartpointManager(log, "chain")
    for job in jobs:
        end(job, "stopped")
    manager.write(SSP("log", "events", 1), StartpointSpecific(100))
    with pytest.raises(SplitConflict, match="'chain stage 2', which reads 'between-1', goes on with what it heard"):
        LocalJob(chain(2).split()[0], log, on_rewind="keep")
    assert len(manager.all().fresh) == 1, "a start that is refused takes nothing"
    manager.delete_all()

    jobs = [LocalJob(part, log, run_id="tuesday") for part in reversed(chain(2).split())]
    write_notification(log.metadata, "tuesday")
    assert run_all(jobs) == ["drained", "drained"]
    manager.write(SSP("log", "events", 1), StartpointSpecific(100))
    log.stream("events").end()
    with pytest.warns(UserWarning, match="waits: no task of this job consumes that"):
        last = LocalJob(chain(2).split()[1], log)
    first = LocalJob(chain(2).split()[0], log, on_rewind="keep")
    assert run_all([first, last]) == ["finished", "finished"]
    assert manager.all().fresh == () and manager.fan_outs() == ((), ())
    again = tables[1].slice(100)
    assert counts(panes_of(log)) == truth(tables) + truth([again])
    assert sum(batch.summary["late_messages"] for batch in last.recorder.batches()) == 0


def test_parts_that_have_finished_go_on_behind_a_rewind(log: StreamLog) -> None:
    tables = events(300, partitions=2, disorder_ms=0)
    write_events(log, tables)
    assert run_all([LocalJob(part, log) for part in chain(3).split()]) == ["finished"] * 3
    StartpointManager(log, "chain").write(SSP("log", "events", 0), StartpointSpecific(50))
    assert run_all([LocalJob(chain(3).split()[0], log, on_rewind="keep")]) == ["finished"]
    assert run_all([LocalJob(chain(3).split()[1], log, max_messages=3)]) == ["finished"]
    assert run_all([LocalJob(part, log, max_messages=3) for part in chain(3).split()]) == ["finished"] * 3
    assert counts(panes_of(log)) == truth(tables) + truth([tables[0].slice(50)])


def test_a_changed_part_is_refused_without_a_drain(log: StreamLog) -> None:
    write_events(log, events(300, partitions=2, disorder_ms=0), end=False)
    first, last = (LocalJob(part, log) for part in chain(2).split())
    until_idle(first, last)
    end(first, "stopped")
    end(last, "stopped")
    with pytest.raises(IncompatibleCheckpoint, match="chain stage 2"):
        LocalJob(chain(2, total=True).split()[1], log)


def test_split_and_whole_do_not_take_over_from_each_other(log: StreamLog) -> None:
    write_events(log, events(100, partitions=2, disorder_ms=0))
    end(LocalJob(chain(2), log), "stopped")
    with pytest.raises(SplitConflict, match="ran on this log as 'chain'"):
        LocalJob(chain(2).split()[0], log)
    other = StreamLog(log.directory / "other")
    write_events(other, events(100, partitions=2, disorder_ms=0))
    end(LocalJob(chain(2).split()[1], other), "stopped")
    with pytest.raises(SplitConflict, match="ran on this log as 'chain stage 2'"):
        LocalJob(chain(2), other)


def test_a_part_is_closed_and_a_run_id_is_for_one_application(log: StreamLog) -> None:
    part = chain(2).split()[0]
    with pytest.raises(SplitConflict, match="Declare all operators first"):
        part.input("more")
    write_events(log, events(100, partitions=2, disorder_ms=0))
    end(LocalJob(part, log, run_id="monday"), "stopped")
    with pytest.raises(InvalidOption, match="run id 'monday' is that of a run of 'chain'"):
        LocalJob(hourly(2), log, run_id="monday")


def test_late_rows_are_those_of_one_job(log: StreamLog) -> None:
    tables = events(2_000, partitions=3, disorder_ms=7_200_000)
    write_events(log, tables)
    jobs = [LocalJob(part, log, max_messages=200) for part in hourly(4, out_of_orderness=1_800_000).split()]
    assert run_all(jobs) == ["finished", "finished"]
    assert assert_hourly_is_true(log, tables) > 0
    assert jobs[1].record.totals()["input_messages"] == 2_000, "what comes from another job is its input"


def test_the_command_line_knows_the_jobs_of_a_split_application(
    log: StreamLog, capsys: pytest.CaptureFixture[str]
) -> None:
    write_events(log, events(100, partitions=2, disorder_ms=0))
    jobs = [LocalJob(part, log, run_id="r") for part in hourly(2).split()]
    run_all(jobs)
    place = str(log.directory)
    assert main(["startpoint", "set", place, "hourly", "events:0", "--offset", "20"]) == 0
    assert "Replayed: 30 messages." in capsys.readouterr().out
    assert [str(request) for request in StartpointManager(log, "hourly").all().fresh] == ["offset 20 for log/events[0]"]
