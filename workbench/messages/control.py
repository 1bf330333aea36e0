"""The three control messages that travel in-band through intermediate streams.

Source: "Control messages" (watermark, end of stream) and "Drain" design documents of Apache Samza.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any, ClassVar, TypeAlias

from workbench.errors import InvalidMessage
from workbench.names import checked_name

MIN_TIMESTAMP = -(2**63)
MAX_TIMESTAMP = 2**63 - 1
"""The watermark of an input that has ended. Never shown as a time."""

VERSION = 1
"""The only version of control messages there is. Another one is refused: its meaning is not known."""

_checked_name = lru_cache(maxsize=4096)(checked_name)


class MessageType(IntEnum):
    """The type byte of an envelope. New types may only be appended."""

    USER = 0
    WATERMARK = 1
    END_OF_STREAM = 2
    DRAIN = 3


class _Control:
    """What the three have in common.

    `task_name` is the upstream task that says so. None is a direct message: from a source, or from the task that owns
    the aggregate partition, on behalf of all; one is enough. `task_count` is the number of upstream tasks that write to
    the stream: at least 1 where a task is named, 0 where none is, and None where the sender did not say (current Samza
    does not), so that whoever reads the stream must know it.
    """

    __slots__ = ()
    type: ClassVar[MessageType]
    task_name: str | None
    task_count: int | None
    version: int

    @property
    def direct(self) -> bool:
        return self.task_name is None

    def _check_sender(self) -> None:
        if self.version != VERSION or type(self.version) is not int:
            raise InvalidMessage.unknown_version(self.version, VERSION)
        count = self.task_count
        if count is not None and type(count) is not int:
            raise InvalidMessage.wrong_type("task count", "a whole number", count)
        if self.task_name is None:
            if count is None or count < 0:
                raise InvalidMessage.direct_with_count(count)
            return
        _checked_name(self.task_name, "task")
        if count is not None and not 1 <= count <= MAX_TIMESTAMP:
            raise InvalidMessage.task_count_not_positive(self.task_name, count)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, the type included. `control_from_json` is the inverse."""
        return {"type": int(self.type), **self.fields()}

    def fields(self) -> dict[str, Any]:
        """The keys and values of the control data of an envelope, in the order they are written."""
        fields: dict[str, Any] = {"version": self.version, "taskName": self.task_name}
        if self.task_count is not None:
            fields["taskCount"] = self.task_count
        return fields


@dataclass(frozen=True, slots=True)
class WatermarkMessage(_Control):
    """No later message of `task_name` has an event time before `timestamp` (milliseconds since the epoch, UTC).

    Raises `InvalidMessage` unless the timestamp is a 64-bit whole number and the sender is well formed.
    """

    timestamp: int
    task_name: str | None = None
    task_count: int | None = 0
    version: int = VERSION
    type: ClassVar[MessageType] = MessageType.WATERMARK

    def __post_init__(self) -> None:
        if type(self.timestamp) is not int:
            raise InvalidMessage.wrong_type("timestamp", "a whole number of milliseconds", self.timestamp)
        if not MIN_TIMESTAMP <= self.timestamp <= MAX_TIMESTAMP:
            raise InvalidMessage.timestamp_out_of_range(self.timestamp)
        self._check_sender()

    def fields(self) -> dict[str, Any]:
        return {**_Control.fields(self), "timestamp": self.timestamp}


@dataclass(frozen=True, slots=True)
class EndOfStreamMessage(_Control):
    """`task_name` will write nothing more to the stream `stream_id`."""

    stream_id: str
    task_name: str | None = None
    task_count: int | None = 0
    version: int = VERSION
    type: ClassVar[MessageType] = MessageType.END_OF_STREAM

    def __post_init__(self) -> None:
        _checked_name(self.stream_id, "stream")
        self._check_sender()

    def fields(self) -> dict[str, Any]:
        return {**_Control.fields(self), "streamId": self.stream_id}


@dataclass(frozen=True, slots=True)
class DrainMessage(_Control):
    """`task_name` has processed all it had admitted in the run `run_id`, and writes nothing more in that run."""

    run_id: str
    task_name: str | None = None
    task_count: int | None = 0
    version: int = VERSION
    type: ClassVar[MessageType] = MessageType.DRAIN

    def __post_init__(self) -> None:
        _checked_name(self.run_id, "run")
        self._check_sender()

    def fields(self) -> dict[str, Any]:
        return {**_Control.fields(self), "runId": self.run_id}


ControlMessage: TypeAlias = WatermarkMessage | EndOfStreamMessage | DrainMessage


def control_from_json(data: Mapping[str, Any]) -> ControlMessage:
    """The inverse of `to_json` of the three. Raises `InvalidMessage`."""
    return control_of_fields(data.get("type"), data)


def control_of_fields(type_code: object, fields: Mapping[str, Any]) -> ControlMessage:
    """A control message of its type and camelCase fields, none of which is made up where it is missing."""
    sender = (_required(fields, "taskName"), fields.get("taskCount"), fields.get("version", VERSION))
    if sender[0] is None and sender[1] is None:
        sender = (None, 0, sender[2])
    match type_code:
        case MessageType.WATERMARK:
            return WatermarkMessage(_required(fields, "timestamp"), *sender)
        case MessageType.END_OF_STREAM:
            return EndOfStreamMessage(_required(fields, "streamId"), *sender)
        case MessageType.DRAIN:
            return DrainMessage(_required(fields, "runId"), *sender)
    raise InvalidMessage.not_a_control_type(type_code)


def _required(fields: Mapping[str, Any], key: str) -> Any:
    try:
        return fields[key]
    except KeyError:
        raise InvalidMessage.missing(key, fields) from None
