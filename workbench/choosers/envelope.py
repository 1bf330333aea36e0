"""What a chooser sees of a message: where it is from, when it happened, and, if it looks, what is in it.

Source: "Pluggable MessageChooser" (`IncomingMessageEnvelope`), with the event time that the document's second axiom asks
for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from workbench.messages import MessageType
from workbench.names import SSP


class LaneContent(Protocol):
    """Reads the content of the messages that wait in one SSP, by their index in what waits."""

    def key(self, index: int) -> object: ...
    def payload(self, index: int) -> Mapping[str, Any]: ...


class IncomingEnvelope(NamedTuple):
    """A message that waits to be chosen. Nothing can be set, and its content is read when it is asked for.

    `offset` is None for a marker that a system adds without storing it. `event_time` is in milliseconds since the
    epoch, UTC; None for control messages and rows without one. `content` and `position` are where `key` and `payload`
    come from.
    """

    ssp: SSP
    offset: int | None
    event_time: int | None = None
    kind: MessageType = MessageType.USER
    content: LaneContent | None = None
    position: int = 0

    @classmethod
    def of(
        cls,
        ssp: SSP,
        offset: int | None,
        *,
        event_time: int | None = None,
        kind: MessageType = MessageType.USER,
        key: object = None,
        payload: Mapping[str, Any] | None = None,
    ) -> IncomingEnvelope:
        """An envelope with content that is at hand, as for a test of a chooser."""
        return cls(ssp, offset, event_time, kind, _AtHand(key, payload or {}))

    @property
    def key(self) -> object:
        """What the message is partitioned by; None if it has no key."""
        return None if self.content is None else self.content.key(self.position)

    @property
    def payload(self) -> Mapping[str, Any]:
        """The columns of the row, or the fields of the control message, by name."""
        return {} if self.content is None else self.content.payload(self.position)

    @property
    def is_control(self) -> bool:
        return self.kind is not MessageType.USER

    @property
    def is_end(self) -> bool:
        return self.kind is MessageType.END_OF_STREAM

    @property
    def is_drain(self) -> bool:
        return self.kind is MessageType.DRAIN

    def __repr__(self) -> str:
        kind = "" if self.kind is MessageType.USER else f", {self.kind.name.lower().replace('_', ' ')}"
        time = "" if self.event_time is None else f", event time {self.event_time}"
        return f"<message {self.offset} of {self.ssp}{kind}{time}>"


class _AtHand(NamedTuple):
    given_key: object
    given_payload: Mapping[str, Any]

    def key(self, index: int) -> object:
        return self.given_key

    def payload(self, index: int) -> Mapping[str, Any]:
        return self.given_payload
