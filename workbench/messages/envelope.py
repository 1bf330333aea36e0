"""The bytes of a message in an intermediate stream: `[type byte][data]`.

User data is written by the stream's serde, control data as JSON. Control messages never pass through a user serde.
Source: "Control messages" design document, section "Intermediate Stream Message Format".
"""

from __future__ import annotations

import json
from typing import Any, Protocol

from workbench.errors import InvalidMessage, InvalidName, UndecodableMessage
from workbench.messages.control import ControlMessage, MessageType, control_of_fields
from workbench.names import SSP

_DASHED = {
    "task-name": "taskName",
    "task-count": "taskCount",
    "stream-id": "streamId",
    "run-id": "runId",
}


class Serde(Protocol):
    """Writes and reads the user data of a stream."""

    def serialize(self, value: Any) -> bytes: ...
    def deserialize(self, data: bytes) -> Any: ...


def encode_envelope(message: object, user_serde: Serde) -> bytes:
    """The bytes of a control message, or of user data: whatever is no control message.

    What `user_serde` raises is not caught; `InvalidMessage` if it returns anything but bytes.
    """
    if isinstance(message, ControlMessage):
        data = json.dumps(message.fields(), separators=(",", ":"), ensure_ascii=False)
        return bytes((message.type,)) + data.encode()
    user = user_serde.serialize(message)
    if not isinstance(user, bytes | bytearray | memoryview):
        raise InvalidMessage.serde_without_bytes(user)
    return bytes((MessageType.USER,)) + bytes(user)


def decode_envelope(
    data: bytes | bytearray | memoryview | None, user_serde: Serde, *, ssp: SSP, offset: int | str
) -> Any:
    """The control message or the user's value in an envelope read from `ssp` at `offset`.

    Both spellings of keys are read, camelCase wins. Keys that are not known are skipped: what changes the meaning of a
    message changes its version. A named message without a task count (current Samza writes none) has `task_count`
    None. An end of stream without a stream id (no version of Samza writes it) is of the stream that it is read from.
    No other field is made up: a watermark without a timestamp is not one at 1970, and an end of stream that does not
    say who ended is not the end of everybody.

    Raises `UndecodableMessage`, which names stream, partition and offset, for everything that can not be read, a
    failing user serde included (its exception is the cause).
    """
    data = bytes(data or b"")
    if not data:
        raise UndecodableMessage.empty(ssp, offset)
    code, body = data[0], data[1:]
    if code == MessageType.USER:
        try:
            return user_serde.deserialize(body)
        except Exception as error:
            raise UndecodableMessage.by_serde(ssp, offset, error) from error
    if code > max(MessageType):
        raise UndecodableMessage.unknown_type(ssp, offset, code)
    kind = MessageType(code)
    try:
        fields = _fields(body)
        if kind is MessageType.END_OF_STREAM:
            fields.setdefault("streamId", ssp.stream)
        return control_of_fields(kind, fields)
    except (InvalidMessage, InvalidName) as error:
        raise UndecodableMessage.because(ssp, offset, kind.name, str(error)) from error
    except (ValueError, RecursionError) as error:
        raise UndecodableMessage.because(ssp, offset, kind.name, f"its data is not JSON: {error}") from error


def _fields(body: bytes) -> dict[str, Any]:
    # Decoded here because json.loads guesses UTF-16 and UTF-32 from the first bytes.
    read = json.loads(body.decode("utf-8"), object_pairs_hook=_unique)
    if not isinstance(read, dict):
        raise InvalidMessage.not_an_object(read)
    for dashed, camel in _DASHED.items():
        if dashed in read:
            read.setdefault(camel, read[dashed])
    return read


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON leaves open what a key given twice means; a watermark must not depend on it."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise InvalidMessage.key_twice([key for key, _ in pairs])
    return fields
