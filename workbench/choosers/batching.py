"""Stays with an SSP for some messages, so that runs of one SSP are longer.

Source: "Pluggable MessageChooser", last section; `BatchingChooser` of Apache Samza, which makes runs of two for a size of
one, wraps the priorities instead of being within one, and can lose a message.
"""

from __future__ import annotations

from workbench.choosers.base import MessageChooser
from workbench.choosers.envelope import IncomingEnvelope
from workbench.errors import InvalidChoice, InvalidChooser
from workbench.names import SSP


class BatchingChooser(MessageChooser):
    """Asks `inner` only after `size` messages of the SSP that it chose, or when that has no message outstanding.

    Used around the chooser of one tier (see `compose`), so a batch never holds back a higher priority; it goes on where
    it was when the higher priority has nothing left. Between batches, while nothing else is chosen, the count goes on.
    """

    def __init__(self, inner: MessageChooser, size: int) -> None:
        """Raises `InvalidChooser` unless `size` is a whole number of at least 1; 1 makes runs of one."""
        self._inner = inner
        self._size = checked_batch_size(size)
        self._preferred: SSP | None = None
        self._next: IncomingEnvelope | None = None
        """The outstanding message of the preferred SSP; `inner` does not know of it."""
        self._count = 0

    def register(self, ssp: SSP, offset: int | None) -> None:
        self._inner.register(ssp, offset)

    def start(self) -> None:
        self._inner.start()

    def stop(self) -> None:
        self._inner.stop()

    def update(self, envelope: IncomingEnvelope) -> None:
        if envelope.ssp != self._preferred:
            self._inner.update(envelope)
            return
        if self._next is not None:
            raise InvalidChoice.already_outstanding(envelope.ssp, envelope.offset, self._next.offset)
        self._next = envelope

    def choose(self) -> IncomingEnvelope | None:
        envelope, self._next = self._next, None
        if envelope is None:
            envelope = self._inner.choose()
            if envelope is None:
                return None
            self._preferred, self._count = envelope.ssp, 0
        self._count += 1
        if self._count >= self._size:
            self._preferred = None
        return envelope


def checked_batch_size(size: object) -> int:
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise InvalidChooser.batch_size(size)
    return size
