"""How startpoints lie in the metadata store: keys, values, and what to say of those that can not be read.

Values are Samza's JSON. Keys are JSON arrays, so that names with dots, slashes or digits never run into each other, as
they do where the parts are joined by dots.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from workbench.errors import InvalidName, InvalidStartpoint
from workbench.names import SSP, checked_name
from workbench.startpoints.model import (
    Startpoint,
    StartpointOldest,
    StartpointSpecific,
    StartpointTimestamp,
    StartpointUpcoming,
)

_KINDS: dict[str, type[Startpoint]] = {
    kind.KIND: kind for kind in (StartpointSpecific, StartpointTimestamp, StartpointOldest, StartpointUpcoming)
}
_KEYS = {
    StartpointSpecific.KIND: ("specificOffset",),
    StartpointTimestamp.KIND: ("timestampOffset", "by"),
    StartpointOldest.KIND: (),
    StartpointUpcoming.KIND: (),
}
_OFFSET = re.compile(r"[0-9]{1,19}", re.ASCII)


def startpoint_from_json(data: object) -> Startpoint:
    """The inverse of `Startpoint.to_json`; also reads what Samza writes. Raises `InvalidStartpoint`.

    Unlike in Samza, a missing creation time does not mean now, which would keep such a startpoint fresh for ever.
    """
    if not isinstance(data, dict):
        raise InvalidStartpoint.not_json(f"it is {type(data).__name__}, not an object")
    kind = data.get("@type")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InvalidStartpoint.unknown_kind(kind, list(_KINDS))
    known = ("@type", "creationTimestamp", *_KEYS[kind])
    if strange := data.keys() - set(known):
        raise InvalidStartpoint.unknown_keys(kind, strange, known)
    if data.get("creationTimestamp") is None:
        raise InvalidStartpoint.without_creation_time(kind)
    created = data["creationTimestamp"]
    if kind == StartpointSpecific.KIND:
        return StartpointSpecific(_offset(_required(data, kind, "specificOffset")), created=created)
    if kind == StartpointTimestamp.KIND:
        timestamp = _required(data, kind, "timestampOffset")
        return StartpointTimestamp(timestamp, data.get("by", "event"), created=created)
    return _KINDS[kind](created=created)


def encoded(value: object) -> str:
    """JSON in the one spelling that keys must have."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def decoded(value: bytes) -> Any:
    """Raises `InvalidStartpoint` for bytes that are no JSON."""
    try:
        return json.loads(value.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidStartpoint.not_json(f"{error} in {value[:80]!r}") from error


def written_key(application: str, ssp: SSP, task: str | None) -> str:
    """The key of a startpoint for an SSP in all tasks, or (SSP, task)."""
    return encoded([application, *ssp, *([] if task is None else [task])])


def parsed_written_key(key: str) -> tuple[str, SSP, str | None]:
    """(application, SSP, task or None). Raises `InvalidStartpoint`."""
    expected = '["application","log","stream",0] or ["application","log","stream",0,"Partition 0"]'
    parts = _parts(key, (4, 5), expected)
    application, system, stream, partition, *task = parts
    ssp = _ssp(key, (system, stream, partition), expected)
    _check_names(key, [application, *task], expected)
    return application, ssp, task[0] if task else None


def fan_out_key(application: str, task: str, ssp: SSP) -> str:
    return encoded([application, task, *ssp])


def parsed_fan_out_key(key: str) -> tuple[str, str, SSP]:
    """(application, task, SSP). Raises `InvalidStartpoint`."""
    expected = '["application","Partition 0","log","stream",0]'
    application, task, *rest = _parts(key, (5,), expected)
    _check_names(key, [application, task], expected)
    return application, task, _ssp(key, rest, expected)


def application_of(key: str) -> str | None:
    """The application that a key, however broken, seems to belong to."""
    try:
        parts = json.loads(key)
    except (ValueError, RecursionError):
        return None
    return parts[0] if isinstance(parts, list) and parts and isinstance(parts[0], str) else None


def checked_ssp(ssp: SSP) -> SSP:
    """Raises `InvalidName` or `InvalidStartpoint` for an SSP that can not be."""
    system, stream, partition = ssp
    checked_name(system, "system")
    checked_name(stream)
    if not isinstance(partition, int) or isinstance(partition, bool):
        raise InvalidStartpoint.wrong_type("partition", "a whole number", partition)
    if not 0 <= partition < 2**63:
        raise InvalidStartpoint.out_of_range("partition", partition, 0)
    return SSP(system, stream, partition)


def _parts(key: str, lengths: Sequence[int], expected: str) -> list[Any]:
    try:
        parts = json.loads(key)
    except (ValueError, RecursionError):
        parts = None
    if not isinstance(parts, list) or len(parts) not in lengths:
        raise InvalidStartpoint.unreadable_key(key, expected)
    if encoded(parts) != key:
        raise InvalidStartpoint.other_spelling(key, encoded(parts))
    return parts


def _ssp(key: str, parts: Sequence[Any], expected: str) -> SSP:
    try:
        return checked_ssp(SSP(*parts))
    except (InvalidName, InvalidStartpoint) as error:
        raise InvalidStartpoint.unreadable_key(key, expected) from error


def _check_names(key: str, names: Sequence[Any], expected: str) -> None:
    try:
        for name in names:
            checked_name(name)
    except InvalidName as error:
        raise InvalidStartpoint.unreadable_key(key, expected) from error


def _required(data: dict[str, Any], kind: str, key: str) -> Any:
    if key not in data:
        raise InvalidStartpoint.missing(kind, key)
    return data[key]


def _offset(value: object) -> int:
    """Samza writes offsets as text; a number means the same."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str) or not _OFFSET.fullmatch(value):
        raise InvalidStartpoint.wrong_type("offset", "a whole number, as text", value)
    return int(value)
