"""Which SSPs a job may read now: bootstrap streams first, in all tasks, before anything else in any.

Source: "Pluggable MessageChooser", section "Bootstrapping state streams". Decided for the whole job, since a table that
one task has read may be joined in another.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from workbench.names import SSP


@dataclass(frozen=True)
class LanePosition:
    """Where one SSP of the job stands.

    `position` is the next offset to read, `oldest` the first that is kept. `head_at_start` is the head when the run
    started; None for an SSP that appeared later. `ended` means that nothing of it will be read any more: it ended, or the
    job drains and takes no new source messages.
    """

    ssp: SSP
    position: int
    bootstrap: bool = False
    oldest: int = 0
    head_at_start: int | None = None
    ended: bool = False

    @property
    def missing(self) -> int:
        """How many messages must be read of it before other streams are."""
        if not self.bootstrap or self.ended or self.head_at_start is None:
            return 0
        return max(0, self.head_at_start - max(self.position, self.oldest))


@dataclass(frozen=True)
class Admission:
    """Who may be read now, and, if not all, whom the others wait for: bootstrap SSP → messages it still lacks."""

    admitted: frozenset[SSP]
    waits_for: dict[SSP, int]

    @property
    def all_admitted(self) -> bool:
        return not self.waits_for


def admitted_lanes(lanes: Iterable[LanePosition]) -> Admission:
    """The SSPs that may be read in the next batch.

    While a bootstrap SSP has not reached the head it had at the start, these are the SSPs of bootstrap streams only; the
    ones that have caught up are among them. Nobody waits for an SSP that starts at its head or later, that retention has
    emptied, that has ended, or that appeared after the start.
    """
    lanes = list(lanes)
    waits_for = {lane.ssp: lane.missing for lane in lanes if lane.missing}
    admitted = frozenset(lane.ssp for lane in lanes if lane.bootstrap or not waits_for)
    return Admission(admitted, waits_for)
