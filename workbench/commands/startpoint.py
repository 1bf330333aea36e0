"""`workbench startpoint set | list | preview | delete`: startpoints from another process, also while the job runs."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from workbench.errors import InvalidStartpointRequest, UnknownApplication, UnknownStream, UnresolvableStartpoint
from workbench.names import LOG_SYSTEM, SSP
from workbench.startpoints.fan_out import FannedOut, Request, stale_text
from workbench.startpoints.manager import StartpointManager
from workbench.startpoints.model import (
    TIMES,
    Startpoint,
    StartpointOldest,
    StartpointSpecific,
    StartpointTimestamp,
    StartpointUpcoming,
    now,
    time_text,
)
from workbench.startpoints.preview import Consumers, PreviewRow, consumers, preview_frame
from workbench.startpoints.shorthand import by_duration, shift_by
from workbench.systems.log import StreamLog
from workbench.systems.log.startpoints import latest_event_time, preview_on, ranges_on, resolve_on

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WITH_PARTITION = re.compile(r"(.+):([0-9]+)", re.ASCII | re.DOTALL)
_WAYS = ("--oldest", "--upcoming", "--offset", "--at", "--ago", "--shift")


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
    from workbench.engine.record import current_positions, open_record  # type: ignore[attr-defined, unused-ignore]

    inputs = open_record(log, application).outline.inputs
    return KnownJob(
        positions=current_positions(log, application),
        sources=[read.stream for read in inputs if not read.intermediate],
        broadcast=[read.stream for read in inputs if read.broadcast],
    )


def add_to(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
    provider: Provider = known_job,
    clock: Callable[[], int] = now,
) -> None:
    """Add the command `startpoint` to a command line whose parsers have a default `run`."""
    command = subparsers.add_parser("startpoint", help="where the next start of an application begins to read")
    verbs = command.add_subparsers(required=True, metavar="VERB")

    def verb(name: str, help: str, run: Callable[[argparse.Namespace, Provider, Callable[[], int]], int]) -> Any:
        parser = verbs.add_parser(name, help=help, description=help)
        parser.add_argument("log", type=Path, help="directory of the stream log")
        parser.add_argument("application", help="name of the application")
        parser.set_defaults(run=lambda chosen: run(chosen, provider, clock))
        return parser

    setting = verb("set", "set where SSPs are read from at the next start", _set)
    _add_target(setting, "every source of the application")
    way = setting.add_mutually_exclusive_group()
    way.add_argument("--oldest", action="store_true", help="the oldest message that is kept")
    way.add_argument("--upcoming", action="store_true", help="the next message to come")
    way.add_argument("--offset", type=int, help="the message at this offset")
    way.add_argument("--at", metavar="ISO-TIME", help="the first message at or after a time (UTC, if it has no zone)")
    way.add_argument(
        "--ago",
        metavar="DURATION",
        help='so long ago, such as "2h": before the latest event time there is, or with --by append before now',
    )
    way.add_argument("--shift", type=int, metavar="N", help="N messages on from the current position; −N: back")
    setting.add_argument("--by", choices=TIMES, help="which time --at and --ago mean (default: event)")
    setting.add_argument("--task", help='only in this task, such as "Partition 2" (for broadcast streams)')
    setting.add_argument("--dry-run", action="store_true", help="only show what it would do")
    verb("list", "list the startpoints there are", _list)
    verb("preview", "show what the next start will replay or skip", _preview)
    deleting = verb("delete", "take startpoints back", _delete)
    _add_target(deleting, "all startpoints of the application")
    deleting.add_argument("--task", help="only those for this task")
    deleting.add_argument("--unreadable", action="store_true", help="the entries that are no startpoints")


def _add_target(parser: argparse.ArgumentParser, everything: str) -> None:
    parser.add_argument(
        "stream", nargs="?", metavar="STREAM[:PARTITION]", help="a whole stream, or one partition of it"
    )
    parser.add_argument("--partition", type=int, action="append", help="a partition of the stream; may be repeated")
    parser.add_argument("--all", action="store_true", help=everything)


def _set(chosen: argparse.Namespace, provider: Provider, clock: Callable[[], int]) -> int:
    log = StreamLog(chosen.log, create=False)
    manager = StartpointManager(log, chosen.application, clock)
    given = [way for way in _WAYS if getattr(chosen, way[2:]) not in (None, False)]
    if len(given) != 1:
        raise InvalidStartpointRequest.one_of(_WAYS, given)
    if chosen.by is not None and given[0] not in ("--at", "--ago"):
        raise InvalidStartpointRequest.without_time("--by")
    _check_target(chosen)
    try:
        known = provider(log, chosen.application)
    except UnknownApplication:
        # One that is to run for the first time may begin elsewhere too; only nothing can be told of where it is.
        if chosen.all or chosen.dry_run or chosen.shift is not None:
            raise
        known = None
    ssps = _ssps(log, chosen, known)
    positions = {} if known is None else _positions(log, known)
    if known is not None:
        _check_consumed(chosen, ssps, positions)
    requests = _requests(log, chosen, ssps, positions, clock())
    _check_resolvable(log, requests)
    rows = _with(log, manager, requests, positions, clock())
    if not chosen.dry_run:
        manager.write_all(requests)
    if known is None:
        print(f"No run of {chosen.application!r} is known on this log yet; its first start takes what is set.")
    else:
        _print_rows([row for row in rows if SSP(LOG_SYSTEM, str(row.stream), row.partition or 0) in ssps])
    print(
        "Dry run: nothing was written."
        if chosen.dry_run
        else f"{len(requests)} startpoint(s) set; the next start of {chosen.application!r} takes them."
    )
    return 0


def _check_resolvable(log: StreamLog, requests: Iterable[Request]) -> None:
    """Raises `UnresolvableStartpoint` that tells of all, so that nobody learns it only when the next start is refused."""
    resolve = resolve_on(log)
    errors = []
    for request in requests:
        try:
            resolve(request.ssp, request.startpoint)
        except UnresolvableStartpoint as error:
            errors.append(error)
    if errors:
        raise UnresolvableStartpoint.several(errors)


def _with(
    log: StreamLog, manager: StartpointManager, requests: Sequence[Request], positions: Consumers, at: int
) -> list[PreviewRow]:
    """The preview as if the requests were written already."""
    replaced = {(request.ssp, request.task) for request in requests}
    others = [request for request in manager.all().requests if (request.ssp, request.task) not in replaced]
    return preview_on(log, positions, [*others, *requests], manager.fan_outs()[0], at=at)


def _list(chosen: argparse.Namespace, provider: Provider, clock: Callable[[], int]) -> int:
    import pandas

    manager = StartpointManager(StreamLog(chosen.log, create=False), chosen.application, clock)
    stored, (taken, broken) = manager.all(), manager.fan_outs()
    entries: list[tuple[Request | FannedOut, str]] = [
        *((each, "waits for a start") for each in stored.fresh),
        *((each, "stale") for each in stored.stale),
        *((each, "taken by a start, not yet consumed") for each in taken),
    ]
    rows = [
        (str(each.ssp), each.task or "all", str(each.startpoint), time_text(each.startpoint.created), state)
        for each, state in entries
    ]
    unreadable = [*stored.unreadable, *broken]
    if rows:
        print(pandas.DataFrame(rows, columns=["ssp", "task", "startpoint", "made", "state"]).to_string(index=False))
    elif not unreadable:
        print(f"There are no startpoints for {chosen.application!r}.")
    for request in stored.stale:
        print(f"The startpoint {request} will not be applied: {stale_text(request.startpoint)}.")
    for entry in unreadable:
        print(f"Unreadable: {entry.reason}")
    return 0


def _preview(chosen: argparse.Namespace, provider: Provider, clock: Callable[[], int]) -> int:
    log = StreamLog(chosen.log, create=False)
    manager = StartpointManager(log, chosen.application, clock)
    positions = _positions(log, provider(log, chosen.application))
    stored, (taken, broken) = manager.all(), manager.fan_outs()
    unreadable = [*stored.unreadable, *broken]
    rows = preview_on(log, positions, stored.requests, taken, at=clock(), unreadable=unreadable)
    if rows:
        _print_rows(rows)
    else:
        print(f"There are no startpoints for {chosen.application!r}: its next start goes on by its checkpoint.")
    return 1 if any(row.state.startswith("unresolvable") for row in rows) else 0


def _delete(chosen: argparse.Namespace, provider: Provider, clock: Callable[[], int]) -> int:
    log = StreamLog(chosen.log, create=False)
    manager = StartpointManager(log, chosen.application, clock)
    if chosen.unreadable:
        if chosen.stream is not None or chosen.all:
            raise InvalidStartpointRequest.one_of(["STREAM", "--all", "--unreadable"], ["--unreadable", "another"])
        print(f"{manager.delete_unreadable()} unreadable entries deleted.")
        return 0
    _check_target(chosen)
    with log.metadata.transaction():
        stored, (taken, _) = manager.all(), manager.fan_outs()
        # Startpoints may outlive their stream.
        gone = [request.ssp.stream for request in stored.requests] + [each.ssp.stream for each in taken]
        streams = sorted({*log.streams(), *gone})
        stream, partitions = (None, None) if chosen.all else _target(chosen, streams, str(log.directory))

        def meant(ssp: SSP, task: str | None) -> bool:
            return (
                stream in (None, ssp.stream)
                and (partitions is None or ssp.partition in partitions)
                and chosen.task in (None, task)
            )

        written = [each for each in stored.requests if meant(each.ssp, each.task)]
        begun = [each for each in taken if meant(each.ssp, each.task)]
        for request in written:
            manager.delete(request.ssp, request.task)
        for each in begun:
            manager.remove_fan_out(each.task, [each.ssp])
    for request in written:
        print(f"Deleted: {request}.")
    for each in begun:
        print(
            f"Deleted: {each}. A start had taken it already; if that run fails before it consumes it, the checkpoint holds."
        )
    if not written and not begun:
        print("There was no such startpoint.")
    return 0


def _check_target(chosen: argparse.Namespace) -> None:
    given = [name for name, there in (("STREAM", chosen.stream is not None), ("--all", chosen.all)) if there]
    if len(given) != 1:
        raise InvalidStartpointRequest.one_of(["STREAM[:PARTITION]", "--all"], given)


def _target(chosen: argparse.Namespace, streams: Sequence[str], where: str) -> tuple[str, list[int] | None]:
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


def _ssps(log: StreamLog, chosen: argparse.Namespace, known: KnownJob | None) -> list[SSP]:
    if chosen.all:
        return list(ranges_on(log, [] if known is None else sorted(known.sources)))
    stream, partitions = _target(chosen, log.streams(), str(log.directory))
    count = log.stream(stream).partitions
    return [SSP(LOG_SYSTEM, stream, partition) for partition in (range(count) if partitions is None else partitions)]


def _positions(log: StreamLog, known: KnownJob) -> Consumers:
    partitions = {stream: log.stream(stream).partitions for stream in known.positions}
    return consumers(known.positions, partitions, broadcast=known.broadcast)


def _check_consumed(chosen: argparse.Namespace, ssps: Iterable[SSP], positions: Consumers) -> None:
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


def _requests(
    log: StreamLog, chosen: argparse.Namespace, ssps: Sequence[SSP], positions: Consumers, created: int
) -> list[Request]:
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
        before = created
        if by == "event":
            # One time for all streams that are meant, so that what belongs together is repeated together.
            streams = sorted({ssp.stream for ssp in ssps})
            latest = [time for name in streams if (time := latest_event_time(log, name)) is not None]
            if not latest:
                raise InvalidStartpointRequest.without_event_times(", ".join(streams))
            before = max(latest)
        return by_duration(chosen.ago, by, before=before, created=created)
    return StartpointOldest(created=created) if chosen.oldest else StartpointUpcoming(created=created)


def _time(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidStartpointRequest.not_a_time(text) from error
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)


def _print_rows(rows: Sequence[PreviewRow]) -> None:
    frame = preview_frame(rows)
    told = list(dict.fromkeys(row.state for row in rows if ": " in row.state))
    frame["state"] = [state.partition(": ")[0] for state in frame["state"]]
    # Control messages, and what is taken already, only where there is something to see.
    for column in ("replayed_control", "skipped_control", "taken"):
        if not frame[column].fillna(0).any():
            frame = frame.drop(columns=column)
    print(frame.to_string(index=False, na_rep=""))
    replayed, skipped = (sum(getattr(row, name) or 0 for row in rows) for name in ("replayed", "skipped"))
    print(f"Replayed: {replayed:,} messages. Skipped: {skipped:,}.")
    for state in told:
        print(state[0].upper() + state[1:])
