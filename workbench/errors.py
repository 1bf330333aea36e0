"""Every exception that a user of Tidemark can meet.

Each is built from the situation by a class method, says what is there instead, and ends with a next step where there is
one.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def _listing(names: Iterable[str], most: int = 12) -> str:
    names = sorted(names)
    shown = ", ".join(repr(name) for name in names[:most])
    return f"{shown}, and {len(names) - most} more" if len(names) > most else shown


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


class TidemarkError(Exception):
    """Base of all errors raised on purpose by this package."""


class InvalidName(TidemarkError, ValueError):
    """A name that can not name a stream, an application or a task."""

    @classmethod
    def of_task(cls, name: str) -> InvalidName:
        return cls(f"{name!r} is not a task name. Task names look like 'Partition 0'.")

    @classmethod
    def wrong_type(cls, what: str, name: object) -> InvalidName:
        return cls(f"The name of a {what} must be text, not {type(name).__name__} ({name!r}).")

    @classmethod
    def wrong_length(cls, what: str, name: str, longest: int) -> InvalidName:
        return cls(f"The name of a {what} must have 1 to {longest} characters; this one has {len(name)}: {name[:40]!r}.")

    @classmethod
    def unprintable(cls, what: str, name: str) -> InvalidName:
        return cls(
            f"The name of a {what} must be printable and must not start or end with white space; {name[:80]!r} is not so."
        )


class UnknownColumn(TidemarkError, KeyError):
    """A column that an operator needs is not in the frame it was given."""

    @classmethod
    def from_known(cls, column: str, known: Sequence[str], where: str) -> UnknownColumn:
        return cls(
            f"There is no column {column!r} in {where}. It has: {_listing(known)}.{_did_you_mean(column, known)}"
        )

    def __str__(self) -> str:
        return str(self.args[0])


class UnknownStream(TidemarkError, KeyError):
    """A stream that is not in the log."""

    @classmethod
    def from_known(cls, name: str, known: Sequence[str], where: str) -> UnknownStream:
        there = f"It holds: {_listing(known)}." if known else "It holds no stream yet."
        return cls(f"There is no stream {name!r} in the log {where}. {there}{_did_you_mean(name, known)}")

    def __str__(self) -> str:
        return str(self.args[0])
