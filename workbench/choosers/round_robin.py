"""One message of each SSP in turn.

Source: `RoundRobinChooser` of Apache Samza, the default, with the error that its comment promises.
"""

from __future__ import annotations

from workbench.choosers.base import MessageChooser, Outstanding
from workbench.choosers.envelope import IncomingEnvelope


class RoundRobinChooser(MessageChooser):
    """The message that has waited longest. With one outstanding message of each SSP this takes the SSPs in turn."""

    def __init__(self) -> None:
        self._outstanding = Outstanding()

    def update(self, envelope: IncomingEnvelope) -> None:
        self._outstanding.add(envelope)

    def choose(self) -> IncomingEnvelope | None:
        return self._outstanding.take_first()
