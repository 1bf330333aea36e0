"""What the words of `workbench startpoint` mean: which SSPs, which tasks, which startpoint."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from workbench.errors import InvalidStartpointRequest, UnknownStream
from workbench.names import LOG_SYSTEM, SSP
from workbench.startpoints.fan_out import Request
from workbench.startpoints.model import (
    Startpoint,
    StartpointOldest,
    StartpointSpecific,
    StartpointTimestamp,
    StartpointUpcoming,
)
from workbench.startpoints.preview import Consumers, consumers
from workbench.startpoints.shorthand import shift_by
from workbench.systems.log import StreamLog
from workbench.systems.log.startpoints import by_duration_on, ranges_on

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WITH_PARTITION = re.compile(r"(.+):([0-9]+)", re.ASCII | re.DOTALL)


@dataclass(frozen=True)
class KnownJob:
    """What a log knows of an application that ran on it: its next offsets (stream → per partition, or for a broadcast
    stream per task), which streams are its sources, which are broadcast."""

    positions: Mapping[str, Sequence[int]]
    sources: Collection[str]
    broadcast: Collection[str] = ()


Provider = Callable[[StreamLog, str], KnownJob]
"""What is known of an application; raises `UnknownApplication`."""


def known_job(log: StreamLog, application: str) -> KnownJob:
    """What the newest plan of the engine says."""
    from workbench.engine.record import current_positions, open_record
    from workbench.telemetry.recorder import Recorder

    jobs = Recorder(log, application, "").jobs_of(application) or [application]  # its parts, where it is split
    inputs = [read for job in jobs for read in open_record(log, job).outline.inputs]
    return KnownJob(
        positions={stream: lanes for job in jobs for stream, lanes in current_positions(log, job).items()},
        sources=[read.stream for read in inputs if not read.intermediate],
        broadcast=[read.stream for read in inputs if read.broadcast],
    )


def check_target(chosen: argparse.Namespace) -> None:
    """Either a stream or everything must be meant, as nothing said could mean either."""
    given = [name for name, there in (("STREAM", chosen.stream is not None), ("--all", chosen.all)) if there]
    if len(given) != 1:
        raise InvalidStartpointRequest.one_of(["STREAM[:PARTITION]", "--all"], given)


def target_of(chosen: argparse.Namespace, streams: Sequence[str], where: str) -> tuple[str, list[int] | None]:
    """(stream, partitions or None for all). Names of streams may themselves end like a partition."""
    text, named = chosen.stream, chosen.partition
    match = _WITH_PARTITION.fullmatch(text)
    if text in streams:
        if named is None and match is not None and match[1] in streams:
            raise InvalidStartpointRequest.ambiguous(text, match[1], int(match[2]))
        return text, named
    if match is not None and match[1] in streams:
        if named is not None:
            raise InvalidStartpointRequest.partition_twice(text, named[0])
        return match[1], [int(match[2])]
    raise UnknownStream.from_known(text, streams, where)


def ssps_of(log: StreamLog, chosen: argparse.Namespace, known: KnownJob | None) -> list[SSP]:
    """The SSPs that are meant. Raises `UnknownStream` and `InvalidStartpointRequest`."""
    if chosen.all:
        return list(ranges_on(log, [] if known is None else sorted(known.sources)))
    stream, partitions = target_of(chosen, log.streams(), str(log.directory))
    count = log.stream(stream).partitions
    return [SSP(LOG_SYSTEM, stream, partition) for partition in (range(count) if partitions is None else partitions)]


def positions_of(log: StreamLog, known: KnownJob) -> Consumers:
    """Who consumes what, and where they are."""
    partitions = {stream: log.stream(stream).partitions for stream in known.positions}
    return consumers(known.positions, partitions, broadcast=known.broadcast)


def check_consumed(chosen: argparse.Namespace, ssps: Iterable[SSP], positions: Consumers) -> None:
    """Raises `InvalidStartpointRequest` for what nobody would ever take."""
    for ssp in ssps:
        tasks = [task for task, of_task in positions.items() if ssp in of_task]
        if not tasks:
            known = {str(other) for of_task in positions.values() for other in of_task}
            raise InvalidStartpointRequest.not_consumed(str(ssp), chosen.application, known)
        if chosen.task is not None and chosen.task not in tasks:
            what = f"{ssp} in a task {chosen.task!r}"
            raise InvalidStartpointRequest.not_consumed(
                what, chosen.application, [f"{ssp} in {task}" for task in tasks]
            )


def requests_of(
    log: StreamLog, chosen: argparse.Namespace, ssps: Sequence[SSP], positions: Consumers, created: int
) -> list[Request]:
    """The startpoints that are to be written, all made at `created`."""
    if chosen.shift is not None:
        ranges = ranges_on(log, {ssp.stream for ssp in ssps})
        return shift_by(positions, ranges, chosen.shift, ssps=ssps, task=chosen.task, created=created)
    startpoint = _startpoint(log, chosen, ssps, created)
    return [Request(ssp, startpoint, chosen.task) for ssp in ssps]


def _startpoint(log: StreamLog, chosen: argparse.Namespace, ssps: Sequence[SSP], created: int) -> Startpoint:
    by = chosen.by or "event"
    if chosen.offset is not None:
        return StartpointSpecific(chosen.offset, created=created)
    if chosen.at is not None:
        return StartpointTimestamp(_time(chosen.at), by, created=created)
    if chosen.ago is not None:
        return by_duration_on(log, {ssp.stream for ssp in ssps}, chosen.ago, by, created=created)
    return StartpointOldest(created=created) if chosen.oldest else StartpointUpcoming(created=created)


def _time(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidStartpointRequest.not_a_time(text) from error
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)
