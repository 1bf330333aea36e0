"""Watching a run in another process from outside, and killing it at a chosen moment of a chosen batch.

The moments are what Spark and the log leave on the disk; the product has no hooks for tests.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from workbench.drain import NAMESPACE
from workbench.startpoints import FAN_OUT_NAMESPACE
from workbench.systems.log import StreamLog

EVENTS = ("plan", "write", "state", "commit", "done")
"""Of a batch, in their order: its plan is logged; its first segment is staged; a container has committed its state; it is
in the log; it is in Spark's log of commits."""

START_EVENTS = ("lock", "identity", "recorded", "query")
"""Of a deployment, in their order: it has the lock; its checkpoint has an identity; the run is recorded; Spark has begun."""

DRAIN_EVENTS = ("drained", "cleaned")
"""Of a run that has drained, in their order: it is on record as drained; no notification is left."""

STARTPOINT_EVENTS = ("taken",)
"""Of a deployment: it has taken startpoints, and no commit has covered them."""

_ROOT = Path(__file__).resolve().parents[2]
_POLL_SECONDS = 0.001
_OF_DRAINS = f"namespace = '{NAMESPACE}'"


@dataclass(frozen=True)
class Moment:
    """When `event` of `batch` (a deployment's events have none) can first be seen, or `delay` seconds after."""

    event: str
    batch: int = -1
    delay: float = 0.0


class Watch:
    """What a log shows of its one job while others write it. Segments and states count if they are newer than this."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.checkpoint = log / "checkpoints" / "1"
        self._old_segments = self._segments()
        self._old_states = self._states()
        self._old_runs = self._ask("SELECT count(*) FROM telemetry_run")
        self._old_lock = self._lock()

    def has(self, event: str, batch: int = -1) -> bool:
        """Whether the event has taken place."""
        match event:
            case "plan":
                return (self.checkpoint / "offsets" / str(batch)).exists()
            case "write":
                return self.committed() == batch and self._staged()
            case "state":
                return any(self._state_is_new(path) for path in self._states_of(batch))
            case "commit":
                return self.committed() > batch
            case "done":
                return (self.checkpoint / "commits" / str(batch)).exists()
            case "lock":
                return self._lock() != self._old_lock
            case "identity":
                return (self.checkpoint / "tidemark.json").exists()
            case "recorded":
                return self._ask("SELECT count(*) FROM telemetry_run") > self._old_runs
            case "query":
                return (self.checkpoint / "metadata").exists()
            case "drained":
                return self._ask("SELECT count(*) FROM telemetry_run WHERE status = 'drained'") > 0
            case "taken":
                return self._ask(f"SELECT count(*) FROM metadata WHERE namespace = '{FAN_OUT_NAMESPACE}'") > 0
            case "cleaned":
                return self.has("drained") and self._ask(f"SELECT count(*) FROM metadata WHERE {_OF_DRAINS}") == 0
        raise ValueError(event)

    def committed(self) -> int:
        """How many batches are in the log."""
        return self._ask("SELECT coalesce(max(batch) + 1, 0) FROM telemetry_batch")

    def last_event(self) -> str:
        """What came last, of the newest batch that is planned: one of `EVENTS`, or "nothing" before any plan."""
        offsets = self.checkpoint / "offsets"
        planned = [int(path.name) for path in offsets.iterdir() if path.name.isdecimal()] if offsets.is_dir() else []
        if not planned:
            return "nothing"
        reached = [event for event in EVENTS if self.has(event, max(planned))]
        return reached[-1]

    def _staged(self) -> bool:
        fresh = self._segments() - self._old_segments
        with self._index() as index:
            return any(index("SELECT count(*) FROM file WHERE path = ?", file) == 0 for file in fresh)

    def _segments(self) -> set[str]:
        segments = self.log / "segments"
        return {path.relative_to(segments).as_posix() for path in segments.glob("*/*.arrow")}

    def _states(self) -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in self.checkpoint.glob("state/0/*/*.changelog")}

    def _states_of(self, batch: int) -> Iterator[Path]:
        return (self.checkpoint / "state" / "0").glob(f"*/{batch + 1}.changelog")

    def _state_is_new(self, path: Path) -> bool:
        with suppress(FileNotFoundError):
            return path.stat().st_mtime_ns != self._old_states.get(path)
        return False

    def _lock(self) -> list[str]:
        return [path.read_text() for path in (self.log / "locks").glob("*.lock")]

    def _ask(self, query: str) -> int:
        with self._index() as index:
            return index(query)

    @contextmanager
    def _index(self) -> Iterator[Callable[..., int]]:
        """Asks the index for one number, 0 where it has no such table yet."""
        with closing(sqlite3.connect(f"file:{self.log / StreamLog.MARKER}?mode=ro", uri=True, timeout=5)) as index:

            def ask(query: str, *values: str) -> int:
                try:
                    return int(index.execute(query, values).fetchone()[0])
                except sqlite3.OperationalError as error:
                    if "no such table" not in str(error):
                        raise
                    return 0

            yield ask


class Victim:
    """A process that runs the job, in a session of its own with all that it starts: JVM, daemons and workers.

    `program` is the module to run and what it is told after the log and `max_messages`.
    """

    def __init__(
        self, log: Path, max_messages: int, temporary: Path, program: Sequence[str] = ("tests.faults.victim",)
    ) -> None:
        self.watch = Watch(log)
        module, *more = program
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, str(log), str(max_messages), *more],
            cwd=_ROOT,
            env={**os.environ, "PYTHONPATH": str(_ROOT), "TMPDIR": str(temporary)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def reach(self, moment: Moment, timeout: float = 120.0) -> bool:
        """Wait for the moment. False if the job had finished before."""
        deadline = time.monotonic() + timeout
        while not self.watch.has(moment.event, moment.batch):
            if self._process.poll() is not None:
                self._check_success()
                return False
            assert time.monotonic() < deadline, f"{moment} did not come in {timeout} s"
            time.sleep(_POLL_SECONDS)
        time.sleep(moment.delay)
        return True

    def finish(self, timeout: float = 240.0) -> None:
        """Wait for the end of the job."""
        self._process.wait(timeout)
        self._check_success()

    def kill(self) -> None:
        """SIGKILL all at once; return when none is left."""
        # Spark's daemons lead process groups of their own, so the group alone would spare the workers.
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        deadline = time.monotonic() + 30
        while self.send(signal.SIGKILL):
            assert time.monotonic() < deadline, f"still alive: {self.members()}"
            time.sleep(0.005)
        self._process.wait(30)
        assert self._process.stderr is not None
        self._process.stderr.close()

    def kill_driver_only(self) -> None:
        """SIGKILL the Python process that holds the lock, and nothing else."""
        self._process.kill()
        self._process.wait(30)

    def wait_until_all_are_gone(self, timeout: float = 60.0) -> None:
        """Without their driver, JVM and workers have to end by themselves."""
        deadline = time.monotonic() + timeout
        while self.members():
            assert time.monotonic() < deadline, f"still there after {timeout} s: {self.members()}"
            time.sleep(0.1)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """All at a standstill, so that what is done in the block is done at this moment of the job."""
        self.send(signal.SIGSTOP)
        try:
            yield
        finally:
            self.send(signal.SIGCONT)

    def send(self, number: signal.Signals, *, spare_driver: bool = False) -> int:
        """Send a signal to every process of the session; how many there were."""
        members = [member for member in self.members() if not (spare_driver and member.pid == self.pid)]
        for member in members:
            with suppress(psutil.NoSuchProcess):
                member.send_signal(number)
        return len(members)

    def members(self) -> list[psutil.Process]:
        """The living processes of the victim's session, whoever their parent is now."""
        found = []
        for process in psutil.process_iter():
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                if os.getsid(process.pid) == self.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def _check_success(self) -> None:
        if self._process.returncode:
            assert self._process.stderr is not None
            raise AssertionError(self._process.stderr.read().decode())


@dataclass
class Scene:
    """One log and its victims, one after the other."""

    log: Path
    max_messages: int
    temporary: Path
    program: Sequence[str]

    @contextmanager
    def victim(self) -> Iterator[Victim]:
        """A victim that is surely dead at the end of the block, with everything it started."""
        victim = Victim(self.log, self.max_messages, self.temporary, self.program)
        try:
            yield victim
        finally:
            victim.kill()
        assert victim.members() == []

    def kill_at(self, moment: Moment) -> str | None:
        """Start the job and kill it at the moment. What it did last, or None where the moment is in the past."""
        if moment.event not in ("lock", "recorded", "write", "state") and Watch(self.log).has(
            moment.event, moment.batch
        ):
            return None
        with self.victim() as victim:
            if not victim.reach(moment):
                return None
        return victim.watch.last_event()


@contextmanager
def scene(log: Path, max_messages: int, program: Sequence[str] = ("tests.faults.victim",)) -> Iterator[Scene]:
    """A place for victims (see `Victim`); what they leave among the temporary files goes with it."""
    # Short, as sockets lie in it, and their paths may not be long.
    temporary = Path(tempfile.mkdtemp(prefix="tm-"))
    try:
        yield Scene(log, max_messages, temporary, program)
    finally:
        shutil.rmtree(temporary)
