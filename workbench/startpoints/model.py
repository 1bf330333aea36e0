"""Startpoints: the position from which an SSP is consumed at the next start, whatever the checkpoint says.

Source: "Startpoints" design document of Apache Samza (SEP-18). A startpoint says what is meant, not an offset; the
system that holds the SSP resolves it, through a visitor, when a start takes it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Protocol, TypeVar

from workbench.errors import InvalidStartpoint, UnresolvableStartpoint
from workbench.names import SSP

STALE_AFTER = 12 * 3_600_000
"""Milliseconds after which a startpoint that no start has taken is not meant any more."""

TIMES = ("event", "append")
"""What a timestamp may refer to: the rows' event times, or the times at which messages were appended."""

_LARGEST = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_Result_co = TypeVar("_Result_co", covariant=True)


def now() -> int:
    """The system clock in milliseconds since the epoch, UTC."""
    return time.time_ns() // 1_000_000


class StartpointVisitor(Protocol[_Result_co]):
    """What a system does with each kind of startpoint, for one SSP; resolving it to an offset, mostly.

    A system subclasses this and leaves out what it does not support: those raise `UnresolvableStartpoint`.
    """

    @property
    def ssp(self) -> SSP:
        """The SSP that the startpoint is for."""

    def visit_specific(self, startpoint: StartpointSpecific) -> _Result_co:
        raise UnresolvableStartpoint.unsupported(self.ssp, startpoint, type(self).__name__)

    def visit_timestamp(self, startpoint: StartpointTimestamp) -> _Result_co:
        raise UnresolvableStartpoint.unsupported(self.ssp, startpoint, type(self).__name__)

    def visit_oldest(self, startpoint: StartpointOldest) -> _Result_co:
        raise UnresolvableStartpoint.unsupported(self.ssp, startpoint, type(self).__name__)

    def visit_upcoming(self, startpoint: StartpointUpcoming) -> _Result_co:
        raise UnresolvableStartpoint.unsupported(self.ssp, startpoint, type(self).__name__)


@dataclass(frozen=True)
class Startpoint(ABC):
    """One of the four kinds below.

    `created`: when it was made, milliseconds since the epoch, UTC; by default now. Of two for the same SSP and task the
    one made later is meant. Raises `InvalidStartpoint` for values that can not be.
    """

    created: int = field(default_factory=now, kw_only=True)
    KIND: ClassVar[str]
    """`@type` in JSON."""

    def __post_init__(self) -> None:
        _check_whole("creation time", self.created, -_LARGEST - 1)

    @abstractmethod
    def accept(self, visitor: StartpointVisitor[_Result_co]) -> _Result_co:
        """What the visitor makes of it."""

    def is_fresh(self, at: int) -> bool:
        """Whether it is still meant at a time: made less than twelve hours before.

        One that claims to be made twelve hours ahead or more is not fresh either: its creation time is in another unit
        or of a wrong clock, and it would win over every other for years.
        """
        return abs(at - self.created) < STALE_AFTER

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, in Samza's words. `startpoint_from_json` is the inverse."""
        return {"@type": self.KIND, "creationTimestamp": self.created}


@dataclass(frozen=True)
class StartpointSpecific(Startpoint):
    """The message at `offset` is the first to be consumed. (A checkpoint names the last one that was.)"""

    offset: int
    KIND: ClassVar[str] = "StartpointSpecific"

    def __post_init__(self) -> None:
        Startpoint.__post_init__(self)
        _check_whole("offset", self.offset, 0)

    def accept(self, visitor: StartpointVisitor[_Result_co]) -> _Result_co:
        return visitor.visit_specific(self)

    def to_json(self) -> dict[str, Any]:
        # As text: offsets are text in Samza, where each system has its own.
        return {**Startpoint.to_json(self), "specificOffset": str(self.offset)}

    def __str__(self) -> str:
        return f"offset {self.offset}"


@dataclass(frozen=True)
class StartpointTimestamp(Startpoint):
    """The first message at or after a time is the first to be consumed; the next one to come if there is none.

    `timestamp` is in milliseconds since the epoch, UTC. by="event": the first row with an event time of at least
    `timestamp`. All messages before it are earlier, so every row of that time or later is consumed; as rows may be out
    of order, some rows behind it are earlier too, and they are consumed as well. by="append": the first message that
    was appended then or later, exactly, control messages included.
    """

    timestamp: int
    by: str = "event"
    KIND: ClassVar[str] = "StartpointTimestamp"

    def __post_init__(self) -> None:
        Startpoint.__post_init__(self)
        _check_whole("timestamp", self.timestamp, -_LARGEST - 1)
        if self.by not in TIMES:
            raise InvalidStartpoint.unknown_time(self.by, TIMES)

    def accept(self, visitor: StartpointVisitor[_Result_co]) -> _Result_co:
        return visitor.visit_timestamp(self)

    def to_json(self) -> dict[str, Any]:
        # Samza knows one time only, that of the record, which is the event time where the producer sets it. The key for
        # the other one makes Samza refuse what it would misunderstand.
        other = {} if self.by == "event" else {"by": self.by}
        return {**Startpoint.to_json(self), "timestampOffset": self.timestamp, **other}

    def __str__(self) -> str:
        return f"{self.by} time {time_text(self.timestamp)}"


@dataclass(frozen=True)
class StartpointOldest(Startpoint):
    """The oldest message that is still kept is the first to be consumed."""

    KIND: ClassVar[str] = "StartpointOldest"

    def accept(self, visitor: StartpointVisitor[_Result_co]) -> _Result_co:
        return visitor.visit_oldest(self)

    def __str__(self) -> str:
        return "oldest"


@dataclass(frozen=True)
class StartpointUpcoming(Startpoint):
    """Nothing of what is there when a start takes it is consumed; the next message to come is the first."""

    KIND: ClassVar[str] = "StartpointUpcoming"

    def accept(self, visitor: StartpointVisitor[_Result_co]) -> _Result_co:
        return visitor.visit_upcoming(self)

    def __str__(self) -> str:
        return "upcoming"


def time_text(milliseconds: int) -> str:
    """ISO 8601 in UTC, as short as it can be said; the number where no calendar has it."""
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds} ms"
    return moment.isoformat(timespec="milliseconds" if milliseconds % 1_000 else "seconds").replace("+00:00", "Z")


def _check_whole(what: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidStartpoint.wrong_type(what, "a whole number", value)
    if not least <= value <= _LARGEST:
        raise InvalidStartpoint.out_of_range(what, value, least)
