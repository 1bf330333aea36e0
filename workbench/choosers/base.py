"""The contract between whoever reads the inputs and whoever decides which message goes next.

Source: "Pluggable MessageChooser", and the life cycle that Samza added to it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable

from workbench.choosers.envelope import IncomingEnvelope
from workbench.errors import InvalidChoice
from workbench.names import SSP


class MessageChooser(ABC):
    """Decides which of the outstanding messages, at most one of each SSP, a task processes next.

    `register` is called for each SSP, then `start`, then `update` and `choose` in any order, `stop` at last. An SSP that
    appears later is registered when it does. As soon as an envelope has been chosen, the next one of its SSP follows by
    `update`, if there is one; so a chooser orders SSPs, and never reorders within one.

    A chooser need not be thread-safe, and what it remembers is not restored after a restart: what it chose is recorded
    with the batch, so that a replay does not ask again.
    """

    def register(self, ssp: SSP, offset: int | None) -> None:  # noqa: B027 (many choosers need not know)
        """`ssp` will be read from `offset` on; None if that is not known."""

    def start(self) -> None:  # noqa: B027
        """All SSPs that there are have been registered."""

    def stop(self) -> None:  # noqa: B027
        """Nothing more will be asked."""

    @abstractmethod
    def update(self, envelope: IncomingEnvelope) -> None:
        """A message is there to be chosen.

        Raises `InvalidChoice`, naming the SSP, if one of the same SSP is outstanding.
        """

    @abstractmethod
    def choose(self) -> IncomingEnvelope | None:
        """The message to process next, each once; None for nothing at the moment, even if some are outstanding."""


MakeChooser = Callable[[], MessageChooser]
"""Makes one chooser. Each task, and each priority within it, has one of its own."""


class Outstanding:
    """The outstanding envelopes, at most one of each SSP, the one that has waited longest first."""

    def __init__(self) -> None:
        self._envelopes: OrderedDict[SSP, IncomingEnvelope] = OrderedDict()

    def add(self, envelope: IncomingEnvelope) -> None:
        """Raises `InvalidChoice` if one of the same SSP is there."""
        waiting = self._envelopes.setdefault(envelope.ssp, envelope)
        if waiting is not envelope:
            raise InvalidChoice.already_outstanding(envelope.ssp, envelope.offset, waiting.offset)

    def take(self, ssp: SSP) -> IncomingEnvelope:
        return self._envelopes.pop(ssp)

    def take_first(self) -> IncomingEnvelope | None:
        return self._envelopes.popitem(last=False)[1] if self._envelopes else None

    def envelopes(self) -> list[IncomingEnvelope]:
        return list(self._envelopes.values())

    def get(self, ssp: SSP) -> IncomingEnvelope | None:
        return self._envelopes.get(ssp)

    def __len__(self) -> int:
        return len(self._envelopes)
