"""Drain: whatever is in flight is finished, nothing twice, nothing lost, and the next version goes on from there."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.jobs import EPOCH_MS, events, hourly, write_events
from tests.support.local import LocalJob
from workbench.drain import read_notifications, write_notification
from workbench.errors import IncompatibleCheckpoint, InvalidGraph
from workbench.graph import Application
from workbench.messages import DrainMessage, EndOfStreamMessage
from workbench.reconciliation import aggregate_partition
from workbench.systems.log import StreamLog
from workbench.windows import tumbling

quick = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
routings = st.sampled_from(["broadcast", "aggregate"])


@pytest.fixture
def log(tmp_path: Path) -> StreamLog:
    return StreamLog(tmp_path / "log")


def chain(stages: int, partitions: int, *, name: str = "chain", **columns: str) -> Application:
    """`stages` stages, partitioned by key between them; the last counts rows per hour and key."""
    app = Application(name)
    stream = app.input("events", event_time="at")
    for stage in range(1, stages):
        stream = stream.partition_by("key", partitions=partitions, name=f"between-{stage}")
    window = stream.window(tumbling("1h"), **({"by": "key"} if stages == 1 else {}))
    window.aggregate(n=("id", "count"), **columns).send_to("panes")
    return app


def drain(job: LocalJob, *, crashes: frozenset[int] = frozenset()) -> int:
    """Ask for a drain and run until nothing is left; how many batches it took."""
    write_notification(job.log.metadata, job.deployment.run_id)
    before = job.plan.batch
    return job.run_to_end(crashes).plan.batch - before


def panes_of(log: StreamLog) -> pd.DataFrame:
    panes = log.stream("panes").to_pandas()
    return panes if len(panes) else pd.DataFrame(columns=["key", "window_start", "window_end", "n", "drained"])


@quick
@given(
    stages=st.integers(1, 4),
    sources=st.integers(1, 4),
    partitions=st.integers(1, 5),
    before=st.integers(0, 6),
    routing=routings,
    watermark=routings,
    crashes=st.frozensets(st.integers(0, 9)),
    ended=st.booleans(),
    seed=st.integers(0, 1_000),
)
def test_every_admitted_message_is_in_one_pane_of_the_old_version_and_every_other_in_one_of_the_new(
    stages: int,
    sources: int,
    partitions: int,
    before: int,
    routing: str,
    watermark: str,
    crashes: frozenset[int],
    ended: bool,
    seed: int,
) -> None:
    tables = events(600, partitions=sources, disorder_ms=0, seed=seed)
    with tempfile.TemporaryDirectory() as directory:
        log = StreamLog(directory)
        write_events(log, tables, end=ended)
        options = {"routing": {"drain": routing, "watermark": watermark}}
        old = LocalJob(chain(stages, partitions), log, max_messages=60, **options)
        for _ in range(before):
            old.step()
        batches = drain(old, crashes=crashes)
        assert old.status in ("drained", "finished")
        if old.status == "drained":
            assert batches <= (stages if routing == watermark == "broadcast" else 2 * stages - 1)
        admitted = sum(old.plan.positions["events"])
        early = panes_of(log)
        rows = min(admitted, 600)
        assert early["n"].sum() == rows
        for stage in range(1, stages):
            stream = log.stream(f"between-{stage}")
            assert old.plan.positions[f"between-{stage}"] == stream.heads(), "nothing is left between the stages"
        assert sum(old.recorder.open_rows().values()) == 0
        assert read_notifications(log.metadata).valid == []

        if not ended:
            log.stream("events").end()
        new = LocalJob(chain(stages, partitions), log, **options)
        new.run_to_end()
        assert new.status == "finished"
        panes = panes_of(log)
        assert panes["n"].sum() == 600
        on_time = panes[~panes["drained"].astype(bool)]
        assert stages == 1 or not on_time.duplicated(["key", "window_start"]).any()
        truth = pd.concat([table.to_pandas() for table in tables])
        truth["hour"] = truth["at"].dt.floor("h")
        expected = truth.groupby(["key", "hour"]).size()
        found = panes.assign(hour=pd.to_datetime(panes["window_start"], utc=True)).groupby(["key", "hour"])["n"].sum()
        assert found.to_dict() == expected.to_dict()


def test_a_drain_asked_for_before_the_start_takes_nothing_from_the_sources(log: StreamLog) -> None:
    write_events(log, events(300, partitions=2, disorder_ms=0), end=False)
    write_notification(log.metadata, "monday")
    job = LocalJob(chain(2, 3), log, run_id="monday")
    job.run_to_end()
    assert job.status == "drained"
    assert job.plan.positions["events"] == [0, 0]
    assert log.stream("panes").heads() == [0, 0, 0]


def test_a_drain_for_another_run_and_one_that_nobody_can_read_are_left_alone_and_shown(log: StreamLog) -> None:
    write_events(log, events(300, partitions=2, disorder_ms=0), end=False)
    write_notification(log.metadata, "some other run")
    log.metadata.put("samza-drain-v1", "broken", b"{")
    job = LocalJob(chain(2, 3), log, max_messages=100)
    list(job.batches())
    assert job.status == "running"
    assert sum(job.plan.positions["events"]) == 300
    shown = job.record.notifications()
    assert sorted(shown["state"].str.split(":").str[0]) == ["ignored", "skipped"]
    job.release()


def test_two_notifications_are_one_drain_and_both_are_gone_afterwards(log: StreamLog) -> None:
    write_events(log, events(300, partitions=2, disorder_ms=0), end=False)
    job = LocalJob(chain(2, 3), log, max_messages=100)
    job.step()
    write_notification(log.metadata, job.deployment.run_id)
    drain(job)
    assert job.status == "drained"
    assert read_notifications(log.metadata).valid == []
    for partition in range(3):
        frame = log.stream("between-1").to_pandas(partition, control=True)
        assert (frame["_type"] == "drain").sum() <= 1 + 2, "nobody said it twice"


def test_inputs_that_have_ended_are_not_asked_to_drain_and_stay_ended_in_the_next_run(log: StreamLog) -> None:
    tables = events(300, partitions=3, disorder_ms=0)
    write_events(log, tables, end=False)
    log.stream("events").end(1)
    job = LocalJob(chain(3, 2), log)
    list(job.batches())
    drain(job)
    assert job.status == "drained"
    ends = [
        message
        for entry in log.stream("between-1").read(0)
        if hasattr(entry, "run")
        for message in entry.run.messages()
        if isinstance(message, EndOfStreamMessage | DrainMessage)
    ]
    assert {(type(message).__name__, message.task_name) for message in ends if message.task_name} >= {
        ("EndOfStreamMessage", "Partition 1")
    }
    assert ("DrainMessage", "Partition 1") not in {(type(m).__name__, m.task_name) for m in ends}
    log.stream("events").end(0)
    log.stream("events").end(2)
    again = LocalJob(chain(3, 2), log).run_to_end()
    assert again.status == "finished"
    assert panes_of(log)["n"].sum() == 300


def test_what_comes_after_a_drain_is_not_late_however_old_it_is(log: StreamLog) -> None:
    tables = events(300, partitions=1, disorder_ms=0)
    write_events(log, tables, end=False)
    job = LocalJob(hourly(2), log)
    list(job.batches())
    drain(job)
    log.stream("events").append(tables[0].slice(0, 50), 0, "at")
    log.stream("events").end()
    again = LocalJob(hourly(2), log).run_to_end()
    assert again.recorder.runs()[-1].status == "running"
    assert sum(batch.summary["late_messages"] for batch in again.recorder.batches()) == 0
    assert panes_of(log)["n"].sum() == 350


def test_another_shape_is_refused_without_a_drain_and_starts_cleanly_after_one(log: StreamLog) -> None:
    tables = events(400, partitions=2, disorder_ms=0)
    write_events(log, tables, end=False)
    old = LocalJob(chain(2, 3), log, max_messages=150)
    old.step()
    old.release()
    with pytest.raises(IncompatibleCheckpoint, match=r"Drain it with the version that was deployed before"):
        LocalJob(chain(2, 3, total=("value", "sum")), log)
    with pytest.raises(InvalidGraph, match=r"asks for 5 partitions.* has 3 .* drain that first"):
        LocalJob(chain(2, 5), log)
    old = LocalJob(chain(2, 3), log, max_messages=150)
    drain(old)
    assert old.status == "drained"
    admitted = panes_of(log)["n"].sum()
    assert 0 < admitted < 400
    log.stream("events").end()
    upgraded = Application("chain")
    stream = upgraded.input("events", event_time="at").map(
        lambda f: f.assign(key=f["key"].str[4:].astype("int64")), name="keys are numbers"
    )
    stream = stream.partition_by("key", partitions=5, name="between-1")
    stream.window(tumbling("1h")).aggregate(n=("id", "count")).send_to("new panes")
    again = LocalJob(upgraded, log).run_to_end()
    assert again.status == "finished"
    assert log.stream("between-1").partitions == 5
    assert log.stream("new panes").to_pandas()["n"].sum() == 400 - admitted


def test_a_pane_that_time_has_closed_does_not_say_that_it_was_the_drain(log: StreamLog) -> None:
    tables = events(300, partitions=1, disorder_ms=0)
    write_events(log, tables, end=False)
    job = LocalJob(hourly(2), log)
    list(job.batches())
    closed_by_time = panes_of(log)
    assert len(closed_by_time) and not closed_by_time["drained"].any()
    drain(job)
    panes = panes_of(log)
    assert panes["drained"].sum() == len(panes) - len(closed_by_time) > 0
    last_hour = pd.Timestamp(EPOCH_MS + 86_400_000 - 3_600_000, unit="ms", tz="UTC")
    assert (pd.to_datetime(panes.loc[panes["drained"], "window_start"], utc=True) == last_hour).all()


def test_who_owes_what_is_told_while_a_drain_goes_on_and_when_each_was_done_afterwards(log: StreamLog) -> None:
    write_events(log, events(400, partitions=2, disorder_ms=0), end=False)
    job = LocalJob(chain(3, 4), log)
    list(job.batches())
    assert job.record.drains().empty and job.record.explain_drain() == []
    write_notification(log.metadata, job.deployment.run_id)
    job.step()
    drains = job.record.drains()
    assert set(drains.loc[~drains["pending"], "stream"]) == {"events"}
    sentences = job.record.explain_drain()
    assert sentences[0].startswith("Partition 0 in stage 2: between-1 has not heard the drain of 'between-1' from")
    owner = aggregate_partition("between-1", 4)
    of_owner = drains["partition"] == owner
    assert (drains[(drains["stream"] == "between-1") & of_owner]["owed_by"] == "Partition 0, Partition 1").all()
    assert (drains[(drains["stream"] == "between-1") & ~of_owner]["owed_by"] == f"Partition {owner}").all()
    job.run_to_end()
    drains = job.record.drains()
    assert not drains["pending"].any() and drains["drained_at"].notna().all()
    assert (drains["heard"] == drains["expected"]).all()
    assert (drains["seen"] >= drains["requested"]).all()
    by_stage = drains.groupby("stage", sort=False)["batch"].max().tolist()
    assert by_stage == sorted(by_stage) and len(set(by_stage)) == 3, "stage by stage"
    assert job.record.explain_drain() == []
