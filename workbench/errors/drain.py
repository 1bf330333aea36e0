"""Drain notifications, and runs that can not be asked to drain."""

from __future__ import annotations

from collections.abc import Iterable

from workbench.errors._base import TidemarkError, did_you_mean, listing

_SHOWN = 40


class InvalidNotification(TidemarkError, ValueError):
    """A drain notification that can not be read, or may not be written."""

    @classmethod
    def empty_run_id(cls) -> InvalidNotification:
        return cls("A drain notification must name the run that it is for; this run id is empty.")

    @classmethod
    def not_text(cls, key: str, value: object) -> InvalidNotification:
        return cls(f"Its {key!r} must be text, not {_shown(value)}.")

    @classmethod
    def not_json(cls, why: object) -> InvalidNotification:
        return cls(f"It is not JSON in UTF-8: {why}.")

    @classmethod
    def not_an_object(cls, read: object) -> InvalidNotification:
        return cls(f"It must be a JSON object, not {_shown(read)}.")

    @classmethod
    def missing(cls, key: str, there: Iterable[str]) -> InvalidNotification:
        return cls(f"It has no {key!r}. It has: {listing(_printable(name) for name in there) or 'nothing'}.")

    @classmethod
    def malformed_uuid(cls, value: object) -> InvalidNotification:
        return cls(f"Its 'uuid' must look like 123e4567-e89b-42d3-a456-426614174000, not like {_shown(value)}.")

    @classmethod
    def unknown_mode(cls, value: str, known: Iterable[str]) -> InvalidNotification:
        known = list(known)
        return cls(
            f"{_shown(value)} is not a drain mode. There is: {listing(known)}.{did_you_mean(value.upper(), known)}"
        )


class NotDrainable(TidemarkError, RuntimeError):
    """A run that is asked to drain from outside and would not hear it."""

    @classmethod
    def another_run(cls, application: str, asked: str, newest: str, status: str) -> NotDrainable:
        return cls(
            f"The run {asked} is not the newest of the application {application!r}; that is {newest}, and it is {status}."
            f" To drain that one, say --run {newest}, or leave --run out."
        )

    @classmethod
    def lost(cls, application: str, run_id: str) -> NotDrainable:
        return cls(
            f"The run {run_id} is on record as running, but no process holds the lock of {application!r}: it died without"
            " saying so. Nothing is lost. Deploy the application as it was; that run begins where this one was left, and"
            " goes on with its drain if one had begun. Else drain that run."
        )

    @classmethod
    def replaced(cls, run_id: str, by: str) -> NotDrainable:
        return cls(
            f"The run {run_id} ended before it had drained, and the run {by} took its place. That goes on with the drain"
            " if it had begun. Else it has to be asked itself: the request was for the first run only."
        )


def _shown(value: object) -> str:
    """Whatever somebody wrote, short and printable on any screen. Of lists and objects, which may be deep, the type."""
    if isinstance(value, str):
        return repr(_printable(value))
    kind = type(value).__name__
    return f"{kind} ({_printable(str(value))})" if isinstance(value, int | float) else kind


def _printable(text: str) -> str:
    return text[:_SHOWN].encode(errors="backslashreplace").decode()
