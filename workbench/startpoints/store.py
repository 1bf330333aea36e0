"""The startpoints of an application as they lie in the metadata store: what can be read, and what can not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from workbench.errors import InvalidStartpoint
from workbench.metadata import MetadataStore
from workbench.names import SSP
from workbench.startpoints import encoding
from workbench.startpoints.fan_out import FannedOut, Request, Source, Unreadable

WRITTEN_NAMESPACE = "tidemark-startpoint-v1"
"""Metadata: startpoints that no start has taken, under `["application", system, stream, partition(, task)]`."""

FAN_OUT_NAMESPACE = "tidemark-startpoint-v1-fan-out"
"""Metadata: startpoints taken and not yet covered by a commit, under `["application", task, system, stream, partition]`."""


@dataclass(frozen=True)
class Stored:
    """All startpoints of an application that no start has taken."""

    fresh: tuple[Request, ...]
    stale: tuple[Request, ...]
    unreadable: tuple[Unreadable, ...]

    @property
    def requests(self) -> tuple[Request, ...]:
        return self.fresh + self.stale


def written(values: MetadataStore, application: str) -> tuple[list[Request], list[Unreadable]]:
    """(what was written and not taken, in the order of SSP and task; entries that can not be read)."""
    requests: list[Request] = []
    unreadable: list[Unreadable] = []
    for key, value in _entries(values, WRITTEN_NAMESPACE, application):
        try:
            _, ssp, task = encoding.parsed_written_key(key)
            requests.append(Request(ssp, encoding.startpoint_from_json(encoding.decoded(value)), task))
        except InvalidStartpoint as error:
            unreadable.append(Unreadable(WRITTEN_NAMESPACE, key, _reason(key, error)))
    return sorted(requests, key=lambda request: (request.ssp, request.task or "")), unreadable


def fanned_out(values: MetadataStore, application: str) -> tuple[list[FannedOut], list[Unreadable]]:
    """(what is taken and not yet covered by a commit, in the order of SSP and task; entries that can not be read)."""
    taken: list[FannedOut] = []
    unreadable: list[Unreadable] = []
    for key, value in _entries(values, FAN_OUT_NAMESPACE, application):
        try:
            _, task, ssp = encoding.parsed_fan_out_key(key)
            taken.append(_from_record(task, ssp, encoding.decoded(value)))
        except InvalidStartpoint as error:
            unreadable.append(Unreadable(FAN_OUT_NAMESPACE, key, _reason(key, error)))
    return sorted(taken, key=lambda each: (each.ssp, each.task)), unreadable


def record(taken: FannedOut) -> str:
    """The value of one startpoint that is taken."""
    record = {
        "id": taken.id,
        "timestamp": taken.time,
        "source": taken.source.value,
        "startpoint": taken.startpoint.to_json(),
    }
    return encoding.encoded(record)


def id_of(value: bytes) -> str | None:
    """The id in such a value; None where there is none."""
    try:
        record = encoding.decoded(value)
    except InvalidStartpoint:
        return None
    return record.get("id") if isinstance(record, dict) else None


def task_of(key: str) -> str | None:
    """The task of a key in the fan-out namespace; None where it has none."""
    try:
        return encoding.parsed_fan_out_key(key)[1]
    except InvalidStartpoint:
        return None


def _entries(values: MetadataStore, namespace: str, application: str) -> Iterator[tuple[str, bytes]]:
    # A key that tells no application is everybody's: somebody has to report it.
    return (
        (key, value)
        for key, value in values.all(namespace).items()
        if encoding.application_of(key) in (application, None)
    )


def _from_record(task: str, ssp: SSP, record: Any) -> FannedOut:
    if not isinstance(record, dict):
        raise InvalidStartpoint.not_a_record(f"it is {type(record).__name__}, not an object")
    id, timestamp, source = (record.get(key) for key in ("id", "timestamp", "source"))
    if not isinstance(id, str) or not isinstance(timestamp, int) or source not in list(Source):
        raise InvalidStartpoint.not_a_record(
            f"'id', 'timestamp' or 'source' are not as they were written: {record!r:.120}"
        )
    return FannedOut(
        task, ssp, encoding.startpoint_from_json(record.get("startpoint")), Source(source), id, timestamp
    )  # fmt: skip


def _reason(key: str, error: InvalidStartpoint) -> str:
    return f"{key}: {error}"
