"""`workbench drain`: ask a run in another process to drain, and wait until it has."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import LogInUse, NotRunning
from workbench.errors.drain import NotDrainable

if TYPE_CHECKING:
    from workbench.engine.views import Record
    from workbench.systems.log import StreamLog
    from workbench.telemetry.recorder import RunRecord

DRAINED, FAILED, TIMED_OUT, INTERRUPTED = 0, 1, 2, 130
"""Exit codes."""

_POLL_SECONDS = 0.5
_SILENCE_SECONDS = 10.0
"""After so long without a change it is asked whether the run's process lives."""

_DESCRIPTION = """\
Ask the running run of an application to drain: it takes no more from its sources, finishes what it has admitted, emits
what its windows hold, and ends. This is final. Waits until that is done and tells what it waits for.

Exit code: 0 drained (with --no-wait: asked), 1 refused or failed, 2 not drained in time; the drain goes on then."""


def add_to(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command to those of `workbench`."""
    parser = subparsers.add_parser(
        "drain",
        help="finish what a running application has in flight, and end it",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("log", type=Path, help="directory of the stream log")
    parser.add_argument("application", help="name of the application")
    parser.add_argument("--run", dest="run_id", metavar="RUN_ID", help="drain only if this is the run that is running")
    parser.add_argument(
        "--timeout", type=_seconds, metavar="SECONDS", help="how long to wait (default: until it is done)"
    )
    parser.add_argument("--no-wait", dest="wait", action="store_false", help="only ask")
    parser.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> int:
    from workbench.systems.log import StreamLog

    log = StreamLog(chosen.log, create=False)
    return drain(log, chosen.application, run_id=chosen.run_id, timeout=chosen.timeout, wait=chosen.wait)


def drain(
    log: StreamLog,
    application: str,
    *,
    run_id: str | None = None,
    timeout: float | None = None,
    wait: bool = True,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Ask and, with `wait`, wait for at most `timeout` seconds, printing what is owed. Returns an exit code.

    Raises `UnknownApplication`, `NotRunning`, and `NotDrainable` where the newest run is not `run_id`, has died, or was
    replaced while it was waited for.
    """
    from workbench.drain import write_notification
    from workbench.engine.record import open_record

    record = open_record(log, application)
    run = record.last_run
    if run_id is not None and run.run_id != run_id:
        raise NotDrainable.another_run(application, run_id, run.run_id, run.status)
    if run.status != "running":
        raise NotRunning.to_drain(run.run_id, run.status)
    _check_alive(log, record, run.run_id)
    notification = write_notification(log.metadata, run.run_id)
    _say(f"The run {run.run_id} of {application!r} is asked to drain ({notification.uuid}).")
    if not wait:
        return DRAINED
    try:
        return _wait(log, record, run.run_id, timeout, sleep, clock)
    except KeyboardInterrupt:
        _say("Not waiting any longer; the drain goes on.")
        return INTERRUPTED


def _wait(
    log: StreamLog,
    record: Record,
    run_id: str,
    timeout: float | None,
    sleep: Callable[[float], None],
    clock: Callable[[], float],
) -> int:
    asked = changed = clock()
    shown: list[str] = []
    while (run := record.last_run).run_id == run_id and run.status == "running":
        owed, now = record.explain_drain(), clock()
        if owed and owed != shown:
            _say(f"After {now - asked:.1f} s it waits for:", *(f"  {sentence}" for sentence in owed))
            shown, changed = owed, now
        if timeout is not None and now - asked >= timeout:
            waits = [f"  {sentence}" for sentence in owed] or [
                "  the end of the batch that was running when it was asked"
            ]
            _complain(f"The run {run_id} has not drained after {timeout:g} s. The drain goes on. It waits for:", *waits)
            return TIMED_OUT
        if now - changed >= _SILENCE_SECONDS:
            _check_alive(log, record, run_id)
            changed = now
        left = math.inf if timeout is None else asked + timeout - now
        sleep(min(_POLL_SECONDS, left))
    if run.run_id != run_id:
        raise NotDrainable.replaced(run_id, run.run_id)
    return _tell_end(run, clock() - asked)


def _tell_end(run: RunRecord, seconds: float) -> int:
    match run.status:
        case "drained":
            _say(f"The run {run.run_id} has drained, after {seconds:.1f} s.")
            return DRAINED
        case "finished":
            _say(
                f"The run {run.run_id} has finished, after {seconds:.1f} s: all its inputs had ended before the drain."
            )
            return DRAINED
    why = f": {run.failure['message']}" if run.failure else "."
    _complain(f"The run {run.run_id} is {run.status} and has not drained{why}")
    return FAILED


def _check_alive(log: StreamLog, record: Record, run_id: str) -> None:
    """Raise `NotDrainable` if the run is on record as running and yet nobody holds its application's lock."""
    application = record.last_run.job
    try:
        log.lock(application).release()
    except LogInUse:
        return
    # A run records its end before it lets go of the lock.
    run = record.last_run
    if run.run_id == run_id and run.status == "running":
        raise NotDrainable.lost(application, run_id)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, not {text!r}")
    return seconds


def _say(*lines: str) -> None:
    print(*lines, sep="\n", flush=True)


def _complain(*lines: str) -> None:
    print(*lines, sep="\n", file=sys.stderr, flush=True)
