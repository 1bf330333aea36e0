"""What the next start will do with the startpoints there are: a function, so that it can be asked before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING

from workbench.errors import UnresolvableStartpoint
from workbench.names import LOG_SYSTEM, SSP, task_name
from workbench.startpoints.fan_out import FannedOut, Request, Resolve, Unreadable, decide, stale_text

if TYPE_CHECKING:
    import pandas as pd

Consumers = Mapping[str, Mapping[SSP, int | None]]
"""Task name → SSP → the next offset it will read by its checkpoint; None where it has none yet."""

Ranges = Mapping[SSP, tuple[int, int]]
"""SSP → (oldest offset kept, offset of the next message to come)."""

Count = Callable[[SSP, int, int], tuple[int, int]]
"""(user messages, control messages) from one offset up to, not including, another."""

_UNKNOWN = "<NA>"


@dataclass(frozen=True)
class PreviewRow:
    """One startpoint in one task. None: not known, or it does not apply.

    `source`: "ssp" or "task", what it was written for. `state`: "applies"; "overridden" (by one made later); "stale: …";
    "not consumed" (by any task known here); "unresolvable: …" (the start will be refused); "unreadable: …".
    `taken`: an earlier start has it already, and no commit has covered it yet.
    """

    task: str | None
    stream: str | None
    partition: int | None
    startpoint: str
    source: str | None
    current: int | None
    oldest: int | None
    head: int | None
    resolved: int | None
    replayed: int | None
    skipped: int | None
    replayed_control: int | None
    skipped_control: int | None
    taken: bool
    state: str


def consumers(
    positions: Mapping[str, Sequence[int]],
    partitions: Mapping[str, int],
    *,
    broadcast: Collection[str] = (),
    system: str = LOG_SYSTEM,
) -> dict[str, dict[SSP, int | None]]:
    """Who consumes what, and where they are, from next offsets as a plan has them.

    `positions`: stream → for each partition, or for a broadcast stream for each task. `partitions`: stream → how many it
    has now; those it had not when the plan was made have no position yet. A stream with more positions than partitions
    is taken as broadcast.
    """
    found: dict[str, dict[SSP, int | None]] = {}
    for stream, offsets in positions.items():
        if stream in broadcast or len(offsets) > partitions[stream]:
            for task, offset in enumerate(offsets):
                found.setdefault(task_name(task), {})[SSP(system, stream, 0)] = offset
        else:
            for partition in range(partitions[stream]):
                known = offsets[partition] if partition < len(offsets) else None
                found.setdefault(task_name(partition), {})[SSP(system, stream, partition)] = known
    return found


def preview(
    positions: Consumers,
    requests: Iterable[Request],
    fanned_out: Iterable[FannedOut] = (),
    *,
    ranges: Ranges,
    resolve: Resolve,
    count: Count,
    at: int,
    unreadable: Iterable[Unreadable] = (),
) -> list[PreviewRow]:
    """One row for each startpoint and task that it concerns, in the order of task, stream and partition.

    It decides as a fan-out at the time `at` (milliseconds) does. Messages between the resolved and the current position
    are replayed where the one is behind, skipped where it is ahead; those that retention has removed count as neither.
    """
    decision = decide(requests, fanned_out, positions, at)

    def row(task: str | None, startpoint: Request | FannedOut, state: str) -> PreviewRow:
        ssp = startpoint.ssp
        current = positions.get(task, {}).get(ssp) if task is not None else None
        oldest, head = ranges.get(ssp, (None, None))
        resolved: int | None = None
        replayed: tuple[int | None, int | None] = (None, None)
        skipped: tuple[int | None, int | None] = (None, None)
        if state == "applies":
            try:
                resolved = resolve(ssp, startpoint.startpoint)
            except UnresolvableStartpoint as error:
                state = f"unresolvable: {error}"
        if resolved is not None and current is not None:
            known = current if oldest is None else max(oldest, current)
            replayed = count(ssp, resolved, known) if resolved < known else (0, 0)
            skipped = count(ssp, known, resolved) if resolved > known else (0, 0)
        return PreviewRow(
            task=task,
            stream=ssp.stream,
            partition=ssp.partition,
            startpoint=str(startpoint.startpoint),
            source=startpoint.source.value,
            current=current,
            oldest=oldest,
            head=head,
            resolved=resolved,
            replayed=replayed[0],
            skipped=skipped[0],
            replayed_control=replayed[1],
            skipped_control=skipped[1],
            taken=isinstance(startpoint, FannedOut),
            state=state,
        )

    rows = [row(task, winner, "applies") for (task, _), winner in decision.winners.items()]
    rows += [row(lost.task, lost.startpoint, "overridden") for lost in decision.overridden]
    rows += [row(request.task, request, f"stale: {stale_text(request.startpoint)}") for request in decision.stale]
    rows += [row(request.task, request, "not consumed") for request in decision.unclaimed]
    rows += [row(taken.task, taken, "not consumed") for taken in decision.orphaned]
    rows.sort(key=lambda each: (_number(each.task), each.stream or "", each.partition or 0, each.state != "applies"))
    return rows + [_unreadable(entry) for entry in unreadable]


def rewinds(positions: Consumers, offsets: Mapping[str, Mapping[SSP, int]]) -> dict[str, dict[SSP, tuple[int, int]]]:
    """Task → SSP → (current, resolved) where resolved startpoints (`FanOut.resolved`) lead back; only tasks with some.

    What is behind the current position comes a second time: a run must know what that does to its state.
    """
    found: dict[str, dict[SSP, tuple[int, int]]] = {}
    for task, of_task in offsets.items():
        for ssp, offset in of_task.items():
            current = positions.get(task, {}).get(ssp)
            if current is not None and offset < current:
                found.setdefault(task, {})[ssp] = (current, offset)
    return found


def preview_frame(rows: Iterable[PreviewRow]) -> pd.DataFrame:
    """The rows as a frame, one column for each field; offsets and counts are nullable integers."""
    import pandas

    names = [each.name for each in fields(PreviewRow)]
    whole = (
        "partition",
        "current",
        "oldest",
        "head",
        "resolved",
        "replayed",
        "skipped",
        "replayed_control",
        "skipped_control",
    )
    kinds = {name: "Int64" if name in whole else "bool" if name == "taken" else "object" for name in names}
    return pandas.DataFrame([astuple(row) for row in rows], columns=names).astype(kinds)


def _unreadable(entry: Unreadable) -> PreviewRow:
    missing = dict.fromkeys((each.name for each in fields(PreviewRow)), None)
    return PreviewRow(**{**missing, "startpoint": entry.key, "taken": False, "state": f"unreadable: {entry.reason}"})  # type: ignore[arg-type]


def _number(task: str | None) -> tuple[int, str]:
    """Tasks by their number, not by its digits; whatever concerns no task comes first."""
    digits = (task or "").rpartition(" ")[2]
    return (int(digits) if digits.isdecimal() and digits.isascii() else -1), task or ""
