"""Control messages and their reconciliation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from workbench.errors._base import TidemarkError, listing


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
        return cls(f"It has no {key!r}, and none can be assumed. It has: {listing(map(str, there)) or 'nothing'}.")

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
        return cls(f"It has {listing({key for key in keys if keys.count(key) > 1})} twice.")

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
