"""Watching a victim process from outside, and killing it at a chosen moment of a chosen batch.

The moments are what Spark and the log leave on disk; the product has no hooks for tests.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

MOMENTS = ("plan", "write", "state", "commit", "done")
"""Plan logged; first segment staged; first task's state committed; batch in the log; batch in Spark's commit log."""


@dataclass(frozen=True)
class Moment:
    """Right after `event` of batch `batch`, or `delay` seconds later (before whatever comes next)."""

    event: str
    batch: int
    delay: float = 0.0


def run_and_kill(log: Path, moment: Moment, *, max_messages: int, timeout: float = 120.0) -> bool:
    """Start the victim on `log` and SIGKILL its whole process group at `moment`. False if it finished before."""
    victim = start(log, max_messages)
    try:
        reached = _condition(log, moment)
        deadline = time.monotonic() + timeout
        while not reached():
            if victim.poll() is not None:
                assert victim.returncode == 0, victim.stderr.read().decode() if victim.stderr else ""
                return False
            assert time.monotonic() < deadline, f"the victim never came to {moment}"
            time.sleep(0.0005)
        time.sleep(moment.delay)
        return True
    finally:
        end(victim)


def run_to_end(log: Path, *, max_messages: int, timeout: float = 240.0) -> None:
    """Run the victim undisturbed."""
    victim = start(log, max_messages)
    try:
        _, errors = victim.communicate(timeout=timeout)
        assert victim.returncode == 0, errors.decode()
    finally:
        end(victim)


def start(log: Path, max_messages: int) -> subprocess.Popen[bytes]:
    root = Path(__file__).resolve().parents[2]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.victim", str(log), str(max_messages)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def end(victim: subprocess.Popen[bytes]) -> None:
    """SIGKILL everything the victim started, and wait until it is gone."""
    with suppress(ProcessLookupError):
        os.killpg(victim.pid, signal.SIGKILL)
    victim.wait(30)
    if victim.stderr:
        victim.stderr.close()


def _condition(log: Path, moment: Moment) -> Callable[[], bool]:
    checkpoint = log / "checkpoints" / "1"
    batch = moment.batch
    match moment.event:
        case "plan":
            return (checkpoint / "offsets" / str(batch)).exists
        case "write":
            segments = log / "segments"
            before = _committed_batches(log)
            return lambda: _committed_batches(log) >= min(batch, max(before, batch)) and _uncommitted(log, segments)
        case "state":
            state = checkpoint / "state" / "0"
            return lambda: any(state.glob(f"*/{batch + 1}.changelog")) or any(state.glob(f"*/{batch + 1}_*.changelog"))
        case "commit":
            return lambda: _committed_batches(log) > batch
        case "done":
            return (checkpoint / "commits" / str(batch)).exists
    raise ValueError(moment.event)


def _committed_batches(log: Path) -> int:
    return _ask(log, "SELECT coalesce(max(batch) + 1, 0) FROM telemetry_batch")


def _ask(log: Path, query: str) -> int:
    try:
        with closing(sqlite3.connect(f"file:{log / 'log.sqlite'}?mode=ro", uri=True, timeout=5)) as connection:
            return int(connection.execute(query).fetchone()[0])
    except sqlite3.OperationalError:  # before the first deployment has made its tables
        return 0


def _uncommitted(log: Path, segments: Path) -> bool:
    raise NotImplementedError
