"""Which startpoint each task takes for each SSP. Pure: the manager does what is decided here, and a preview shows it.

Source: "Startpoints" design document, "Fan-out". Beyond it: what an earlier start has taken and not yet consumed takes
part in the decision instead of being overwritten, and whatever is not taken is told.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from workbench.errors import UnresolvableStartpoint
from workbench.names import SSP
from workbench.startpoints.model import STALE_AFTER, Startpoint, time_text

Assignment = Mapping[str, Collection[SSP]]
"""Task name → the SSPs that it consumes."""

Resolve = Callable[[SSP, Startpoint], int]
"""The offset that a startpoint means; raises `UnresolvableStartpoint`."""


class Source(StrEnum):
    """What a startpoint was written for."""

    SSP = "ssp"
    """The SSP, in whichever tasks consume it."""
    TASK = "task"
    """The SSP in one task."""


@dataclass(frozen=True)
class Request:
    """A startpoint as it was written: for an SSP in all tasks, or in one."""

    ssp: SSP
    startpoint: Startpoint
    task: str | None = None

    @property
    def source(self) -> Source:
        return Source.SSP if self.task is None else Source.TASK

    def __str__(self) -> str:
        return f"{self.startpoint} for {self.ssp}" + (f" in {self.task}" if self.task is not None else "")


class Receipt(NamedTuple):
    """Names one startpoint that a start has taken. Plain JSON: `Receipt(*saved)` restores it."""

    task: str
    system: str
    stream: str
    partition: int
    id: str

    @property
    def ssp(self) -> SSP:
        return SSP(self.system, self.stream, self.partition)


@dataclass(frozen=True)
class FannedOut:
    """A startpoint that a start has taken for one task and that no commit has covered yet.

    `id` is unique: the same startpoint written and taken again is another one. `time` is when it was taken, in
    milliseconds since the epoch, UTC. It never goes stale, as the run may have been where it points already.
    """

    task: str
    ssp: SSP
    startpoint: Startpoint
    source: Source
    id: str
    time: int

    @property
    def receipt(self) -> Receipt:
        return Receipt(self.task, *self.ssp, self.id)

    def __str__(self) -> str:
        return f"{self.startpoint} for {self.ssp} in {self.task}"


@dataclass(frozen=True)
class Unreadable:
    """An entry of the metadata store that is no startpoint; it stays until somebody deletes it."""

    namespace: str
    key: str
    reason: str


class Overridden(NamedTuple):
    """A startpoint that a task does not take because `by` was made later, or as late and for this very task."""

    task: str
    startpoint: Request | FannedOut
    by: Request | FannedOut


@dataclass(frozen=True)
class Decision:
    """What a start takes, and what becomes of the rest."""

    winners: Mapping[tuple[str, SSP], Request | FannedOut]
    overridden: tuple[Overridden, ...]
    claimed: tuple[Request, ...]
    """Some task of this start consumes the SSP: taken or overridden, they are done with."""
    stale: tuple[Request, ...]
    unclaimed: tuple[Request, ...]
    """No task of this start consumes the SSP; another job of the application may."""
    orphaned: tuple[FannedOut, ...]
    """Taken earlier for a task that does not consume the SSP any more."""


def decide(
    requests: Iterable[Request],
    fanned_out: Iterable[FannedOut],
    assignment: Assignment,
    at: int,
    *,
    consumed: Collection[SSP] | None = None,
) -> Decision:
    """Of the startpoints for the same task and SSP the one made last wins; of two made at once the one for the task.

    `at` is now, in milliseconds. `consumed` names the SSPs that all jobs of the application consume: what was taken for
    others is orphaned. Without it only SSPs of this assignment are, as another job may consume the rest.
    """
    requests = list(requests)
    fresh = {(request.ssp, request.task): request for request in requests if request.startpoint.is_fresh(at)}
    standing = {(taken.task, taken.ssp): taken for taken in fanned_out}
    winners: dict[tuple[str, SSP], Request | FannedOut] = {}
    overridden: list[Overridden] = []
    claimed: set[tuple[SSP, str | None]] = set()
    for task, ssps in assignment.items():
        for ssp in ssps:
            asked: list[Request | FannedOut] = []
            for key in ((ssp, None), (ssp, task)):
                if key in fresh:
                    claimed.add(key)
                    asked.append(fresh[key])
            if (task, ssp) in standing:
                asked.append(standing[task, ssp])
            if asked:
                winner = winners[task, ssp] = max(asked, key=_precedence)
                overridden += [Overridden(task, other, winner) for other in asked if other is not winner]
    ours = {ssp for ssps in assignment.values() for ssp in ssps}
    return Decision(
        winners=winners,
        overridden=tuple(overridden),
        claimed=tuple(request for key, request in fresh.items() if key in claimed),
        stale=tuple(request for request in requests if not request.startpoint.is_fresh(at)),
        unclaimed=tuple(request for key, request in fresh.items() if key not in claimed),
        orphaned=tuple(
            taken
            for (task, ssp), taken in standing.items()
            if (ssp in ours and ssp not in assignment.get(task, ()))
            or (ssp not in ours and consumed is not None and ssp not in consumed)
        ),
    )


@dataclass(frozen=True)
class FanOut:
    """What a start has taken. `applies`: task → SSP → startpoint, those of earlier starts included; only tasks that have one."""

    applies: Mapping[str, Mapping[SSP, FannedOut]]
    decision: Decision
    unreadable: tuple[Unreadable, ...]

    def __iter__(self) -> Iterator[FannedOut]:
        return (taken for of_task in self.applies.values() for taken in of_task.values())

    def __bool__(self) -> bool:
        return any(self.applies.values())

    @property
    def receipts(self) -> list[Receipt]:
        """What the commit that covers them has to hand to `StartpointManager.remove_consumed`."""
        return [taken.receipt for taken in self]

    def resolved(self, resolve: Resolve) -> dict[str, dict[SSP, int]]:
        """Task → SSP → first offset to consume. Raises one `UnresolvableStartpoint` that tells of all there are.

        Within the transaction of the fan-out, so that a start that is refused has taken nothing.
        """
        offsets: dict[str, dict[SSP, int]] = {task: {} for task in self.applies}
        errors: dict[str, UnresolvableStartpoint] = {}
        for taken in self:
            try:
                offsets[taken.task][taken.ssp] = resolve(taken.ssp, taken.startpoint)
            except UnresolvableStartpoint as error:
                errors.setdefault(str(error), error)
        if errors:
            raise UnresolvableStartpoint.several(list(errors.values()))
        return offsets

    def notices(self) -> list[str]:
        """Sentences about every startpoint that was not applied, for whoever starts the job."""
        decision = self.decision
        return [
            *(f"The startpoint {lost.startpoint} is overridden in {lost.task} by {lost.by}." for lost in decision.overridden),
            *(f"The startpoint {request} was not applied: {stale_text(request.startpoint)}." for request in decision.stale),
            *(f"The startpoint {request} waits: no task of this job consumes that." for request in decision.unclaimed),
            *(f"The startpoint {taken} was given up: {taken.task} does not consume {taken.ssp} any more." for taken in decision.orphaned),
            *(f"An entry of {entry.namespace!r} was skipped. {entry.reason}" for entry in self.unreadable),
        ]  # fmt: skip


def stale_text(startpoint: Startpoint) -> str:
    """Why a startpoint is stale: "it was made at …, more than 12 h before the start"."""
    return f"it was made at {time_text(startpoint.created)}, not within {STALE_AFTER // 3_600_000} h of the start"


def _precedence(candidate: Request | FannedOut) -> tuple[int, bool, bool]:
    # Last: written anew in the same millisecond means the new one.
    return candidate.startpoint.created, candidate.source is Source.TASK, isinstance(candidate, Request)
