"""Deployments and runs."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.errors._base import TidemarkError, did_you_mean, listing


class InvalidOption(TidemarkError, ValueError):
    """An option of a deployment or a session that can not be."""

    @classmethod
    def not_positive(cls, option: str, value: object) -> InvalidOption:
        return cls(f"{option} must be at least 1, not {value!r}.")

    @classmethod
    def unknown(cls, option: str, known: Sequence[str], where: str) -> InvalidOption:
        return cls(f"{where} has no option {option!r}. It has: {listing(known)}.{did_you_mean(option, known)}")

    @classmethod
    def missing(cls, option: str, where: str, what: str) -> InvalidOption:
        return cls(f"{where} needs the option {option!r}: {what}.")

    @classmethod
    def malformed(cls, option: str, value: object, expected: str) -> InvalidOption:
        return cls(f"The option {option!r} must be {expected}, not {value!r}.")

    @classmethod
    def of_choice(cls, option: str, value: object, choices: Sequence[str]) -> InvalidOption:
        return cls(
            f"{option} must be one of {', '.join(map(repr, choices))}, not {value!r}.{did_you_mean(str(value), choices)}"
        )

    @classmethod
    def run_id_taken(cls, run_id: str, application: str) -> InvalidOption:
        return cls(f"The run id {run_id!r} is that of a run of {application!r}. Leave it out, or choose another.")


class IncompatibleCheckpoint(TidemarkError):
    """A checkpoint that this application can not go on from."""

    @classmethod
    def changed(cls, application: str, differing: Sequence[tuple[str, object, object]]) -> IncompatibleCheckpoint:
        changes = "".join(
            f"\n  {what}: was {_or_none(before)}, is {_or_none(now)}" for what, before, now in differing[:8]
        )
        return cls(
            f"The application {application!r} has changed in what its checkpoint keeps:{changes}\n"
            "Drain it with the version that was deployed before (run.drain(), or `workbench drain`), then deploy this one. Or"
            " deploy it as it was, or under another name, or with another checkpoint=… (which starts from the beginning)."
            " Where that version can not run any more, run.abandon() gives up what is in flight."
        )

    @classmethod
    def of_another(cls, application: str, other: str, directory: str) -> IncompatibleCheckpoint:
        return cls(
            f"The checkpoint in {directory} is that of the application {other!r}, not of {application!r}. Give each"
            " application a directory of its own."
        )

    @classmethod
    def missing(cls, application: str, directory: str) -> IncompatibleCheckpoint:
        return cls(f"The application {application!r} has no checkpoint in {directory}. It has not been deployed there.")


class UnknownTask(TidemarkError, KeyError):
    """A task that the job does not have."""

    @classmethod
    def from_count(cls, task: object, tasks: int) -> UnknownTask:
        return cls(f"There is no task {task!r}. This job has {tasks}: 'Partition 0' to 'Partition {tasks - 1}'.")

    def __str__(self) -> str:
        return str(self.args[0])


class RunTimeout(TidemarkError, TimeoutError):
    """A wait that ended before the run did."""

    @classmethod
    def waiting_for(cls, run_id: str, seconds: float, sentences: Sequence[str]) -> RunTimeout:
        what = "".join(f"\n  {sentence}" for sentence in sentences[:10]) or "\n  its last batches"
        return cls(f"The run {run_id} has not ended after {seconds:g} s and goes on. It waits for:{what}")


class DrainTimeout(RunTimeout):
    """A drain that was not done in time."""

    @classmethod
    def owing(cls, run_id: str, seconds: float, owed: Sequence[str], *, stopped: bool, begun: bool) -> DrainTimeout:
        """`begun`: the job has planned the drain, so whatever run goes on from there finishes it."""
        shown = "".join(f"\n  {sentence}" for sentence in owed)
        if not stopped:
            then = "The drain goes on; run.wait() waits for it, run.stop() interrupts it."
        elif begun:
            then = "It has been stopped; the next deployment goes on with the drain."
        else:
            then = f"It has been stopped before the drain began: deploy with run_id={run_id!r} to take that up."
        return cls(f"The run {run_id} has not drained after {seconds:g} s:{shown}\n{then}")


class RewindUndecided(TidemarkError, ValueError):
    """A startpoint leads back, and nobody said what is to become of what the tasks keep."""

    @classmethod
    def of(cls, application: str, ways: Sequence[tuple[str, str, int, int]]) -> RewindUndecided:
        """`ways` are (task, SSP, current offset, resolved offset)."""
        shown = "".join(f"\n  {ssp} in {task}: from {current} back to {to}" for task, ssp, current, to in ways[:8])
        more = f"\n  and {len(ways) - 8} more" if len(ways) > 8 else ""
        return cls(
            f"Startpoints lead the application {application!r} back:{shown}{more}\nSay what becomes of what its tasks keep:"
            ' on_rewind="keep" (what comes again is counted again in windows that are open) or on_rewind="reset" (windows,'
            " stores and what is between the stages are dropped). No startpoint has been used."
        )


class NotRunning(TidemarkError, RuntimeError):
    """Something was asked of a run that has ended."""

    @classmethod
    def to_drain(cls, run_id: str, status: str) -> NotRunning:
        return cls(
            f"The run {run_id} is not running, it is {status}: there is nothing that could drain. Deploy the application"
            " as it was and drain that run."
        )

    @classmethod
    def to_hold(cls, run_id: str, status: str) -> NotRunning:
        return cls(f"The run {run_id} is not running, it is {status}.")


class RunFailed(TidemarkError, RuntimeError):
    """A run that failed. `full_trace` has everything that is known; the message has what is needed."""

    full_trace: str = ""

    @classmethod
    def with_report(cls, run_id: str, report: str, full_trace: str) -> RunFailed:
        error = cls(f"The run {run_id} failed.\n{report}\nThe full trace is in .full_trace of this error.")
        error.full_trace = full_trace
        return error


class UnknownApplication(TidemarkError, KeyError):
    """An application of which a log has no run."""

    @classmethod
    def from_log(cls, name: str, where: str) -> UnknownApplication:
        return cls(f"The log {where} has no run of an application {name!r}.")

    def __str__(self) -> str:
        return str(self.args[0])


def _or_none(value: object) -> str:
    return "not there" if value is None else str(value)
