"""Applications that can not be laid out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from workbench.errors._base import TidemarkError, did_you_mean, listing


class InvalidGraph(TidemarkError, ValueError):
    """An application that can not run as declared."""

    @classmethod
    def without_operators(cls, application: str) -> InvalidGraph:
        return cls(
            f"The application {application!r} sends nothing anywhere. End a stream with .send_to(…) or .sink(…)."
        )

    @classmethod
    def written_twice(cls, stream: str, first: str, second: str) -> InvalidGraph:
        return cls(
            f"The stream {stream!r} is written by two operators, {first} and {second}. Merge them, or rename one."
        )

    @classmethod
    def read_and_written(cls, stream: str, writer: str) -> InvalidGraph:
        return cls(f"The stream {stream!r} is an input of this application and is also written by {writer}: a loop.")

    @classmethod
    def input_twice(cls, stream: str) -> InvalidGraph:
        return cls(
            f"The stream {stream!r} is declared as input twice, with different options. Declare it once, use it twice."
        )

    @classmethod
    def other_application(cls, ours: str, theirs: str) -> InvalidGraph:
        return cls(
            f"Streams of two applications can not meet: {ours!r} and {theirs!r}. Connect them through a stream of the log."
        )

    @classmethod
    def without_event_time(cls, operator: str) -> InvalidGraph:
        return cls(f"{operator} needs event times. Name the column: app.input(…, event_time='…').")

    @classmethod
    def event_times_differ(cls, columns: Iterable[str]) -> InvalidGraph:
        return cls(
            f"The merged streams have different event-time columns: {listing(columns)}. Rename one in a map first."
        )

    @classmethod
    def keys_not_together(cls, operator: str, keys: Sequence[str], partition_keys: Sequence[str]) -> InvalidGraph:
        return cls(
            f"{operator} groups by {listing(keys)}, but its stream is partitioned by {listing(partition_keys)}: rows of"
            f" one group would be spread over several tasks. Use partition_by({', '.join(map(repr, keys))}) before it."
        )

    @classmethod
    def partition_counts_differ(cls, operator: str, partitions: Mapping[str, int]) -> InvalidGraph:
        listed = ", ".join(f"{stream!r} has {count}" for stream, count in sorted(partitions.items()))
        return cls(
            f"{operator} groups rows of streams with different numbers of partitions ({listed}): rows of one key would be"
            " spread over several tasks. Give them the same number: partition_by(…, partitions=…)."
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
    def stream_of_others(cls, stream: str, operator: str) -> InvalidGraph:
        return cls(
            f"{operator} would write between its stages to {stream!r}, which holds messages that this application has not"
            " written. Give it another name (name=…), or the application."
        )

    @classmethod
    def log_changes(cls, stream: str, wanted: int, have: int, operator: str) -> InvalidGraph:
        return cls(
            f"{operator} asks for {wanted} partitions, but the stream {stream!r} has {have} in the log. Ask for {have}, give"
            " the stream another name, or, if it lies between the stages of this application, drain that first with the"
            " version that was deployed before (run.drain(), or `workbench drain`)."
        )


class InvalidExpression(TidemarkError, ValueError):
    """A filter expression that can not be read, or would do more than decide row by row."""

    @classmethod
    def empty(cls) -> InvalidExpression:
        return cls("The filter expression is empty. For example: .filter('dep_delay > 15 and not cancelled').")

    @classmethod
    def unreadable(cls, text: str, *, assigns: bool) -> InvalidExpression:
        why = " '=' assigns; to compare, write '=='." if assigns else " Column names with spaces go in `backticks`."
        return cls(f"The filter expression {text[:80]!r} can not be read.{why}")

    @classmethod
    def refused(cls, text: str, what: str) -> InvalidExpression:
        return cls(
            f"The filter expression {text[:80]!r} uses {what}. Expressions decide row by row, with columns, constants,"
            " comparisons, arithmetic and methods such as .isin(…) or .str.startswith(…). For more, give a function."
        )


class InvalidDuration(TidemarkError, ValueError):
    """A length of time that can not be read."""

    @classmethod
    def unreadable(cls, what: str, text: str) -> InvalidDuration:
        return cls(
            f"The {what} {text!r} is not a duration. Write it as '1h', '15 min', '1h 30min' or '500ms'; units: w d h min s ms."
        )

    @classmethod
    def wrong_type(cls, what: str, value: object) -> InvalidDuration:
        return cls(
            f"The {what} must be text as '15 min', a timedelta, or whole milliseconds, not {type(value).__name__} ({value!r})."
        )

    @classmethod
    def not_whole(cls, what: str, value: object) -> InvalidDuration:
        return cls(f"The {what} {value!r} is not a whole number of milliseconds, which is how event times are kept.")

    @classmethod
    def too_long(cls, what: str, value: object) -> InvalidDuration:
        return cls(f"The {what} {value!r} is more than ten thousand years.")


class InvalidWindow(TidemarkError, ValueError):
    """Windows that can not be assigned."""

    @classmethod
    def not_positive(cls, what: str, length: str) -> InvalidWindow:
        return cls(f"The {what} of a window must be longer than nothing; this one is {length}.")

    @classmethod
    def gaps(cls, size: str, slide: str) -> InvalidWindow:
        return cls(
            f"Windows of {size} that start every {slide} leave gaps, and rows in a gap would vanish. The slide must be at"
            " most the size."
        )


class InvalidAggregate(TidemarkError, ValueError):
    """An aggregate that no window can compute."""

    @classmethod
    def unknown(cls, output: str, aggregate: object, known: Sequence[str]) -> InvalidAggregate:
        near = did_you_mean(aggregate, known) if isinstance(aggregate, str) else ""
        return cls(
            f"The aggregate of {output!r} is {aggregate!r}, which is unknown. There are: {listing(known)}.{near}"
        )

    @classmethod
    def without_fraction(cls, output: str) -> InvalidAggregate:
        return cls(f"{output!r} is to be a quantile, but which? Write quantile(0.95).")

    @classmethod
    def not_a_fraction(cls, fraction: object) -> InvalidAggregate:
        return cls(f"A quantile is a number from 0 to 1, not {fraction!r}. The median is quantile(0.5).")

    @classmethod
    def not_a_pair(cls, output: str, value: object) -> InvalidAggregate:
        return cls(f"The aggregate {output!r} must be a pair of a column and what to compute, not {value!r}.")

    @classmethod
    def name_taken(cls, output: str, taken: Sequence[str]) -> InvalidAggregate:
        return cls(f"No aggregate can be named {output!r}: every pane has the columns {listing(taken)} already.")

    @classmethod
    def none(cls) -> InvalidAggregate:
        return cls("Windows need at least one aggregate, for example rows=('carrier', 'size').")


class WrongType(TidemarkError, TypeError):
    """A column of a type with which an operator can not work."""

    @classmethod
    def of_aggregate(cls, aggregate: str, column: str, kind: str, needs: str) -> WrongType:
        return cls(f"The aggregate {aggregate} needs {needs}, but column {column!r} is of type {kind}.")

    @classmethod
    def without_spark(cls, column: str, kind: str) -> WrongType:
        return cls(f"Column {column!r} is of type {kind}, for which Spark SQL has no type. Read it with Stream.read.")

    @classmethod
    def of_window_key(cls, column: str, kind: str) -> WrongType:
        return cls(f"Windows can not be kept per {column!r}, which is of type {kind}: lists and structs are no keys.")

    @classmethod
    def changed(cls, before: str, now: str) -> WrongType:
        return cls(
            f"The columns of a window's input changed their types from ({before}) to ({now}), and have no common type."
            " Cast them in a map before the window."
        )


class SumOverflow(TidemarkError, OverflowError):
    """A sum that its type can not hold."""

    @classmethod
    def of_whole_numbers(cls) -> SumOverflow:
        return cls(
            "A sum of whole numbers exceeds 64 bits. Cast the column to float64 or a decimal in a map before the window."
        )
