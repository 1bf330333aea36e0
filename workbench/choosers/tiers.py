"""Higher priorities first.

Source: `TieredPriorityChooser` of Apache Samza; "Pluggable MessageChooser", section "Streams with different latency SLAs".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from workbench.choosers.base import MakeChooser, MessageChooser
from workbench.choosers.envelope import IncomingEnvelope
from workbench.errors.choosers import InvalidChooser
from workbench.names import SSP

DEFAULT_PRIORITY = 0
HIGHEST_PRIORITY = 2**31 - 1
"""Of intermediate and of bootstrap streams, unless the user says otherwise: what is in flight precedes what is new."""


def checked_priority(value: object) -> int:
    """A priority that an input may be given: an integer below that of intermediate streams. Raises `InvalidChooser`."""
    if isinstance(value, bool) or not isinstance(value, int) or value >= HIGHEST_PRIORITY:
        raise InvalidChooser.priority(value, HIGHEST_PRIORITY)
    return value


def checked_bootstrap(value: object) -> bool:
    """Whether an input is a bootstrap stream; raises `InvalidChooser` unless that is True or False."""
    if not isinstance(value, bool):
        raise InvalidChooser.bootstrap(value)
    return value


class TieredPriorityChooser(MessageChooser):
    """One chooser for each priority; a lower one is asked when none of the higher ones gives anything.

    Strict: a busy input of high priority starves the lower ones. An SSP without a priority has `DEFAULT_PRIORITY`.
    """

    def __init__(
        self,
        priority_of: Callable[[SSP], int] | Mapping[SSP, int],
        make_chooser: MakeChooser,
    ) -> None:
        """`make_chooser` makes the chooser of one tier, which sees only the SSPs of that tier."""
        self._priority_of = _looked_up(priority_of) if isinstance(priority_of, Mapping) else priority_of
        self._make_chooser = make_chooser
        self._tiers: dict[int, MessageChooser] = {}
        self._tier_of: dict[SSP, MessageChooser] = {}
        self._started = False

    def register(self, ssp: SSP, offset: int | None) -> None:
        self._tier(ssp).register(ssp, offset)

    def start(self) -> None:
        self._started = True
        for tier in self._tiers.values():
            tier.start()

    def stop(self) -> None:
        for tier in self._tiers.values():
            tier.stop()

    def update(self, envelope: IncomingEnvelope) -> None:
        tier = self._tier_of.get(envelope.ssp)
        (self._tier(envelope.ssp) if tier is None else tier).update(envelope)

    def choose(self) -> IncomingEnvelope | None:
        for tier in self._tiers.values():
            envelope = tier.choose()
            if envelope is not None:
                return envelope
        return None

    def _tier(self, ssp: SSP) -> MessageChooser:
        priority = self._priority_of(ssp)
        if priority not in self._tiers:
            tier = self._make_chooser()
            if self._started:
                tier.start()
            self._tiers[priority] = tier
            self._tiers = dict(sorted(self._tiers.items(), reverse=True))
        self._tier_of[ssp] = self._tiers[priority]
        return self._tier_of[ssp]


def _looked_up(priorities: Mapping[SSP, int]) -> Callable[[SSP], int]:
    return lambda ssp: priorities.get(ssp, DEFAULT_PRIORITY)
