"""The stream log."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.errors._base import TidemarkError, listing


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
    def fallen_behind(cls, stream: str, partition: int, position: int, oldest: int, head: int) -> OffsetOutOfRange:
        return cls(
            f"The job was to go on at offset {position} of partition {partition} of {stream!r}, but retention has removed"
            f" what was there: it holds {oldest} up to, not including, {head}. To go on without it, write a startpoint"
            f" (oldest) for that partition and deploy again: `workbench startpoint set … {stream}:{partition} --oldest`."
        )

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

    stream: str = ""
    """The name of the stream, where it is one stream's schema that does not fit."""

    @classmethod
    def between_stages(cls, mismatch: SchemaMismatch) -> SchemaMismatch:
        return cls(
            f"{mismatch}\nIt lies between the stages of the application, and what the version before has written is in it."
            " Nothing of this batch has been written. Deploy that version again, drain it (run.drain(), or `workbench"
            " drain`), then deploy this one."
        )

    @classmethod
    def of_stream(cls, stream: str, differences: Sequence[tuple[str, str | None, str | None]]) -> SchemaMismatch:
        """`differences` are (column, type in the stream or None, type in the rows or None)."""
        lines = [
            f"  {column!r}: the stream has {have or 'no such column'}, the rows have {want or 'no such column'}"
            for column, have, want in differences[:12]
        ]
        more = [f"  and {len(differences) - 12} more"] if len(differences) > 12 else []
        error = cls(
            "\n".join(
                [
                    f"The rows do not fit the schema of the stream {stream!r}, which its first rows fixed:",
                    *lines,
                    *more,
                    "Rows of another kind need another stream.",
                ]
            )
        )
        error.stream = stream
        return error

    @classmethod
    def value(cls, stream: str, column: str, have: str, want: str, why: str) -> SchemaMismatch:
        error = cls(
            f"Column {column!r} of the rows is {want}; the stream {stream!r} has {have}, and not every value fits: {why}"
        )
        error.stream = stream
        return error

    @classmethod
    def repeated(cls, stream: str, columns: Sequence[str]) -> SchemaMismatch:
        return cls(f"The rows for {stream!r} have several columns of the same name: {listing(set(columns))}.")

    @classmethod
    def unknown_yet(cls, stream: str) -> SchemaMismatch:
        return cls(
            f"The stream {stream!r} has no rows yet, so its columns are not known. Say what they will be with "
            ".schema(…), or write to it first."
        )

    @classmethod
    def reserved(cls, stream: str, columns: Sequence[str]) -> SchemaMismatch:
        return cls(
            f"The stream {stream!r} has columns of its own named {listing(columns)}, which control messages and "
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
    def without_name(cls) -> LogUnavailable:
        return cls("A log needs a directory, but its name is empty. For the current directory, write StreamLog('.').")

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


class ForeignDirectory(TidemarkError, FileExistsError):
    """A directory that a notebook would have to empty, and did not make."""

    @classmethod
    def not_made_by(cls, notebook: str, directory: str) -> ForeignDirectory:
        return cls(
            f"There is something at {directory} already that the notebook {notebook} did not make, so it is left as it is."
            " Name another log_dir, or remove it yourself."
        )


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
