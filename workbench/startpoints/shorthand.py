"""The ways people say where to start, as tools for resetting offsets have them: ago, shifted, whole streams, everything."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from workbench.errors import InvalidStartpointRequest
from workbench.names import LOG_SYSTEM, SSP
from workbench.startpoints.fan_out import Request
from workbench.startpoints.model import Startpoint, StartpointSpecific, StartpointTimestamp, now
from workbench.startpoints.preview import Consumers, Ranges
from workbench.windows.durations import Duration, milliseconds


def by_duration(
    ago: Duration, by: str = "event", *, before: int | None = None, created: int | None = None
) -> StartpointTimestamp:
    """The time that is `ago` ("2h", "15 min", a timedelta, milliseconds) earlier than `before`.

    `before` is in milliseconds since the epoch, UTC. For times of appending it is now by default; event times need not be
    near now, so they need one: the latest that the stream has, mostly (`systems.log.startpoints.by_duration_on`). Raises
    `InvalidDuration`, and `InvalidStartpointRequest` without a time to count back from.
    """
    made = now() if created is None else created
    if before is None:
        if by == "event":
            raise InvalidStartpointRequest.without_reference()
        before = made
    return StartpointTimestamp(before - milliseconds(ago, "ago"), by, created=made)


def whole_stream(
    stream: str,
    partitions: int | Iterable[int],
    startpoint: Startpoint,
    task: str | None = None,
    system: str = LOG_SYSTEM,
) -> list[Request]:
    """The startpoint for each partition: `partitions` is how many there are, or which ones are meant."""
    chosen = range(partitions) if isinstance(partitions, int) else partitions
    return [Request(SSP(system, stream, partition), startpoint, task) for partition in chosen]


def whole_application(
    partitions: Mapping[str, int], startpoint: Startpoint, task: str | None = None, system: str = LOG_SYSTEM
) -> list[Request]:
    """The startpoint for all partitions of several streams (stream → how many it has).

    To repeat an application, name its sources only: what they replay writes the intermediate streams anew, and what
    waits there is consumed as it would have been.
    """
    return [
        request
        for stream, count in partitions.items()
        for request in whole_stream(stream, count, startpoint, task, system)
    ]


def shift_by(
    positions: Consumers,
    ranges: Ranges,
    messages: int,
    *,
    ssps: Collection[SSP] | None = None,
    task: str | None = None,
    created: int | None = None,
) -> list[Request]:
    """Each SSP by so many messages from where it is: back where negative. Control messages count, as they have offsets.

    Where the range of a partition ends earlier the shift goes up to there. An SSP that several tasks consume (broadcast)
    is shifted in each from its own position. `ssps` and `task` choose some of `positions`. All get the creation time
    `created`, by default now. Raises `InvalidStartpointRequest` where a position is not known yet.
    """
    made = now() if created is None else created
    tasks_of: dict[SSP, list[str]] = {}
    for name, of_task in positions.items():
        for ssp in of_task:
            tasks_of.setdefault(ssp, []).append(name)
    requests = []
    for ssp, names in tasks_of.items():
        if ssps is not None and ssp not in ssps:
            continue
        oldest, head = ranges[ssp]
        for name in names if task is None else [each for each in names if each == task]:
            current = positions[name][ssp]
            if current is None:
                raise InvalidStartpointRequest.without_position(ssp, name)
            target = min(max(current + messages, oldest), head)
            for_task = name if task is not None or len(names) > 1 else None
            requests.append(Request(ssp, StartpointSpecific(target, created=made), for_task))
    return requests
