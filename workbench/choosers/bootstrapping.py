"""Reads some streams up to the head they had at the start, before anything else.

Source: "Pluggable MessageChooser", section "Bootstrapping state streams"; `BootstrappingChooser` of Apache Samza, which
waits for ever for a partition that retention has emptied and for a marker without an offset, and which only opens a gate:
there, the others can pass as soon as a bootstrap message is outstanding.
"""

from __future__ import annotations

from collections.abc import Mapping

from workbench.choosers.base import MessageChooser, Outstanding
from workbench.choosers.envelope import IncomingEnvelope
from workbench.names import SSP


class BootstrappingChooser(MessageChooser):
    """Keeps the messages of all other streams from `inner` until each bootstrap SSP has reached its head at the start.

    An SSP lags from `start` on until a message at or after the last one before its head is chosen, or nothing before
    its head can come any more (`reached`). Once caught up it never lags again, however much is appended. What was kept
    back is then given to `inner` in the order it came, ahead of the message that follows the last one chosen.

    Never waited for: an SSP that starts at or after its head, one whose messages retention has taken, one that was not
    registered, and one that is registered after the start. A marker without an offset (an end or a drain that a system
    adds) says that nothing follows; a watermark without one says nothing. Where offsets have gaps, give the offset
    after the newest message as the head.
    """

    def __init__(
        self, inner: MessageChooser, heads: Mapping[SSP, int], oldest: Mapping[SSP, int] | None = None
    ) -> None:
        """`heads` and `oldest` at the start, the former for each SSP of each bootstrap stream and for no other."""
        self._inner = inner
        self._heads = dict(heads)
        self._oldest = dict(oldest or {})
        self._streams = {(ssp.system, ssp.stream) for ssp in heads}
        self._starts: dict[SSP, int] = {}
        self._lagging: set[SSP] = set()
        self._kept_back = Outstanding()

    @property
    def lagging(self) -> frozenset[SSP]:
        """Who the others wait for."""
        return frozenset(self._lagging)

    def register(self, ssp: SSP, offset: int | None) -> None:
        """Of several offsets of one SSP the lowest counts; None is its oldest message."""
        start = max(0 if offset is None else offset, self._oldest.get(ssp, 0))
        self._starts[ssp] = min(start, self._starts.get(ssp, start))
        self._inner.register(ssp, offset)

    def start(self) -> None:
        self._lagging = {ssp for ssp, head in self._heads.items() if self._starts.get(ssp, head) < head}
        self._inner.start()

    def stop(self) -> None:
        self._inner.stop()

    def update(self, envelope: IncomingEnvelope) -> None:
        if envelope.offset is not None:
            self.reached(envelope.ssp, envelope.offset)
        if self._lagging and envelope.ssp[:2] not in self._streams:
            self._kept_back.add(envelope)
        else:
            self._inner.update(envelope)

    def choose(self) -> IncomingEnvelope | None:
        envelope = self._inner.choose()
        if envelope is None:
            return None
        if envelope.offset is not None:
            self.reached(envelope.ssp, envelope.offset + 1)
        elif envelope.is_end or envelope.is_drain:
            self._caught_up(envelope.ssp)
        return envelope

    def reached(self, ssp: SSP, offset: int) -> None:
        """No message of `ssp` before `offset` will come: it has been chosen, or retention has taken it."""
        if ssp in self._lagging and offset >= self._heads[ssp]:
            self._caught_up(ssp)

    def _caught_up(self, ssp: SSP) -> None:
        self._lagging.discard(ssp)
        if not self._lagging:
            while (envelope := self._kept_back.take_first()) is not None:
                self._inner.update(envelope)
