"""Every contender in a process of its own: started, timed, its memory watched, its answer brought back.

A contender is a function at the top of a module; it takes and returns what JSON can say. As a program, this module is
the child: `python -m tests.benchmarks.processes MODULE FUNCTION ARGUMENTS ANSWER_FILE`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
_SAMPLE_SECONDS = 0.06
_ENOUGH_OF_A_TRACE = 4_000


class ContenderFailed(Exception):
    """A contender's process ended without an answer. The message holds the end of what it printed."""

    @classmethod
    def from_output(cls, name: str, why: str, output: str) -> ContenderFailed:
        return cls(f"The contender {name} {why}. The end of its output:\n{output[-_ENOUGH_OF_A_TRACE:]}")


@dataclass(frozen=True)
class Answer:
    """What a contender returned, and the largest memory of its whole process tree in bytes, if that was watched."""

    value: dict[str, Any]
    peak_rss: int | None
    peak_pss: int | None


def run(
    contender: Callable[..., Mapping[str, Any]],
    *,
    watch_memory: bool = False,
    timeout: float = 600,
    **arguments: Any,
) -> Answer:
    """Call `contender(**arguments)` in a fresh Python and return its answer.

    `watch_memory` samples the resident memory of the process and all its descendants (JVM, Python workers) about 15
    times a second. It is off for timed runs, since reading it takes a few percent of a core. Raises `ContenderFailed`.
    """
    name = f"{contender.__module__}.{contender.__name__}"
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as private:
        answer, output = Path(private, "answer.json"), Path(private, "output.txt")
        command = [sys.executable, "-m", __name__, contender.__module__, contender.__name__]
        with output.open("wb") as out:
            started = time.time()
            child = subprocess.Popen(
                [*command, json.dumps({**arguments, "spawned": started}), str(answer)],
                cwd=_ROOT,
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "TMPDIR": tempfile.gettempdir()},
            )
            watch = _MemoryWatch(child.pid) if watch_memory else None
            try:
                code = child.wait(timeout)
            except subprocess.TimeoutExpired:
                raise ContenderFailed.from_output(name, f"took over {timeout:g} s", _text(output)) from None
            finally:
                if watch is not None:
                    watch.stop()
                _end_group(child)
        if code != 0 or not answer.exists():
            raise ContenderFailed.from_output(name, f"ended with code {code}", _text(output))
        value = json.loads(answer.read_text())
    return Answer(value, watch and watch.peak_rss, watch and watch.peak_pss)


def alternated(
    contenders: Mapping[str, Callable[[], Answer]], rounds: int, label: str
) -> dict[str, list[dict[str, Any]]]:
    """Run all contenders `rounds` times, every other round in reverse: what slows the machine meets each in turn."""
    answers: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
    for round_ in range(rounds):
        names = list(contenders) if round_ % 2 == 0 else list(reversed(contenders))
        for name in names:
            started = time.monotonic()
            answers[name].append(contenders[name]().value)
            say(f"{label}: {name}, round {round_ + 1} of {rounds} ({time.monotonic() - started:.0f} s)")
    return answers


def middle(answers: list[dict[str, Any]], key: str) -> float:
    """The median of one figure over the rounds."""
    return float(median(answer[key] for answer in answers))


def spread(answers: list[dict[str, Any]], key: str, unit: str = "s") -> str:
    """The smallest and the largest, for the notes."""
    figures = sorted(float(answer[key]) for answer in answers)
    return f"{figures[0]:.3g}–{figures[-1]:.3g} {unit}"


def say(line: str) -> None:
    """Progress, apart from the table."""
    print(f"  {line}", file=sys.stderr, flush=True)


class _MemoryWatch:
    """The largest sum of memory over a process tree, sampled by a thread."""

    def __init__(self, pid: int) -> None:
        self.peak_rss = 0
        self.peak_pss = 0
        self._pid = pid
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(5)

    def _sample(self) -> None:
        import psutil

        turn = 0
        while not self._stopped.wait(_SAMPLE_SECONDS):
            try:
                root = psutil.Process(self._pid)
                tree = [root, *root.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            self.peak_rss = max(self.peak_rss, sum(_rss(process) for process in tree))
            if turn % 5 == 0:
                self.peak_pss = max(self.peak_pss, sum(_pss(process.pid) for process in tree))
            turn += 1


def _rss(process: Any) -> int:
    import psutil

    try:
        return int(process.memory_info().rss)
    except psutil.Error:  # it has ended since it was listed
        return 0


def _pss(pid: int) -> int:
    """Proportional set size: pages that several processes share count once in all. 0 where the system does not say."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as lines:
            return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
    except OSError:
        return 0


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """End whatever the contender left behind: it leads a process group of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _text(path: Path) -> str:
    return path.read_text(errors="replace")


def _child(module: str, function: str, arguments: str, answer: str) -> None:
    value = getattr(import_module(module), function)(**json.loads(arguments))
    Path(answer).write_text(json.dumps(value))


if __name__ == "__main__":
    _child(*sys.argv[1:])
