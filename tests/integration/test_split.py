"""A split application on Spark: three processes that share nothing but the log."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from queue import Queue

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

import workbench as wb
from datasets import flights
from tests.support.split_process import flights_by_hour
from workbench.commands.drain import DRAINED, drain
from workbench.drain import read_notifications
from workbench.systems.log import Stream

ROOT = Path(__file__).resolve().parents[2]
PARTS = 3


class PartProcess:
    """A process that deploys one part when it is told to."""

    def __init__(self, log: wb.StreamLog, number: int) -> None:
        self.number = number
        command = [sys.executable, "-m", "tests.support.split_process", str(log.directory), str(number)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._lines: Queue[str] = Queue()
        self._errors: list[str] = []
        for read in (self._read_output, self._read_errors):
            threading.Thread(target=read, daemon=True).start()

    def deploy(self, run_id: str, partitions: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{run_id} {partitions}\n")
        self.process.stdin.flush()

    def says(self, timeout: float = 240) -> str:
        """The next line, "" if the process has ended without one."""
        line = self._lines.get(timeout=timeout).strip()
        assert line, "".join(self._errors)[-3_000:]
        return line

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=30)

    def leave(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)

    def _read_output(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self._errors.extend(self.process.stderr)


def panes(log: wb.StreamLog) -> pd.DataFrame:
    """Flights and late flights by origin, carrier and hour: a window that a drain cut in two has two panes."""
    found = log.stream("panes").to_pandas()
    hours = pd.to_datetime(found["window_start"], utc=True).astype("datetime64[ms, UTC]")
    keys = [found["origin"].astype(str), found["carrier"].astype(str), hours]
    return found.groupby(keys)[["flights", "late"]].sum().astype("int64").sort_index()


def test_three_processes_drained_upgraded_and_one_of_them_killed_give_the_result_of_one_job(
    spark: SparkSession, log_dir: Path
) -> None:
    log = wb.StreamLog(log_dir)
    january = flights.table(months=[1]).slice(0, 6_000)
    halves = [january.slice(0, 3_000), january.slice(3_000)]
    stream = log.create("flights", len(flights.ORIGINS))
    append(stream, halves[0])
    parts = {number: PartProcess(log, number) for number in (2, 0, 1)}
    try:
        for part in parts.values():
            part.deploy("monday", 4)
        assert parts[1].says() == "deployed"
        parts[1].kill()
        parts[1] = PartProcess(log, 1)
        parts[1].deploy("monday", 4)
        for part in parts.values():
            assert part.says() == "deployed"
        assert drain(log, "flights by hour stage 1", run_id="monday", timeout=120) == DRAINED
        assert [parts[number].says() for number in range(PARTS)] == ["drained"] * PARTS
        assert read_notifications(log.metadata).valid == []
        for number in range(1, PARTS):
            record = wb.open_record(log, f"flights by hour stage {number + 1}")
            assert not record.drains()["pending"].any()
            assert set(record._unread().values()) == {0}

        append(stream, halves[1])
        stream.end()
        for number in range(PARTS):  # the one that writes a stream gives it its new partitions, so it goes first
            parts[number].deploy("tuesday", 5)
            assert parts[number].says() == "deployed"
        assert [parts[number].says() for number in range(PARTS)] == ["finished"] * PARTS
        for part in parts.values():
            part.leave()
    finally:
        for part in parts.values():
            part.process.kill()
    assert log.stream("by carrier").partitions == 5

    one = wb.StreamLog(log_dir.with_name("one"))
    append(one.create("flights", len(flights.ORIGINS)), january)
    one.stream("flights").end()
    assert flights_by_hour(4).deploy(spark, one).wait(timeout=120, progress=False).status == "finished"
    pd.testing.assert_frame_equal(panes(log), panes(one))
    flown = january.to_pandas().query("not cancelled")
    assert panes(one)["flights"].sum() == len(flown) == panes(log)["flights"].sum()


def append(stream: Stream, rows: pa.Table) -> None:
    """Each airport to its own partition."""
    for partition, origin in enumerate(flights.ORIGINS):
        stream.append(rows.filter(pc.equal(rows["origin"], origin)), partition, time_column="event_time")
