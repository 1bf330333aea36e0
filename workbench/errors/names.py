"""Names and columns that are not there, or can not be."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.errors._base import TidemarkError, did_you_mean, listing


class InvalidName(TidemarkError, ValueError):
    """A name that can not name a stream, an application or a task."""

    @classmethod
    def of_task(cls, name: str) -> InvalidName:
        return cls(f"{name!r} is not a task name. Task names look like 'Partition 0'.")

    @classmethod
    def wrong_type(cls, what: str, name: object) -> InvalidName:
        return cls(f"The name of {_a(what)} must be text, not {type(name).__name__} ({name!r}).")

    @classmethod
    def wrong_length(cls, what: str, name: str, longest: int) -> InvalidName:
        return cls(
            f"The name of {_a(what)} must have 1 to {longest} characters; this one has {len(name)}: {name[:40]!r}."
        )

    @classmethod
    def unprintable(cls, what: str, name: str) -> InvalidName:
        return cls(
            f"The name of {_a(what)} must be printable and must not start or end with white space; {name[:80]!r} is not so."
        )


class UnknownColumn(TidemarkError, KeyError):
    """A column that an operator needs is not in the frame it was given."""

    @classmethod
    def from_known(cls, column: str, known: Sequence[str], where: str) -> UnknownColumn:
        return cls(f"There is no column {column!r} in {where}. It has: {listing(known)}.{did_you_mean(column, known)}")

    def __str__(self) -> str:
        return str(self.args[0])


class UnknownStream(TidemarkError, KeyError):
    """A stream that is not in the log."""

    @classmethod
    def from_known(cls, name: str, known: Sequence[str], where: str) -> UnknownStream:
        there = f"It holds: {listing(known)}." if known else "It holds no stream yet."
        return cls(f"There is no stream {name!r} in the log {where}. {there}{did_you_mean(name, known)}")

    def __str__(self) -> str:
        return str(self.args[0])

    @classmethod
    def to_write(cls, name: str, known: Sequence[str], where: str) -> UnknownStream:
        unknown = cls.from_known(name, known, where)
        return cls(f"{unknown} To create it with this write, give the option partitions.")


def _a(what: str) -> str:
    return f"{'an' if what[:1] in 'aeiou' else 'a'} {what}"
