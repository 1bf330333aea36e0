"""What waits in one SSP of a task when a batch is planned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.choosers.envelope import IncomingEnvelope, LaneContent
from workbench.choosers.tiers import DEFAULT_PRIORITY
from workbench.errors import InvalidChooser
from workbench.messages import MessageType
from workbench.names import SSP
from workbench.times import NO_TIME

Times = npt.NDArray[np.int64]

_AT_ONCE = 4_096
"""Messages of a lane for which times and kinds are turned into Python objects at a time."""

_KINDS = tuple(MessageType)


@dataclass(frozen=True, eq=False)
class LaneArrivals:
    """`count` messages that wait in `ssp`, with contiguous offsets from `start_offset` on.

    Count all that waits, or at least as many as the limit of the batch. Where retention has taken messages,
    `start_offset` is behind them: what can not come is not waited for.
    """

    ssp: SSP
    count: int
    start_offset: int = 0
    priority: int = DEFAULT_PRIORITY
    bootstrap: bool = False
    """Whether other streams wait until `head_at_start` has been reached. False while a job drains."""
    started_at: int | None = None
    """The first offset that this run reads of it; None: `start_offset`."""
    head_at_start: int | None = None
    """Its head when the run started. None for an SSP that appeared later: nothing waits for it, and it had no lag."""
    head: int | None = None
    """The offset that its next message will get, now; None: the end of what waits."""
    event_times: Times | Callable[[int], Times] | None = None
    """Milliseconds since the epoch, `NO_TIME` for control messages and rows without a time; or a function that reads
    those of the first *n*, called only if they decide something. None: none has a time."""
    kinds: npt.NDArray[np.uint8] | None = None
    """The `MessageType` of each, for choosers that go message by message; None: all are rows."""
    content: LaneContent | None = None
    """Keys and payloads, for choosers of a user's own."""

    @property
    def first_offset(self) -> int:
        return self.start_offset if self.started_at is None else self.started_at

    @property
    def starting_head(self) -> int:
        return self.first_offset if self.head_at_start is None else self.head_at_start

    @property
    def current_head(self) -> int:
        return self.start_offset + self.count if self.head is None else self.head

    @property
    def missing(self) -> int:
        """How many messages it still lacks of those it must have read before other streams are; 0 if it does not lag."""
        lags = self.bootstrap and self.count > 0
        return max(0, self.starting_head - self.start_offset) if lags else 0

    def times(self, count: int) -> Times | None:
        """The event times of the first `count` messages; None if none is known. Raises `InvalidChooser`."""
        if self.event_times is None:
            return None
        times = self.event_times(count) if callable(self.event_times) else self.event_times
        if len(times) < count:
            raise InvalidChooser.wrong_length(self.ssp, "event times", len(times), count)
        return times[:count]

    def envelopes(self, limit: int, first: int = 0) -> Iterator[IncomingEnvelope]:
        """At most `limit` of the messages from the index `first` on, one by one."""
        last = min(self.count, first + limit)
        times = self.times(last) if first < last else None
        for start in range(first, last, _AT_ONCE):
            stop = min(last, start + _AT_ONCE)
            offsets = range(self.start_offset + start, self.start_offset + stop)
            stamps: Sequence[int | None] = [None] * (stop - start)
            if times is not None:
                stamps = [None if time == NO_TIME else time for time in times[start:stop].tolist()]
            kinds = [MessageType.USER] * (stop - start)
            if self.kinds is not None:
                kinds = [_KINDS[kind] for kind in self.kinds[start:stop].tolist()]
            positions = range(start, stop)
            for offset, time, kind, position in zip(offsets, stamps, kinds, positions, strict=True):
                yield IncomingEnvelope(self.ssp, offset, time, kind, self.content, position)


def checked_lanes(lanes: Sequence[LaneArrivals], limit: int) -> None:
    """Raises `InvalidChooser` if an SSP is given twice, or the limit is no number of messages."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise InvalidChooser.limit(limit)
    seen: set[SSP] = set()
    for lane in lanes:
        if lane.ssp in seen:
            raise InvalidChooser.same_lane_twice(lane.ssp)
        seen.add(lane.ssp)
        if lane.kinds is not None and len(lane.kinds) < lane.count:
            raise InvalidChooser.wrong_length(lane.ssp, "kinds", len(lane.kinds), lane.count)
