"""DrainNotification: what an external controller writes to ask a run to drain.

The JSON is Samza's (`uuid`, `runId`, `drainMode`), so that a controller written for Samza works, plus `requested`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any
from uuid import UUID, uuid4

from workbench.errors.drain import InvalidNotification

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_LAST_TIME = (2**63 - 1) // 1_000_000
"""The last millisecond (in 2262) that a timestamp in nanoseconds can hold; frames show `requested` as such."""


class DrainMode(Enum):
    """How to drain. There is one way: windows emit what they hold, and the run ends when nothing is in flight."""

    DEFAULT = "DEFAULT"

    @classmethod
    def parse(cls, text: str) -> DrainMode:
        """The mode of this name, in upper or lower case. Raises `InvalidNotification`."""
        for mode in cls:
            if mode.value == text.upper():
                return mode
        raise InvalidNotification.unknown_mode(text, [mode.value for mode in cls])


@dataclass(frozen=True)
class DrainNotification:
    """A request to drain one run, and no other run of the same application.

    `requested` is when it was made, in milliseconds since the epoch, UTC; None where its writer did not say so. Raises
    `InvalidNotification` for a run id that is empty or no text.
    """

    uuid: UUID
    run_id: str
    mode: DrainMode = DrainMode.DEFAULT
    requested: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.run_id, str):
            raise InvalidNotification.not_text("runId", self.run_id)
        if not self.run_id.strip():
            raise InvalidNotification.empty_run_id()
        if not _is_unicode(self.run_id):
            raise InvalidNotification.not_text("runId", self.run_id)

    @classmethod
    def create(
        cls,
        run_id: str,
        *,
        mode: DrainMode = DrainMode.DEFAULT,
        uuid: UUID | None = None,
        now_ms: int | None = None,
    ) -> DrainNotification:
        """A new notification, requested now, with a new uuid; both can be given. Raises `InvalidNotification`."""
        return cls(uuid or uuid4(), run_id, mode, time.time_ns() // 1_000_000 if now_ms is None else now_ms)

    def to_json(self) -> bytes:
        fields = {"uuid": str(self.uuid), "runId": self.run_id, "drainMode": self.mode.value}
        return json.dumps(fields if self.requested is None else {**fields, "requested": self.requested}).encode()

    @classmethod
    def from_json(cls, data: bytes) -> DrainNotification:
        """The inverse of `to_json`. Raises `InvalidNotification`, and nothing else, whatever the bytes are.

        Keys that are not ours are ignored; so is a `requested` that is no time, since a drain does not depend on it.
        """
        fields = _parsed(data)
        uuid = _text(fields, "uuid")
        if _UUID.fullmatch(uuid) is None:
            raise InvalidNotification.malformed_uuid(uuid)
        run_id, mode = _text(fields, "runId"), DrainMode.parse(_text(fields, "drainMode"))
        requested = fields.get("requested")
        if type(requested) is not int or not 0 <= requested <= _LAST_TIME:
            requested = None
        return cls(UUID(uuid), run_id, mode, requested)


def _parsed(data: bytes) -> Mapping[str, Any]:
    try:
        fields = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidNotification.not_json(error) from error
    if not isinstance(fields, dict):
        raise InvalidNotification.not_an_object(fields)
    return fields


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    if value is None:
        raise InvalidNotification.missing(key, fields)
    if not isinstance(value, str):
        raise InvalidNotification.not_text(key, value)
    return value


def _is_unicode(text: str) -> bool:
    """False for half a surrogate pair, which JSON can spell and no screen or database can take."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
