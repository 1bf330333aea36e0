"""Choosers from a function: one that picks an envelope, or one that says what to sort by."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import Any

from workbench.choosers.base import MessageChooser, Outstanding
from workbench.choosers.envelope import IncomingEnvelope
from workbench.errors import InvalidChoice
from workbench.names import SSP

Pick = Callable[[list[IncomingEnvelope]], IncomingEnvelope | None]
"""One of the outstanding envelopes, which are in the order they came; None for none at the moment."""

SortKey = Callable[[IncomingEnvelope], Any]
"""What to compare an envelope by. None, and what is not equal to itself (NaN), waits for nobody."""


class FunctionChooser(MessageChooser):
    """Asks a function which of the outstanding rows goes next.

    Control messages go at once and are not shown to the function: so it can look into each payload. Nothing is gained
    by holding one back, as it is behind all the data that it speaks of. To see them, too, write a `MessageChooser`.
    """

    def __init__(self, pick: Pick) -> None:
        self._pick = pick
        self._outstanding = Outstanding()
        self._at_once: deque[SSP] = deque()

    def update(self, envelope: IncomingEnvelope) -> None:
        self._outstanding.add(envelope)
        if envelope.is_control:
            self._at_once.append(envelope.ssp)

    def choose(self) -> IncomingEnvelope | None:
        if self._at_once:
            return self._outstanding.take(self._at_once.popleft())
        if not self._outstanding:
            return None
        rows = self._outstanding.envelopes()
        picked = self._pick(rows)
        if picked is None:
            return None
        if not isinstance(picked, IncomingEnvelope) or self._outstanding.get(picked.ssp) is not picked:
            name = getattr(self._pick, "__name__", repr(self._pick))
            there = [(row.ssp, row.offset) for row in self._outstanding.envelopes()]
            raise InvalidChoice.not_outstanding(name, picked, there)
        return self._outstanding.take(picked.ssp)


class SortKeyChooser(MessageChooser):
    """The outstanding row with the lowest key, or the highest; of equal ones the one that came first.

    The key of a row is computed once. Control messages, and rows whose key is None or NaN, go at once, in the order they
    came.
    """

    def __init__(self, key: SortKey, *, highest_first: bool = False) -> None:
        self._key = key
        self._highest_first = highest_first
        self._outstanding = Outstanding()
        self._heap: list[tuple[Any, int, SSP]] = []
        self._at_once: deque[SSP] = deque()
        self._arrivals = 0

    def update(self, envelope: IncomingEnvelope) -> None:
        self._outstanding.add(envelope)
        key = None if envelope.is_control else self._key(envelope)
        if key is None or key != key:
            self._at_once.append(envelope.ssp)
            return
        self._arrivals += 1
        heapq.heappush(self._heap, (_Reversed(key) if self._highest_first else key, self._arrivals, envelope.ssp))

    def choose(self) -> IncomingEnvelope | None:
        if self._at_once:
            return self._outstanding.take(self._at_once.popleft())
        return self._outstanding.take(heapq.heappop(self._heap)[2]) if self._heap else None


class by:
    """Makes choosers that take the row with the lowest key first: `chooser=by(lambda e: e.payload["amount"])`.

    `highest_first=True` takes the highest. See `SortKeyChooser`.
    """

    def __init__(self, key: SortKey, *, highest_first: bool = False) -> None:
        self.key = key
        self.highest_first = highest_first

    def __call__(self) -> SortKeyChooser:
        return SortKeyChooser(self.key, highest_first=self.highest_first)

    @property
    def __name__(self) -> str:
        return f"by {getattr(self.key, '__name__', 'key').strip('<>')}{', highest first' * self.highest_first}"


class _Reversed:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and bool(self.value == other.value)

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.value < self.value)
