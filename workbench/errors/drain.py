"""Drain notifications."""

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


def _shown(value: object) -> str:
    """Whatever somebody wrote, short and printable on any screen."""
    if not isinstance(value, str):
        return f"{type(value).__name__} ({_printable(str(value))})"
    return repr(_printable(value))


def _printable(text: str) -> str:
    return text[:_SHOWN].encode(errors="backslashreplace").decode()
