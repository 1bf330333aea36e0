"""Keeps inputs as far apart as they were when the job started, in messages.

Source: "Pluggable MessageChooser", section "Maintain starting alignment", the last of its proposals (SAMZA-67).
"""

from __future__ import annotations

from collections.abc import Callable

from workbench.choosers.base import MessageChooser, Outstanding
from workbench.choosers.envelope import IncomingEnvelope
from workbench.names import SSP


class StartingAlignmentChooser(MessageChooser):
    """The message of the SSP that lags most, compared with how much it lagged at the start.

    The document tells three cases. While all inputs, or some, are further behind their heads than they were at the
    start, the one that has fallen back most goes first. When all are nearer to their heads than they were, the one that
    is nearest to its alignment goes first, that is the one that has gained least: with 10 and 100 messages gained, the
    one with 10. Read with a sign, (lag now) − (lag at the start), all three ask for the largest, so there is one rule.

    Here it is kept for each SSP, not for whole streams, since messages are outstanding by SSP. Ties are broken by the
    order of SSPs, which takes equal ones in turn, since to choose one is to move it ahead by one. A marker without an
    offset lags nowhere and goes at once.
    """

    def __init__(self, head_of: Callable[[SSP], int], starting_head_of: Callable[[SSP], int] | None = None) -> None:
        """`head_of` tells the offset that the next message of an SSP will get, now; `starting_head_of` what that was at
        the start, None: what it is when the SSP is registered."""
        self._head_of = head_of
        self._starting_head_of = starting_head_of or head_of
        self._starting_lags: dict[SSP, int] = {}
        self._outstanding = Outstanding()

    def register(self, ssp: SSP, offset: int | None) -> None:
        if offset is not None:
            self._starting_lags[ssp] = self._starting_head_of(ssp) - offset

    def update(self, envelope: IncomingEnvelope) -> None:
        self._outstanding.add(envelope)
        if envelope.offset is not None and envelope.ssp not in self._starting_lags:
            self.register(envelope.ssp, envelope.offset)  # nobody said where it starts, so it starts here

    def choose(self) -> IncomingEnvelope | None:
        if not self._outstanding:
            return None
        return self._outstanding.take(min(self._outstanding.envelopes(), key=self._gained).ssp)

    def _gained(self, envelope: IncomingEnvelope) -> tuple[float, SSP]:
        if envelope.offset is None:
            return float("-inf"), envelope.ssp
        lag = self._head_of(envelope.ssp) - envelope.offset
        return self._starting_lags[envelope.ssp] - lag, envelope.ssp
