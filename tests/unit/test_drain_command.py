"""`workbench drain` beside a job that is stepped by hand: each time the command sleeps, the job does something."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.jobs import events, hourly, write_events
from tests.support.local import LocalJob
from workbench.commands.drain import add_to, drain
from workbench.drain import read_notifications, write_notification
from workbench.errors import NotRunning, UnknownApplication
from workbench.errors.drain import NotDrainable
from workbench.systems.log import StreamLog


@pytest.fixture
def log(tmp_path: Path) -> StreamLog:
    log = StreamLog(tmp_path / "log")
    write_events(log, events(400, partitions=2, disorder_ms=0), end=False)
    return log


@pytest.fixture
def job(log: StreamLog) -> LocalJob:
    job = LocalJob(hourly(partitions=2), log, run_id="r")
    job.step()
    return job


def end(job: LocalJob, status: str, failure: dict[str, str] | None = None) -> None:
    """What a driver does at the end of its run."""
    job.recorder.end_run(job.deployment.run_id, 1, status, failure)
    job.release()


def drains(job: LocalJob) -> Callable[[float], None]:
    def sleep(seconds: float) -> None:
        if not job.step():
            end(job, job.status)

    return sleep


def clock(step: float = 1.0) -> Callable[[], float]:
    ticks = itertools.count()
    return lambda: next(ticks) * step


def test_it_waits_until_the_run_has_drained_and_tells_what_is_owed(
    log: StreamLog, job: LocalJob, capsys: pytest.CaptureFixture[str]
) -> None:
    assert drain(log, "hourly", sleep=drains(job), clock=clock()) == 0
    assert job.status == "drained"
    told = capsys.readouterr().out.splitlines()
    [asked] = read_notifications(log.metadata).valid
    assert told[0] == f"The run r of 'hourly' is asked to drain ({asked.uuid})."
    assert any(line.startswith("  Partition ") for line in told), told
    assert told[-1].startswith("The run r has drained, after ")


def test_without_waiting_it_only_asks(log: StreamLog, job: LocalJob, capsys: pytest.CaptureFixture[str]) -> None:
    def never(seconds: float) -> None:
        raise AssertionError("it waits")

    assert drain(log, "hourly", wait=False, sleep=never) == 0
    assert [asked.run_id for asked in read_notifications(log.metadata).valid] == ["r"]
    assert job.status == "running"


def test_after_the_timeout_it_tells_what_is_owed_and_the_drain_goes_on(
    log: StreamLog, job: LocalJob, capsys: pytest.CaptureFixture[str]
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 1:
            job.step()

    assert drain(log, "hourly", timeout=3.2, sleep=sleep, clock=clock()) == 2
    assert slept[-1] == pytest.approx(0.2)
    complaint = capsys.readouterr().err
    assert "has not drained after 3.2 s. The drain goes on. It waits for:\n  Partition " in complaint
    job.run_to_end()
    assert job.status == "drained"


def test_a_run_that_has_not_noticed_in_time_is_still_in_its_batch(
    log: StreamLog, job: LocalJob, capsys: pytest.CaptureFixture[str]
) -> None:
    assert drain(log, "hourly", timeout=2, sleep=lambda seconds: None, clock=clock()) == 2
    assert "the end of the batch that was running when it was asked" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("status", "failure", "code", "told"),
    [
        ("finished", None, 0, "has finished, after 2.0 s: all its inputs had ended"),
        ("stopped", None, 1, "is stopped and has not drained.\n"),
        (
            "failed",
            {"message": "the window of Partition 1"},
            1,
            "is failed and has not drained: the window of Partition 1",
        ),
    ],
)
def test_any_other_end_is_told(
    log: StreamLog,
    job: LocalJob,
    capsys: pytest.CaptureFixture[str],
    status: str,
    failure: dict[str, str] | None,
    code: int,
    told: str,
) -> None:
    assert drain(log, "hourly", sleep=lambda seconds: end(job, status, failure), clock=clock()) == code
    captured = capsys.readouterr()
    assert told in (captured.err if code else captured.out)


@pytest.mark.parametrize("status", ["finished", "drained", "stopped", "failed"])
def test_a_run_that_has_ended_is_not_asked(log: StreamLog, job: LocalJob, status: str) -> None:
    end(job, status)
    with pytest.raises(NotRunning, match=f"it is {status}"):
        drain(log, "hourly")
    assert read_notifications(log.metadata).valid == []


def test_a_run_whose_process_has_died_is_not_asked(log: StreamLog, job: LocalJob) -> None:
    job.release()
    with pytest.raises(NotDrainable, match="no process holds the lock of 'hourly'"):
        drain(log, "hourly")
    assert read_notifications(log.metadata).valid == []


def test_a_run_whose_process_dies_is_not_waited_for_for_ever(log: StreamLog, job: LocalJob) -> None:
    with pytest.raises(NotDrainable, match="it died without saying so"):
        drain(log, "hourly", sleep=lambda seconds: job.release(), clock=clock())


@pytest.mark.filterwarnings("ignore:A drain was asked of the run")
def test_a_run_that_took_the_place_of_the_one_that_was_asked_is_told(log: StreamLog, job: LocalJob) -> None:
    def redeploy(seconds: float) -> None:
        job.release()
        LocalJob(hourly(partitions=2), log, run_id="r2")

    with pytest.raises(NotDrainable, match="the run r2 took its place"):
        drain(log, "hourly", sleep=redeploy, clock=clock())


def test_only_the_run_that_is_meant_is_drained(log: StreamLog, job: LocalJob) -> None:
    with pytest.raises(NotDrainable, match=r"The run other is not the newest .* that is r, and it is running"):
        drain(log, "hourly", run_id="other")
    assert read_notifications(log.metadata).valid == []
    assert drain(log, "hourly", run_id="r", sleep=drains(job), clock=clock()) == 0


def test_a_second_request_while_it_drains_is_the_same_drain(log: StreamLog, job: LocalJob) -> None:
    first = write_notification(log.metadata, "r", now_ms=1)
    job.step()
    assert drain(log, "hourly", sleep=drains(job), clock=clock()) == 0
    assert job.plan.drain is not None and job.plan.drain.uuid == str(first.uuid)


def test_an_application_that_never_ran_is_refused(log: StreamLog) -> None:
    with pytest.raises(UnknownApplication, match="no run of an application 'hourly'"):
        drain(log, "hourly")


def test_leaving_the_wait_leaves_the_drain(log: StreamLog, job: LocalJob, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    assert drain(log, "hourly", sleep=interrupted) == 130
    assert capsys.readouterr().out.endswith("Not waiting any longer; the drain goes on.\n")
    assert len(read_notifications(log.metadata).valid) == 1


# The command line.


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="workbench")
    add_to(parser.add_subparsers(required=True))
    return parser


def test_the_command_asks_the_run_that_it_is_told(log: StreamLog, job: LocalJob) -> None:
    chosen = parser().parse_args(["drain", str(log.directory), "hourly", "--run", "r", "--no-wait"])
    assert chosen.run(chosen) == 0
    assert [asked.run_id for asked in read_notifications(log.metadata).valid] == ["r"]


def test_the_command_waits_for_as_long_as_it_is_told(log: StreamLog, job: LocalJob) -> None:
    chosen = parser().parse_args(["drain", str(log.directory), "hourly", "--timeout", "0.05"])
    assert chosen.run(chosen) == 2


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon"])
def test_a_timeout_that_is_no_time_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["drain", "log", "hourly", "--timeout", seconds])
    assert f"must be a number of seconds above 0, not '{seconds}'" in capsys.readouterr().err
