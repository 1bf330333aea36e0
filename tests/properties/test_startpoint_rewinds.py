"""What startpoints do to results: a rewind that keeps what tasks hold, one that resets it, and a move ahead."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.jobs import EPOCH_MS, assert_hourly_is_true, events, hourly, hourly_truth, write_events
from tests.support.local import LocalJob
from tests.support.startpoint_jobs import ssp, until_idle
from workbench.errors import InvalidOption
from workbench.startpoints import StartpointManager, StartpointOldest, StartpointSpecific, StartpointUpcoming
from workbench.systems.log import StreamLog

ROWS = 240


@pytest.fixture
def log(tmp_path: Path) -> StreamLog:
    return StreamLog(tmp_path / "log")


def panes(log: StreamLog, since: list[int] | None = None) -> pd.DataFrame:
    """The panes behind the given heads, in the columns and the order of `hourly_truth`."""
    found = log.stream("panes").to_pandas(position=True)
    if found.empty:
        return hourly_truth(pd.DataFrame({"key": [], "value": [], "id": [], "at": []}))
    first = found["_partition"].map(dict(enumerate(since or [0] * log.stream("panes").partitions)))
    found = found[found["_offset"] >= first].sort_values(["window_start", "key"], ignore_index=True)
    ours = pd.DataFrame({name: found[name].to_numpy() for name in ("key", "n", "total", "p95", "ids")})
    ours.insert(1, "window_start", pd.to_datetime(found["window_start"], utc=True).dt.tz_localize(None))
    return ours


def assert_panes(found: pd.DataFrame, rows: pd.DataFrame) -> None:
    """One pane for each key and hour of the rows, with what they say."""
    if rows.empty:
        assert found.empty
    else:
        pd.testing.assert_frame_equal(found, hourly_truth(rows), check_dtype=False, rtol=1e-9)


def without_windows(rows: pd.DataFrame, emitted: pd.DataFrame) -> pd.DataFrame:
    """The rows that belong to no window that was emitted."""
    windows = set(zip(emitted["key"], pd.to_datetime(emitted["window_start"]), strict=True))
    hours = pd.to_datetime(rows["at"], utc=True).dt.tz_localize(None).dt.floor("h")
    return rows[[(key, hour) not in windows for key, hour in zip(rows["key"], hours, strict=True)]]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    sources=st.integers(1, 3),
    partitions=st.integers(1, 4),
    steps=st.integers(1, 8),
    moves=st.dictionaries(st.integers(0, 2), st.floats(0, 1), min_size=1),
    on_rewind=st.sampled_from(["keep", "reset"]),
    crash=st.sampled_from(["", "plan", "tasks", "commit"]),
    seed=st.integers(0, 1_000),
)
def test_a_rewind_counts_again_what_comes_again_and_does_to_the_rest_what_was_chosen(
    sources: int,
    partitions: int,
    steps: int,
    moves: dict[int, float],
    on_rewind: str,
    crash: str,
    seed: int,
) -> None:
    tables = [table.to_pandas() for table in events(ROWS, partitions=sources, disorder_ms=0, seed=seed)]
    with tempfile.TemporaryDirectory() as directory:
        log = StreamLog(directory)
        write_events(log, [pa.Table.from_pandas(table) for table in tables])
        before = LocalJob(hourly(partitions), log, max_messages=50)
        for _ in range(steps):
            before.step()
        before.release()
        read, emitted, since = before.plan.positions["events"], panes(log), log.stream("panes").heads()

        begins = list(read)
        for partition, fraction in moves.items():
            if partition < sources:
                begins[partition] = int(fraction * len(tables[partition]))
                StartpointManager(log, "hourly").write(ssp(partition), StartpointSpecific(begins[partition]))
        goes_back = any(begin < position for begin, position in zip(begins, read, strict=True))
        job = LocalJob(hourly(partitions), log, max_messages=50, on_rewind=on_rewind if goes_back else None)
        if crash and begins != read:
            job.crash(crash)
            job = LocalJob(hourly(partitions), log, max_messages=50, on_rewind=on_rewind)
        job.run_to_end()

        to_come = pd.concat([table.iloc[begin:] for table, begin in zip(tables, begins, strict=True)])
        if not (goes_back and on_rewind == "reset"):
            held = pd.concat([table.iloc[:position] for table, position in zip(tables, read, strict=True)])
            to_come = pd.concat([without_windows(held, emitted), to_come])
        assert_panes(panes(log, since), to_come)
        assert log.stream("late").heads() == [0] * log.stream("late").partitions
        assert job.status == "finished", "those that had ended have said so again"
        assert job.plan.generation == (1 if goes_back else 0)


@pytest.mark.parametrize("routing", ["broadcast", "aggregate"])
def test_a_rewind_of_everything_that_resets_repeats_the_whole_result(log: StreamLog, routing: str) -> None:
    tables = events(600, partitions=3, disorder_ms=3_600_000)
    write_events(log, tables)
    options = {"max_messages": 150, "routing": {"watermark": routing, "end_of_stream": routing}}
    job = LocalJob(hourly(2, out_of_orderness=3_600_000), log, **options)
    for _ in range(3):
        job.step()
    job.release()
    since = log.stream("panes").heads()
    for partition in range(3):
        StartpointManager(log, "hourly").write(ssp(partition), StartpointOldest())
    LocalJob(hourly(2, out_of_orderness=3_600_000), log, on_rewind="reset", **options).run_to_end()
    assert_panes(panes(log, since), pa.concat_tables(tables).to_pandas())


def test_rewinds_may_follow_each_other(log: StreamLog) -> None:
    tables = events(300, partitions=2, disorder_ms=0)
    write_events(log, tables)
    LocalJob(hourly(3), log, max_messages=80).run_to_end()
    assert_hourly_is_true(log, tables)
    for generation, (partition, offset) in enumerate([(1, 100), (0, 20), (1, 0)], start=1):
        since = log.stream("panes").heads()
        StartpointManager(log, "hourly").write(ssp(partition), StartpointSpecific(offset))
        job = LocalJob(hourly(3), log, max_messages=80, on_rewind="keep").run_to_end()
        assert job.plan.generation == generation
        assert_panes(panes(log, since), tables[partition].slice(offset).to_pandas())


def test_an_intermediate_stream_may_be_rewound_alone(log: StreamLog) -> None:
    """What the second stage held is dropped and made again from the stream between the stages; the sources stay."""
    tables = events(300, partitions=2, disorder_ms=0)
    write_events(log, tables)
    LocalJob(hourly(3), log, max_messages=80).run_to_end()
    since, between = log.stream("panes").heads(), log.stream("hourly.key").heads()
    for partition in range(3):
        StartpointManager(log, "hourly").write(ssp(partition, "hourly.key"), StartpointOldest())
    job = LocalJob(hourly(3), log, max_messages=80, on_rewind="reset").run_to_end()
    assert_panes(panes(log, since), pa.concat_tables(tables).to_pandas())
    added = [
        entry
        for partition, head in enumerate(between)
        for entry in log.stream("hourly.key").read(partition, head)
        if not hasattr(entry, "run")
    ]
    assert added == [], "the first stage has sent nothing but its ends, again"
    assert job.status == "finished"


def row(hour: int) -> pa.Table:
    return pa.table(
        {
            "at": pa.array([EPOCH_MS + hour * 3_600_000], pa.timestamp("ms", "UTC")),
            "key": ["key-0"],
            "value": [1.0],
            "id": pa.array([10_000 + hour], pa.int64()),
        }
    )


def test_a_move_ahead_keeps_the_time_so_that_what_is_old_is_late(log: StreamLog) -> None:
    tables = events(200, partitions=2, disorder_ms=0)
    write_events(log, tables, end=False)
    until_idle(LocalJob(hourly(2), log)).release()
    reached = _watermarks(log)
    log.stream("events").append(row(30), 0, "at")
    StartpointManager(log, "hourly").write(ssp(0), StartpointUpcoming())
    job = LocalJob(hourly(2), log)
    for partition in (0, 1):
        log.stream("events").append(row(0), partition, "at")
    until_idle(job)
    assert job.plan.generation == 0
    assert _watermarks(log) == reached, "what was skipped has moved no watermark, and none has gone back"
    assert log.stream("late").to_pandas()["id"].tolist() == [10_000, 10_000]


def test_a_rewind_begins_time_anew_so_that_nothing_old_is_late(log: StreamLog) -> None:
    tables = events(200, partitions=2, disorder_ms=0)
    write_events(log, tables, end=False)
    until_idle(LocalJob(hourly(2), log)).release()
    assert None not in _watermarks(log)
    StartpointManager(log, "hourly").write(ssp(0), StartpointSpecific(90))
    job = LocalJob(hourly(2), log, on_rewind="keep")
    for partition in (0, 1):
        log.stream("events").append(row(0), partition, "at")
    job.step()
    assert job.plan.generation == 1
    until_idle(job)
    log.stream("events").end()
    job.run_to_end()
    assert log.stream("late").heads() == [0, 0]
    assert job.record.watermarks().groupby(["task", "stream"])["state"].last().eq("finished").all()


def _watermarks(log: StreamLog) -> list[int | None]:
    """The source watermarks of both tasks, milliseconds."""
    from workbench.engine.record import open_record

    shown = open_record(log, "hourly").watermarks().query("stream == 'events'").groupby("task")["watermark"].last()
    return [None if pd.isna(time) else int(time.value // 1_000_000) for time in shown]


def test_a_choice_that_is_none_is_refused_before_anything_is_taken(log: StreamLog) -> None:
    write_events(log, events(50, partitions=1, disorder_ms=0))
    LocalJob(hourly(1), log).run_to_end()
    StartpointManager(log, "hourly").write(ssp(0), StartpointOldest())
    with pytest.raises(InvalidOption, match=r"on_rewind.*'keep'.*'reset'"):
        LocalJob(hourly(1), log, on_rewind="forget")
    assert len(StartpointManager(log, "hourly").all().fresh) == 1


def test_a_finished_partition_that_is_sent_to_its_head_does_not_hold_up_a_rewind_of_another(log: StreamLog) -> None:
    tables = events(200, partitions=2, disorder_ms=0)
    write_events(log, tables)
    LocalJob(hourly(2), log).run_to_end()
    since = log.stream("panes").heads()
    StartpointManager(log, "hourly").write(ssp(0), StartpointUpcoming())
    StartpointManager(log, "hourly").write(ssp(1), StartpointSpecific(40))
    job = LocalJob(hourly(2), log, on_rewind="keep").run_to_end()
    assert job.status == "finished"
    assert_panes(panes(log, since), tables[1].slice(40).to_pandas())


@pytest.mark.parametrize("rewound", [False, True], ids=["alone", "beside a rewind"])
def test_a_partition_whose_end_is_skipped_has_ended(log: StreamLog, rewound: bool) -> None:
    tables = events(200, partitions=2, disorder_ms=0)
    write_events(log, tables)
    before = LocalJob(hourly(2), log, max_messages=60)
    before.step()
    before.release()
    StartpointManager(log, "hourly").write(ssp(0), StartpointUpcoming())
    if rewound:
        StartpointManager(log, "hourly").write(ssp(1), StartpointOldest())
    job = LocalJob(hourly(2), log, on_rewind="reset" if rewound else None).run_to_end()
    assert job.status == "finished"
    read = [] if rewound else [tables[0].slice(0, 30)]
    assert_panes(panes(log), pa.concat_tables([*read, tables[1]]).to_pandas())
