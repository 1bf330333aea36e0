"""The same job on a Spark standalone cluster: a master and two workers, each a process of its own on loopback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyspark
import pytest

from tests.support.jobs import assert_hourly_is_true, events, write_events
from workbench.session import find_java
from workbench.systems.log import StreamLog

ROOT = Path(__file__).resolve().parents[2]
SPARK = Path(pyspark.__file__).parent


@contextmanager
def daemon(kind: str, log: Path, *arguments: str) -> Iterator[Path]:
    """A master or a worker with its output in `log`; all it started is gone at the end."""
    environment = {
        **os.environ,
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    try:
        yield log
    finally:
        started = [process, *psutil.Process(process.pid).children(recursive=True)] if process.poll() is None else []
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for member in started:
            with suppress(psutil.NoSuchProcess):
                member.kill()
        process.wait(30)


def said(log: Path, pattern: str, seconds: float = 60) -> str:
    """Wait until a daemon says something; the first group of it."""
    deadline = time.monotonic() + seconds
    while not (found := re.search(pattern, log.read_text(errors="replace"))):
        assert time.monotonic() < deadline, f"never said {pattern!r}:\n{log.read_text(errors='replace')[-2000:]}"
        time.sleep(0.1)
    return found[1]


@pytest.mark.slow
def test_a_cluster_with_two_workers_gives_the_same_result_and_both_have_tasks(tmp_path: Path) -> None:
    tables = events(6_000, partitions=3, disorder_ms=7_200_000)
    log = StreamLog(tmp_path / "log")
    write_events(log, tables)
    at_loopback = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with daemon("master.Master", tmp_path / "master.txt", *at_loopback) as master:
        url = said(master, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        workers = [
            daemon(
                "worker.Worker", tmp_path / f"worker-{n}.txt", *at_loopback, "-c", "1", "-m", "1g",
                "-d", str(tmp_path / f"work-{n}"), url,
            )
            for n in range(2)
        ]  # fmt: skip
        with workers[0] as first, workers[1] as second:
            for worker in (first, second):
                said(worker, r"(Successfully registered with master)")
            driver = subprocess.run(
                [sys.executable, "-m", "tests.support.cluster_job", url, str(log.directory)],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=240,
                check=False,
                env={
                    **os.environ,
                    "JAVA_HOME": str(find_java().home),
                    "PYTHONPATH": str(ROOT),
                    "PYSPARK_PYTHON": sys.executable,
                },
            )
            assert driver.returncode == 0, driver.stderr[-3000:]
            assert driver.stdout.split()[-1] == "finished"
    assert assert_hourly_is_true(log, tables) > 0
    places = set(log.stream("places").to_pandas()["place"])
    hosts = {Path(place).relative_to(tmp_path).parts[0] for place in places}
    assert hosts == {"work-0", "work-1"}, f"tasks ran only in {places}"
