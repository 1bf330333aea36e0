"""Progress of a run for whoever watches: a line in a terminal, a bar in a notebook, nothing where nobody looks.

What is shown is a function of snapshots; where it is shown is decided once, from facts about the process that tests can
set. `TIDEMARK_PROGRESS=terminal|notebook|quiet` overrides the decision.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol, TextIO, cast

from workbench.errors import UnknownEnvironment


@dataclass(frozen=True)
class ProgressSnapshot:
    """How far a run is at one moment.

    `messages` have been taken from its source streams; `total` is how many these hold, None if that has no end.
    `lowest_watermark` is text, since it may be no time: "not yet known", "finished", "at its maximum". `late` counts rows that came too
    late, `elapsed_s` the seconds since the run started. `status` is that of `Run.status`.
    """

    messages: int
    total: int | None
    batches: int
    lowest_watermark: str
    late: int
    elapsed_s: float
    status: str


class ProgressDisplay(Protocol):
    """Where progress is shown. Neither method raises because of the screen: showing must never end a run."""

    def update(self, snapshot: ProgressSnapshot) -> None:
        """Show `snapshot`. As cheap as can be; may skip one if the last has just been shown."""

    def close(self, final_status: str) -> None:
        """Show the last snapshot and how it ended. Later calls of either method do nothing."""


class Environment(StrEnum):
    """Where a process can show progress."""

    TERMINAL = "terminal"
    NOTEBOOK = "notebook"
    QUIET = "quiet"


@dataclass(frozen=True)
class Probes:
    """The facts that decide where progress is shown.

    `kernel`: the code runs in a Jupyter kernel. `widgets`: ipywidgets can be imported. `stderr_is_terminal`: standard
    error goes to a person. `environ`: the process's environment.
    """

    stderr_is_terminal: bool
    kernel: bool
    widgets: bool
    environ: Mapping[str, str]

    @classmethod
    def of_this_process(cls) -> Probes:
        shell = _interactive_shell()
        return cls(
            stderr_is_terminal=bool(sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty()),
            kernel=getattr(shell, "kernel", None) is not None,
            widgets=importlib.util.find_spec("ipywidgets") is not None,
            environ=os.environ,
        )


def _interactive_shell() -> Any:
    # A kernel has imported IPython already; nobody else should pay for it.
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


_OVERRIDE = "TIDEMARK_PROGRESS"
_UNATTENDED = ("CI", "PAPERMILL", "PAPERMILL_OUTPUT_PATH", "NBCLIENT")
# A kernel that a person sits at was started by a Jupyter server (which names the session), by VS Code or by Colab.
# Papermill and nbclient start kernels on their own and leave no mark, so the absence of these is what tells.
_FRONT_ENDS = ("JPY_SESSION_NAME", "VSCODE_PID", "COLAB_RELEASE_TAG")
_NO = ("", "0", "false", "no")


def detect(probes: Probes) -> Environment:
    """Where to show progress, given the facts. Raises `UnknownEnvironment` for an override that names none."""

    def is_set(name: str) -> bool:
        return probes.environ.get(name, "").lower() not in _NO

    override = probes.environ.get(_OVERRIDE)
    if override:
        return _named(override)
    if any(is_set(name) for name in _UNATTENDED):
        return Environment.QUIET
    if probes.kernel:
        attended = probes.widgets and any(is_set(name) for name in _FRONT_ENDS)
        return Environment.NOTEBOOK if attended else Environment.QUIET
    return Environment.TERMINAL if probes.stderr_is_terminal else Environment.QUIET


def _named(name: str) -> Environment:
    try:
        return Environment(name.lower())
    except ValueError:
        raise UnknownEnvironment.from_known(name, [str(known) for known in Environment]) from None


def progress_for(environment: Environment | str | None = None) -> ProgressDisplay:
    """A display for this process, or for the environment named. A notebook's appears below the cell at once.

    Raises `UnknownEnvironment` for a name that is none.
    """
    chosen = detect(Probes.of_this_process()) if environment is None else _named(environment)
    if chosen is Environment.NOTEBOOK:
        # By name: widgets build on this package, never the other way, and only a notebook pays for them.
        return cast(ProgressDisplay, importlib.import_module("widgets.progress").NotebookProgress())
    return TerminalProgress() if chosen is Environment.TERMINAL else QuietProgress()


@dataclass
class RecentRate:
    """Messages per second over the last `window_s` seconds of a run, by the run's own clock."""

    window_s: float = 10.0
    _seen: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, snapshot: ProgressSnapshot) -> float:
        """Take a snapshot into account and return the rate. Before two moments are known it is that since the start."""
        if self._seen and snapshot.elapsed_s < self._seen[-1][0]:
            self._seen.clear()
        self._seen.append((snapshot.elapsed_s, snapshot.messages))
        while len(self._seen) > 2 and self._seen[1][0] <= snapshot.elapsed_s - self.window_s:
            self._seen.popleft()
        start, messages = self._seen[0]
        if snapshot.elapsed_s <= start:
            start, messages = 0.0, 0
        seconds = snapshot.elapsed_s - start
        return max(snapshot.messages - messages, 0) / seconds if seconds > 0 else 0.0


def clock(seconds: float) -> str:
    """Seconds as a clock shows them: `0:42`, `12:05`, `3:00:07`."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def describe(snapshot: ProgressSnapshot, rate: float, brief: bool = False) -> str:
    """A snapshot in words, the most telling first, since a narrow terminal cuts the end."""
    if snapshot.total is None:
        messages = f"{snapshot.messages:,} messages"
    elif brief:
        messages = f"{snapshot.messages:,}/{snapshot.total:,}"
    else:
        messages = f"{snapshot.messages:,} of {snapshot.total:,} messages"
    parts = [
        messages,
        f"watermark {snapshot.lowest_watermark}",
        f"batch {snapshot.batches:,}",
        f"{rate:,.0f}/s",
        clock(snapshot.elapsed_s),
    ]
    if snapshot.late:
        parts.insert(2, f"{snapshot.late:,} late")
    return ", ".join(parts)


def share(snapshot: ProgressSnapshot) -> float | None:
    """How much is done, 0 to 1: all of it once finished; None while nobody can know."""
    if snapshot.status == "finished":
        return 1.0
    if snapshot.total is None:
        return None
    return min(max(snapshot.messages / snapshot.total, 0.0), 1.0) if snapshot.total > 0 else 0.0


class QuietProgress:
    """Shows nothing. For CI, papermill, pipes."""

    def update(self, snapshot: ProgressSnapshot) -> None:
        """Do nothing."""

    def close(self, final_status: str) -> None:
        """Do nothing."""


_LINE = "{desc} {percentage:3.0f}% |{bar:8}| "


class TerminalProgress:
    """One line on standard error that is redrawn in place, at most five times a second."""

    def __init__(self, stream: TextIO | None = None, columns: Callable[[], int] | None = None) -> None:
        """`stream` and `columns` (the width in characters) are those of standard error unless given."""
        self.error: Exception | None = None
        self._stream = stream
        self._columns = columns
        self._rate = RecentRate()
        self._bar: Any = None
        self._latest: ProgressSnapshot | None = None
        self._closed = False

    def update(self, snapshot: ProgressSnapshot) -> None:
        self._guarded(lambda: self._update(snapshot))

    def close(self, final_status: str) -> None:
        self._guarded(lambda: self._close(final_status))
        self._closed = True

    def _guarded(self, action: Callable[[], None]) -> None:
        """Run `action` unless the display is closed. A terminal that went away closes it; the run goes on."""
        if self._closed:
            return
        try:
            action()
        except (OSError, ValueError) as error:
            self.error, self._closed = error, True

    def _update(self, snapshot: ProgressSnapshot) -> None:
        if self._bar is None:
            self._bar = self._open(snapshot)
        self._latest = snapshot
        self._set(snapshot)
        # As part of the format: a postfix would begin with a comma.
        words = describe(snapshot, self._rate.add(snapshot), brief=True).replace("{", "{{").replace("}", "}}")
        self._bar.bar_format = _LINE + words
        self._bar.update(0)

    def _set(self, snapshot: ProgressSnapshot) -> None:
        done = share(snapshot)
        # A bar of unknown length stays empty: tqdm would draw none at all and the line would jump once it is known.
        self._bar.total, self._bar.n = 1000, round(1000 * done) if done is not None else 0
        self._bar.set_description_str(snapshot.status, refresh=False)

    def _open(self, snapshot: ProgressSnapshot) -> Any:
        from tqdm import tqdm

        return tqdm(
            total=1000,
            file=self._stream or sys.stderr,
            bar_format=_LINE,
            desc=snapshot.status,
            mininterval=0.2,
            miniters=0,
            dynamic_ncols=self._columns is None,
            ncols=self._columns() if self._columns else None,
        )

    def _close(self, final_status: str) -> None:
        if self._latest is None:
            return
        self._set(replace(self._latest, status=final_status))
        self._bar.refresh()
        self._bar.close()
