"""Joins that can not be made as declared, or not of the rows that came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from workbench.errors._base import TidemarkError, did_you_mean, listing


class InvalidJoin(TidemarkError, ValueError):
    """A join that would not give what its words say."""

    @classmethod
    def unknown_how(cls, how: object, known: Sequence[str]) -> InvalidJoin:
        near = did_you_mean(how, known) if isinstance(how, str) else ""
        return cls(f"A join can be {' or '.join(map(repr, known))}, not {how!r}.{near}")

    @classmethod
    def without_keys(cls, what: str, keys: object) -> InvalidJoin:
        return cls(f"{what} needs the names of one or more key columns, each once, not {keys!r}.")

    @classmethod
    def without_bound(cls) -> InvalidJoin:
        return cls(
            "A join of two streams needs a bound in time, or it would have to keep every row for ever. For example"
            " within='2h': rows whose event times are at most 2 hours apart. To look up the latest row of a key instead,"
            " join with other.table(key=…)."
        )

    @classmethod
    def unreadable_bound(cls, within: object) -> InvalidJoin:
        return cls(
            f"within must be a duration such as '2h', or two of them, (before, after): how long before and how long after"
            f" a row of this stream a row of the other may be. It is {within!r}."
        )

    @classmethod
    def empty_bound(cls, before: str, after: str) -> InvalidJoin:
        return cls(
            f"No row can be within ({before}, {after}) of another: that begins {before} before it and ends {after} after"
            " it, so it ends before it begins. Two durations of the same sign span from one to the other, as in"
            " ('-1h', '2h'): from 1 hour to 2 hours after."
        )

    @classmethod
    def not_a_stream(cls, other: object) -> InvalidJoin:
        return cls(f"A stream can be joined with another stream or with a table, not with {type(other).__name__}.")

    @classmethod
    def not_for_tables(cls, options: Iterable[str]) -> InvalidJoin:
        return cls(
            f"A table knows no time, it is the latest row of each key: a join with it can not have {listing(options)}."
        )

    @classmethod
    def other_keys(cls, on: Sequence[str], keys: Sequence[str]) -> InvalidJoin:
        return cls(
            f"The table has one row for each {', '.join(keys)}, so a join names {len(keys)} column(s) of the stream to look"
            f" it up by, not {len(on)} ({listing(on)})."
        )

    @classmethod
    def not_suffixes(cls, suffixes: object) -> InvalidJoin:
        return cls(f"suffixes are two texts, for the columns of this stream and of the other, not {suffixes!r}.")

    @classmethod
    def columns_clash(cls, columns: Iterable[str], suffixes: Sequence[str]) -> InvalidJoin:
        return cls(
            f"Several columns of the joined rows would have the same name: {listing(columns)}. With the suffixes"
            f" {tuple(suffixes)!r} they can not be told apart; give others, or rename columns in a map before."
        )

    @classmethod
    def not_an_event_time(cls, event_time: object, choices: Iterable[str]) -> InvalidJoin:
        return cls(
            f"The event time of joined rows is that of one of the two rows: {listing(dict.fromkeys(choices))}, not"
            f" {event_time!r}. For another column use .map(…, event_time=…) behind the join."
        )

    @classmethod
    def event_time_may_be_missing(cls, event_time: str, choice: str) -> InvalidJoin:
        return cls(
            f"In a left join the other row, and its time {event_time!r}, can be missing. The event time is {choice!r}."
        )

    @classmethod
    def event_time_renamed(cls, column: str, renamed: str) -> InvalidJoin:
        return cls(
            f"The event time {column!r} of the joined rows is called {renamed!r} in them, because both sides have a column"
            f" of that name. Say so, with event_time={renamed!r}, or give other suffixes."
        )

    @classmethod
    def drained_is_taken(cls, kind: str) -> InvalidJoin:
        return cls(
            "A left join says in its column 'drained' which rows a drain has emitted before their match could come. Its"
            f" input has a column of that name already, of type {kind}. Rename it in a map before the join."
        )

    @classmethod
    def late_is_not_two(cls, late: object) -> InvalidJoin:
        return cls(
            "Late rows of the two sides have different columns and go to two streams: late=('late views', 'late clicks'),"
            f" either of which may be None. It is {late!r}."
        )

    @classmethod
    def nested_key(cls, column: str, kind: str) -> InvalidJoin:
        return cls(f"Rows can not be joined by {column!r}, which is of type {kind}: lists and structs are no keys.")

    @classmethod
    def key_types(cls, left: str, left_kind: str, right: str, right_kind: str) -> InvalidJoin:
        return cls(
            f"{left!r} is of type {left_kind} on the left and {right!r} of type {right_kind} on the right: such keys are"
            " never equal, and are not in the same partition either. Cast one of them in a map before it is partitioned."
        )

    @classmethod
    def types_changed(cls, side: str, before: str, now: str) -> InvalidJoin:
        return cls(
            f"The columns of the {side} input of the join changed their types from ({before}) to ({now}), and have no"
            " common type. Cast them in a map before the join."
        )

    @classmethod
    def time_out_of_reach(cls, column: str, time: int) -> InvalidJoin:
        return cls(
            f"Column {column!r} has the time {time} ms, more than 100 million years from 1970. Is the column in another"
            " unit than milliseconds?"
        )

    @classmethod
    def keys_not_together(cls, operator: str, on: Sequence[str], partition_keys: Sequence[str]) -> InvalidJoin:
        return cls(
            f"{operator} joins by {listing(on)}, but a side is partitioned by {listing(partition_keys)}: rows that belong"
            f" together would be in different tasks. Use partition_by({', '.join(map(repr, on))}) on both sides."
        )

    @classmethod
    def partitioned_differently(
        cls, operator: str, on: Sequence[str], streams: Mapping[str, Sequence[str] | None]
    ) -> InvalidJoin:
        listed = ", ".join(
            f"{stream!r} {'as it was written' if keys is None else 'by ' + ', '.join(keys)}"
            for stream, keys in sorted(streams.items())
        )
        return cls(
            f"{operator} needs both sides partitioned alike, but they are not: {listed}. Rows of one key would be in"
            f" different tasks. Use partition_by({', '.join(map(repr, on))}) on both sides, or .broadcast() on the right"
            " one if it is small."
        )

    @classmethod
    def partition_counts_differ(cls, operator: str, on: Sequence[str], partitions: Mapping[str, int]) -> InvalidJoin:
        listed = ", ".join(f"{stream!r} has {count}" for stream, count in sorted(partitions.items()))
        return cls(
            f"{operator} needs both sides in equally many partitions, but {listed}: rows of one key would be in different"
            f" tasks. Use partition_by({', '.join(map(repr, on))}, partitions=…) on both sides, or .broadcast() on the"
            " right one if it is small."
        )

    @classmethod
    def broadcast_left(cls, operator: str, stream: str) -> InvalidJoin:
        return cls(
            f"{operator} is a left join whose left side, {stream!r}, is broadcast: each task would find its own part of the"
            " other side only, and emit the row as unmatched. Broadcast the right side, or use partition_by on both."
        )
