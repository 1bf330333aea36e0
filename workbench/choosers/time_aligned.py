"""Keeps inputs together in event time, so that joins and sorts hold little.

Source: "Pluggable MessageChooser", section "Time-aligned streams", which left this to users, as an envelope had no time.
"""

from __future__ import annotations

from workbench.choosers.base import MessageChooser, Outstanding
from workbench.choosers.envelope import IncomingEnvelope
from workbench.names import SSP
from workbench.times import NO_TIME


class TimeAlignedChooser(MessageChooser):
    """The message with the lowest event time; of equal ones that of the first SSP in their order.

    Control messages and rows without a time go at once: they hold nothing back, and nothing is gained by waiting. An
    SSP with nothing outstanding is not waited for.
    """

    def __init__(self) -> None:
        self._outstanding = Outstanding()

    def update(self, envelope: IncomingEnvelope) -> None:
        self._outstanding.add(envelope)

    def choose(self) -> IncomingEnvelope | None:
        if not self._outstanding:
            return None
        return self._outstanding.take(min(self._outstanding.envelopes(), key=_time_and_ssp).ssp)


def _time_and_ssp(envelope: IncomingEnvelope) -> tuple[int, SSP]:
    return (NO_TIME if envelope.event_time is None else envelope.event_time), envelope.ssp
