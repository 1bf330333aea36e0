"""Startpoints on the embedded log: resolve them, count what they replay, preview them."""

from __future__ import annotations

from collections.abc import Iterable

from workbench.errors import (
    InvalidStartpointRequest,
    NoEventTime,
    UnknownPartition,
    UnknownStream,
    UnresolvableStartpoint,
)
from workbench.names import LOG_SYSTEM, SSP
from workbench.startpoints.fan_out import FannedOut, Request, Resolve, Unreadable
from workbench.startpoints.model import (
    Startpoint,
    StartpointOldest,
    StartpointSpecific,
    StartpointTimestamp,
    StartpointUpcoming,
    StartpointVisitor,
)
from workbench.startpoints.preview import Consumers, Count, PreviewRow, preview
from workbench.startpoints.shorthand import by_duration
from workbench.systems.log import index
from workbench.systems.log.log import StreamLog
from workbench.windows.durations import Duration


class LogStartpointVisitor(StartpointVisitor[int]):
    """Resolves startpoints for one SSP of a log to the first offset to consume.

    A specific offset must be within [oldest, head]. A timestamp is the first offset at or after it, the head where there
    is none (see `StartpointTimestamp` for what that means in disorder). Raises `UnresolvableStartpoint`, which names the
    SSP, the startpoint and the valid range.
    """

    def __init__(self, log: StreamLog, ssp: SSP) -> None:
        self._log = log
        self._ssp = ssp

    @property
    def ssp(self) -> SSP:
        return self._ssp

    def visit_specific(self, startpoint: StartpointSpecific) -> int:
        oldest, head = self._range(startpoint)
        if not oldest <= startpoint.offset <= head:
            raise UnresolvableStartpoint.out_of_range(self._ssp, startpoint, oldest, head)
        return startpoint.offset

    def visit_timestamp(self, startpoint: StartpointTimestamp) -> int:
        oldest, head = self._range(startpoint)
        stream = self._log.stream(self._ssp.stream)
        try:
            return stream.offset_at(self._ssp.partition, startpoint.timestamp, startpoint.by)
        except NoEventTime as error:
            raise UnresolvableStartpoint.without_times(self._ssp, startpoint, oldest, head) from error

    def visit_oldest(self, startpoint: StartpointOldest) -> int:
        return self._range(startpoint)[0]

    def visit_upcoming(self, startpoint: StartpointUpcoming) -> int:
        return self._range(startpoint)[1]

    def _range(self, startpoint: Startpoint) -> tuple[int, int]:
        try:
            with self._log.reading() as connection:
                stream = index.find_stream(connection, self._ssp.stream, str(self._log.directory))
                return index.bounds(connection, stream, self._ssp.partition)
        except (UnknownStream, UnknownPartition) as error:
            raise UnresolvableStartpoint.not_there(self._ssp, startpoint, str(error)) from error


def resolve_on(log: StreamLog) -> Resolve:
    """A function that resolves a startpoint for an SSP of this log; other systems raise `UnresolvableStartpoint`."""

    def resolve(ssp: SSP, startpoint: Startpoint) -> int:
        if ssp.system != LOG_SYSTEM:
            raise UnresolvableStartpoint.unknown_system(ssp, startpoint, [LOG_SYSTEM])
        return startpoint.accept(LogStartpointVisitor(log, ssp))

    return resolve


def count_on(log: StreamLog) -> Count:
    """A function that counts (user messages, control messages) of an SSP between two offsets, from the index alone."""
    # The entry that holds the first offset begins at or before it; the inner query finds it by the primary key.
    statement = """
        SELECT coalesce(sum(n) FILTER (WHERE control IS NULL), 0), coalesce(sum(n) FILTER (WHERE control IS NOT NULL), 0)
        FROM (SELECT control, min(start + count, :end) - max(start, :start) AS n FROM entry
            WHERE stream = :stream AND partition = :partition AND start < :end AND start + count > :start
            AND start >= coalesce((SELECT max(start) FROM entry
                WHERE stream = :stream AND partition = :partition AND start <= :start), 0))
    """

    def count(ssp: SSP, start: int, end: int) -> tuple[int, int]:
        with log.reading() as connection:
            stream = index.find_stream(connection, ssp.stream, str(log.directory))
            oldest, head = index.bounds(connection, stream, ssp.partition)
            values = {
                "stream": stream.id,
                "partition": ssp.partition,
                "start": max(start, oldest),
                "end": max(min(end, head), max(start, oldest)),
            }
            users, controls = connection.execute(statement, values).fetchone()
        return users, controls

    return count


def ranges_on(log: StreamLog, streams: Iterable[str]) -> dict[SSP, tuple[int, int]]:
    """(oldest, head) of every SSP of the streams. Raises `UnknownStream`."""
    found = {}
    with log.reading():
        for name in streams:
            stream = log.stream(name)
            for partition, bounds in enumerate(zip(stream.oldest(), stream.heads(), strict=True)):
                found[SSP(LOG_SYSTEM, name, partition)] = bounds
    return found


def latest_event_time(log: StreamLog, stream: str) -> int | None:
    """The latest event time of all rows that are kept, milliseconds since the epoch, UTC; None if no row has one."""
    with log.reading() as connection:
        row = index.find_stream(connection, stream, str(log.directory))
        statement = "SELECT max(max_time) FROM entry WHERE stream = ?"
        latest: int | None = connection.execute(statement, (row.id,)).fetchone()[0]
    return latest


def by_duration_on(
    log: StreamLog, streams: str | Iterable[str], ago: Duration, by: str = "event", *, created: int | None = None
) -> StartpointTimestamp:
    """The time that is `ago` earlier than the latest event time of the streams, or with by="append" than now.

    One time for all of them, so that what belongs together is repeated together. Raises `InvalidStartpointRequest` where
    no row has an event time, `UnknownStream`, `InvalidDuration`.
    """
    if by != "event":
        return by_duration(ago, by, created=created)
    names = [streams] if isinstance(streams, str) else sorted(set(streams))
    latest = [time for name in names if (time := latest_event_time(log, name)) is not None]
    if not latest:
        raise InvalidStartpointRequest.without_event_times(", ".join(map(repr, names)))
    return by_duration(ago, by, before=max(latest), created=created)


def preview_on(
    log: StreamLog,
    positions: Consumers,
    requests: Iterable[Request],
    fanned_out: Iterable[FannedOut] = (),
    *,
    at: int,
    unreadable: Iterable[Unreadable] = (),
) -> list[PreviewRow]:
    """`preview` with the ranges, offsets and counts of this log, all of one moment."""
    requests, fanned_out = list(requests), list(fanned_out)
    named = {ssp.stream for of_task in positions.values() for ssp in of_task}
    named |= {request.ssp.stream for request in requests} | {taken.ssp.stream for taken in fanned_out}
    with log.reading():
        return preview(
            positions,
            requests,
            fanned_out,
            ranges=ranges_on(log, [name for name in named if name in log]),
            resolve=resolve_on(log),
            count=count_on(log),
            at=at,
            unreadable=unreadable,
        )
