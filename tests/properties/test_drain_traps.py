"""Between a drain and the next version: crashes, refusals, ways back. Each was once a message lost, doubled or stuck."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.properties.test_drains import chain, drain, panes_of
from tests.support.jobs import EPOCH_MS, events, write_events
from tests.support.local import LocalJob
from workbench.drain import read_notifications, write_notification
from workbench.engine.left import ABANDONED
from workbench.errors import IncompatibleCheckpoint, InvalidGraph, UnresolvableStartpoint
from workbench.graph import Application
from workbench.messages import WatermarkMessage
from workbench.names import SSP
from workbench.startpoints import StartpointManager, StartpointOldest, StartpointSpecific
from workbench.systems.log import StreamLog
from workbench.windows import tumbling


@pytest.fixture
def log(tmp_path: Path) -> StreamLog:
    log = StreamLog(tmp_path / "log")
    write_events(log, events(600, partitions=2, disorder_ms=0), end=False)
    return log


def ssp(partition: int) -> SSP:
    return SSP("log", "events", partition)


def abandon(job: LocalJob) -> None:
    job.recorder.end_run(job.deployment.run_id, 1, ABANDONED, None)
    job.release()


def single_stage(name: str = "chain") -> Application:
    app = Application(name)
    app.input("events", event_time="at").window(tumbling("1h"), by="key").aggregate(n=("id", "count")).send_to("panes")
    return app


@pytest.mark.parametrize("crash", ["plan", "tasks", "commit"])
def test_an_upgrade_that_dies_in_its_first_batch_goes_on_where_the_old_version_was(log: StreamLog, crash: str) -> None:
    old = LocalJob(chain(2, 3), log, max_messages=100)
    old.step()
    drain(old)
    log.stream("events").end()
    LocalJob(chain(2, 5), log, max_messages=100).crash(crash)
    LocalJob(chain(2, 5), log, max_messages=100).run_to_end()
    assert panes_of(log)["n"].sum() == 600


def test_an_upgrade_that_is_abandoned_before_its_first_commit_takes_nothing_with_it(log: StreamLog) -> None:
    old = LocalJob(chain(2, 3), log)
    list(old.batches())
    drain(old)
    log.stream("events").end()
    failing = LocalJob(chain(2, 5), log)
    failing.crash("plan")
    abandon(failing)
    assert LocalJob(chain(2, 4), log).run_to_end().status == "finished"
    assert panes_of(log)["n"].sum() == 600


def test_a_death_between_the_new_checkpoint_and_the_new_streams_is_mended(
    log: StreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = LocalJob(chain(2, 3), log)
    list(old.batches())
    drain(old)
    log.stream("events").end()

    def die(*arguments: object) -> int:
        raise OSError("killed here")

    with monkeypatch.context() as patched:
        patched.setattr(StreamLog, "sweep", die)
        with pytest.raises(OSError, match="killed here"):
            LocalJob(chain(2, 5), log)
    LocalJob(chain(2, 5), log).run_to_end()
    assert panes_of(log)["n"].sum() == 600


def test_what_is_injected_behind_a_drain_does_not_stop_the_next_run(log: StreamLog) -> None:
    old = LocalJob(chain(2, 3), log, max_messages=200)
    old.step()
    drain(old)
    log.stream("events").end()
    log.stream("between-1").inject(WatermarkMessage(EPOCH_MS))
    LocalJob(chain(2, 3), log).run_to_end()
    assert panes_of(log)["n"].sum() == 600


def test_startpoints_wait_until_a_drain_that_was_begun_is_done(log: StreamLog) -> None:
    old = LocalJob(chain(2, 3), log, max_messages=100)
    old.step()
    write_notification(log.metadata, old.deployment.run_id)
    old.step()
    admitted = old.plan.positions["events"]
    old.release()
    StartpointManager(log, "chain").write(ssp(0), StartpointSpecific(admitted[0] + 5))
    with pytest.warns(UserWarning, match="goes on with its drain first"):
        again = LocalJob(chain(2, 3), log, max_messages=100)
    again.run_to_end()
    assert again.status == "drained" and again.plan.positions["events"] == admitted
    log.stream("events").end()
    LocalJob(chain(2, 3), log).run_to_end()
    assert panes_of(log)["n"].sum() == 600 - 5


def test_an_end_is_not_said_before_the_rows_that_an_upgrade_reads_again(log: StreamLog) -> None:
    log.stream("events").end(1)
    old = LocalJob(chain(2, 3), log)
    list(old.batches())
    drain(old)
    before = panes_of(log)["n"].sum()
    StartpointManager(log, "chain").write(ssp(1), StartpointOldest())
    log.stream("events").end(0)
    LocalJob(chain(2, 5), log, max_messages=20, on_rewind="reset").run_to_end()
    assert panes_of(log)["n"].sum() == before + 300


def test_a_version_may_leave_a_stage_out_and_the_next_may_have_it_again(log: StreamLog) -> None:
    first = LocalJob(chain(2, 3), log, max_messages=200)
    first.step()
    drain(first)
    second = LocalJob(single_stage(), log, max_messages=100)
    second.step()
    drain(second)
    assert second.status == "drained"
    log.stream("events").end()
    LocalJob(chain(2, 5), log).run_to_end()
    assert panes_of(log)["n"].sum() == 600


def test_an_upgrade_that_was_refused_leaves_the_way_back_and_on(log: StreamLog) -> None:
    old = LocalJob(chain(2, 3), log, max_messages=200)
    old.step()
    drain(old)
    StartpointManager(log, "chain").write(ssp(0), StartpointSpecific(10**6))
    with pytest.raises(UnresolvableStartpoint):
        LocalJob(chain(2, 5), log)
    StartpointManager(log, "chain").delete(ssp(0))
    LocalJob(chain(2, 3), log).release()
    log.stream("events").end()
    LocalJob(chain(2, 7), log).run_to_end()
    assert panes_of(log)["n"].sum() == 600


@pytest.mark.parametrize("partitions", [3, 5])
def test_what_has_finished_or_never_begun_may_change_without_a_drain(log: StreamLog, partitions: int) -> None:
    LocalJob(chain(2, 4), log).release()
    log.stream("events").end()
    LocalJob(chain(2, 3), log).run_to_end()
    assert LocalJob(chain(2, partitions, total=("value", "sum")), log).run_to_end().status == "finished"
    assert panes_of(log)["n"].sum() == 600


def test_a_drain_asked_of_a_run_that_died_at_once_is_taken_up_under_its_id_and_told_under_another(
    log: StreamLog,
) -> None:
    monday = LocalJob(chain(2, 3), log, max_messages=200, run_id="monday")
    monday.step()
    drain(monday)
    tuesday = LocalJob(chain(2, 3), log, run_id="tuesday")
    write_notification(log.metadata, "tuesday")
    tuesday.release()
    with pytest.warns(UserWarning, match="A drain was asked of the run tuesday, which ended before"):
        LocalJob(chain(2, 3), log, run_id="wednesday").release()
    assert [run.status for run in tuesday.recorder.runs()] == ["drained", "lost", "running"]
    before = tuesday.plan.positions["events"]
    again = LocalJob(chain(2, 3), log, run_id="tuesday").run_to_end()
    assert again.status == "drained" and again.plan.positions["events"] == before, "nothing was taken from the sources"
    assert read_notifications(log.metadata).valid == []


@pytest.mark.parametrize("end_of_stream", ["broadcast", "aggregate"])
@pytest.mark.parametrize("routing", ["broadcast", "aggregate"])
def test_a_drain_is_heard_beside_ends_however_both_are_routed(log: StreamLog, end_of_stream: str, routing: str) -> None:
    log.stream("events").end(0)
    job = LocalJob(chain(2, 2), log, routing={"end_of_stream": end_of_stream, "drain": routing})
    list(job.batches())
    drain(job)
    assert job.status == "drained"


def test_another_routing_and_another_application_are_refused_over_a_checkpoint(log: StreamLog, tmp_path: Path) -> None:
    job = LocalJob(chain(2, 3), log, checkpoint=tmp_path / "own", max_messages=100)
    job.step()
    job.release()
    with pytest.raises(IncompatibleCheckpoint, match=r"routing of drain: was aggregate, is broadcast"):
        LocalJob(chain(2, 3), log, checkpoint=tmp_path / "own", routing={"drain": "broadcast"})
    with pytest.raises(IncompatibleCheckpoint, match=r"is that of the application 'chain', not of 'other'"):
        LocalJob(single_stage("other"), log, checkpoint=tmp_path / "own")


def test_a_stream_of_others_is_not_written_to_between_stages(log: StreamLog) -> None:
    write_events(log, events(20, partitions=1, disorder_ms=0), "between-1")
    with pytest.raises(InvalidGraph, match="holds messages that this application has not written"):
        LocalJob(chain(2, 1), log)


def test_a_table_is_what_it_was_in_an_upgraded_application(log: StreamLog) -> None:
    def version(partitions: int) -> Application:
        app = Application("named")
        keys = app.input("keys", bootstrap=True).partition_by("key", partitions=partitions, name="by key")
        flow = app.input("events", event_time="at").partition_by("key", partitions=partitions, name="keyed")
        flow.join(keys.table("key"), on="key", how="left").send_to("out")
        return app

    names = pa.table({"key": [f"key-{key}" for key in range(7)], "name": [f"name {key}" for key in range(7)]})
    log.create("keys", 1).append(names)
    log.stream("keys").end()
    old = LocalJob(version(2), log, max_messages=60)
    old.step()
    old.step()
    drain(old)
    assert 0 < sum(old.plan.positions["events"]) < 600
    log.stream("events").end()
    assert LocalJob(version(3), log).run_to_end().status == "finished"
    out = log.stream("out").to_pandas()
    assert len(out) == 600 and out["name"].notna().all()
