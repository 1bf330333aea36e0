"""`workbench startpoint set | list | preview | delete`: startpoints from another process, also while the job runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from workbench.commands import _startpoint_target as targets
from workbench.errors import InvalidStartpointRequest, UnknownApplication, UnresolvableStartpoint
from workbench.names import LOG_SYSTEM, SSP
from workbench.startpoints.fan_out import FannedOut, Request, stale_text
from workbench.startpoints.manager import StartpointManager
from workbench.startpoints.model import (
    TIMES,
    now,
    time_text,
)
from workbench.startpoints.preview import Consumers, PreviewRow, preview_frame
from workbench.systems.log import StreamLog
from workbench.systems.log.startpoints import preview_on, resolve_on

_WAYS = ("--oldest", "--upcoming", "--offset", "--at", "--ago", "--shift")


def add_to(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
    provider: targets.Provider = targets.known_job,
    clock: Callable[[], int] = now,
) -> None:
    """Add the command `startpoint` to a command line whose parsers have a default `run`."""
    command = subparsers.add_parser("startpoint", help="where the next start of an application begins to read")
    verbs = command.add_subparsers(required=True, metavar="VERB")

    def verb(
        name: str, help: str, run: Callable[[argparse.Namespace, targets.Provider, Callable[[], int]], int]
    ) -> Any:
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


def _set(chosen: argparse.Namespace, provider: targets.Provider, clock: Callable[[], int]) -> int:
    log = StreamLog(chosen.log, create=False)
    manager = StartpointManager(log, chosen.application, clock)
    given = [way for way in _WAYS if getattr(chosen, way[2:]) not in (None, False)]
    if len(given) != 1:
        raise InvalidStartpointRequest.one_of(_WAYS, given)
    if chosen.by is not None and given[0] not in ("--at", "--ago"):
        raise InvalidStartpointRequest.without_time("--by")
    targets.check_target(chosen)
    try:
        known = provider(log, chosen.application)
    except UnknownApplication:
        # One that is to run for the first time may begin elsewhere too; only nothing can be told of where it is.
        if chosen.all or chosen.dry_run or chosen.shift is not None:
            raise
        known = None
    ssps = targets.ssps_of(log, chosen, known)
    positions = {} if known is None else targets.positions_of(log, known)
    if known is not None:
        targets.check_consumed(chosen, ssps, positions)
    requests = targets.requests_of(log, chosen, ssps, positions, clock())
    _check_resolvable(log, requests)
    rows = _with(log, manager, requests, positions, clock())
    if not chosen.dry_run:
        manager.write_all(requests)
    if known is None:
        print(f"No run of {chosen.application!r} is known on this log yet; its first start takes what is set.")
    else:
        _print_rows([row for row in rows if SSP(LOG_SYSTEM, str(row.stream), row.partition or 0) in ssps])
    if chosen.shift is not None:
        _print_shortened(rows, requests, chosen.shift)
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


def _print_shortened(rows: Sequence[PreviewRow], requests: Sequence[Request], shift: int) -> None:
    meant = {(request.ssp.stream, request.ssp.partition) for request in requests}
    short = sum(
        row.state == "applies"
        and (row.stream, row.partition) in meant
        and row.resolved is not None
        and row.current is not None
        and row.resolved - row.current != shift
        for row in rows
    )
    if short:
        print(f"{short} of them go less far than {shift:+,}: only as far as their partition goes.")


def _list(chosen: argparse.Namespace, provider: targets.Provider, clock: Callable[[], int]) -> int:
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


def _preview(chosen: argparse.Namespace, provider: targets.Provider, clock: Callable[[], int]) -> int:
    log = StreamLog(chosen.log, create=False)
    manager = StartpointManager(log, chosen.application, clock)
    positions = targets.positions_of(log, provider(log, chosen.application))
    stored, (taken, broken) = manager.all(), manager.fan_outs()
    unreadable = [*stored.unreadable, *broken]
    rows = preview_on(log, positions, stored.requests, taken, at=clock(), unreadable=unreadable)
    if rows:
        _print_rows(rows)
    else:
        print(f"There are no startpoints for {chosen.application!r}: its next start goes on by its checkpoint.")
    return 1 if any(row.state.startswith("unresolvable") for row in rows) else 0


def _delete(chosen: argparse.Namespace, provider: targets.Provider, clock: Callable[[], int]) -> int:
    log = StreamLog(chosen.log, create=False)
    manager = StartpointManager(log, chosen.application, clock)
    if chosen.unreadable:
        if chosen.stream is not None or chosen.all:
            raise InvalidStartpointRequest.one_of(["STREAM", "--all", "--unreadable"], ["--unreadable", "another"])
        print(f"{manager.delete_unreadable()} unreadable entries deleted.")
        return 0
    targets.check_target(chosen)
    with log.metadata.transaction():
        stored, (taken, _) = manager.all(), manager.fan_outs()
        # Startpoints may outlive their stream.
        gone = [request.ssp.stream for request in stored.requests] + [each.ssp.stream for each in taken]
        streams = sorted({*log.streams(), *gone})
        stream, partitions = (None, None) if chosen.all else targets.target_of(chosen, streams, str(log.directory))

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
