"""StartpointManager: startpoints in the metadata store, from the tool that writes one to the commit that covers it.

Source: "Startpoints" design document, "StartpointManager".
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from workbench.errors import InvalidStartpoint, InvalidStartpointRequest
from workbench.metadata import MetadataStore, SqliteMetadataStore
from workbench.names import SSP, checked_name
from workbench.startpoints import encoding, store
from workbench.startpoints.fan_out import Assignment, FannedOut, FanOut, Receipt, Request, Unreadable, decide
from workbench.startpoints.model import STALE_AFTER, Startpoint, now, time_text
from workbench.startpoints.store import FAN_OUT_NAMESPACE, WRITTEN_NAMESPACE, Stored


@runtime_checkable
class HasMetadata(Protocol):
    """A stream log, say."""

    @property
    def metadata(self) -> MetadataStore: ...


class StartpointManager:
    """The startpoints of one application, and of all its jobs where it is split.

    `place` is a metadata store or a log. `write`, `read`, `delete`, `all` are for people and their tools, at any time,
    also while a job runs; each call is atomic, and several writers do not disturb each other. `fan_out` is for a job's
    start, `remove_consumed` for the commit of its batches. `clock` tells milliseconds since the epoch, UTC.
    """

    def __init__(self, place: MetadataStore | HasMetadata, application: str, clock: Callable[[], int] = now) -> None:
        self._store = place.metadata if isinstance(place, HasMetadata) else place
        self.application = checked_name(application, "application")
        self._clock = clock

    def write(self, ssp: SSP, startpoint: Startpoint, task: str | None = None) -> None:
        """Set where an SSP is consumed from at the next start, in all tasks or in one; an earlier one is replaced.

        Raises `InvalidName` and `InvalidStartpoint`, the latter also for a startpoint that would be stale at once.
        """
        self.write_all([Request(ssp, startpoint, task)])

    def write_all(self, requests: Iterable[Request]) -> None:
        """`write` several: all or none."""
        at = self._clock()
        encoded: dict[str, bytes | str] = {}
        for request in requests:
            startpoint = request.startpoint
            if not isinstance(startpoint, Startpoint):
                raise InvalidStartpoint.wrong_type("position", "one of the four kinds", startpoint)
            if not startpoint.is_fresh(at):
                created = time_text(startpoint.created)
                hours = STALE_AFTER // 3_600_000
                raise InvalidStartpoint.not_fresh(startpoint, created, hours, ahead=startpoint.created > at)
            encoded[self._key(request.ssp, request.task)] = encoding.encoded(startpoint.to_json())
        self._store.put_all(WRITTEN_NAMESPACE, encoded)

    def read(self, ssp: SSP, task: str | None = None) -> Startpoint | None:
        """The startpoint written for an SSP, or for (SSP, task); None if there is none or it is stale.

        Raises `InvalidStartpoint` where what is there can not be read.
        """
        value = self._store.get(WRITTEN_NAMESPACE, self._key(ssp, task))
        startpoint = None if value is None else encoding.startpoint_from_json(encoding.decoded(value))
        return startpoint if startpoint is not None and startpoint.is_fresh(self._clock()) else None

    def delete(self, ssp: SSP, task: str | None = None) -> bool:
        """Take back what was written for an SSP, or for (SSP, task): each leaves the other. False if there was none."""
        return self._store.delete(WRITTEN_NAMESPACE, self._key(ssp, task))

    def delete_all(self) -> int:
        """Take back all that was written for this application, unreadable entries included; how many there were."""
        return self._delete_where(WRITTEN_NAMESPACE, lambda key: True)

    def delete_unreadable(self) -> int:
        """Delete the entries that `all` and `fan_outs` call unreadable; how many there were.

        Those whose key tells no application are among them: every application reports them.
        """
        with self._store.transaction() as values:
            broken = [*store.written(values, self.application)[1], *store.fanned_out(values, self.application)[1]]
            return sum(values.delete(entry.namespace, entry.key) for entry in broken)

    def all(self) -> Stored:
        """Everything written that no start has taken, in the order of SSP and task."""
        requests, unreadable = store.written(self._store, self.application)
        at = self._clock()
        fresh = tuple(request for request in requests if request.startpoint.is_fresh(at))
        stale = tuple(request for request in requests if not request.startpoint.is_fresh(at))
        return Stored(fresh, stale, tuple(unreadable))

    def fan_out(self, assignment: Assignment, *, consumed: Collection[SSP] | None = None) -> FanOut:
        """Take, for a start, what was written for the SSPs of each task: see `decide` for who wins.

        One transaction: what was written is gone exactly when it is taken. Inside another one it is part of that, so a
        start that can not resolve what it took can give it back by failing:

            with log.transaction():
                taken = manager.fan_out(assignment)
                offsets = taken.resolved(resolve_on(log))

        Taken startpoints that no commit has covered are taken again. Stale ones are deleted, whoever they were for; an
        entry that can not be read is left and reported. `consumed` are the SSPs of all jobs of the application: see
        `decide`. Raises `InvalidStartpointRequest` for an assignment without tasks, `InvalidName`.
        """
        if not assignment:
            raise InvalidStartpointRequest.without_tasks(self.application)
        for task, ssps in assignment.items():
            checked_name(task, "task")
            for ssp in ssps:
                encoding.checked_ssp(ssp)
        with self._store.transaction() as values:
            at = self._clock()
            requests, unreadable = store.written(values, self.application)
            standing, broken = store.fanned_out(values, self.application)
            decision = decide(requests, standing, assignment, at, consumed=consumed)
            applies: dict[str, dict[SSP, FannedOut]] = {}
            records: dict[str, bytes | str] = {}
            for (task, ssp), winner in decision.winners.items():
                if isinstance(winner, Request):
                    winner = FannedOut(task, ssp, winner.startpoint, winner.source, uuid.uuid4().hex, at)
                    records[encoding.fan_out_key(self.application, task, ssp)] = store.record(winner)
                applies.setdefault(task, {})[ssp] = winner
            values.put_all(FAN_OUT_NAMESPACE, records)
            for request in (*decision.claimed, *decision.stale):
                values.delete(WRITTEN_NAMESPACE, self._key(request.ssp, request.task))
            for taken in decision.orphaned:
                values.delete(FAN_OUT_NAMESPACE, encoding.fan_out_key(self.application, taken.task, taken.ssp))
        replaced = {entry.key for entry in broken} & records.keys()
        left = [entry for entry in broken if entry.key not in replaced]
        return FanOut(applies, decision, (*unreadable, *left))

    def fan_outs(self) -> tuple[tuple[FannedOut, ...], tuple[Unreadable, ...]]:
        """(what is taken and not yet covered by a commit, entries that can not be read)."""
        standing, unreadable = store.fanned_out(self._store, self.application)
        return tuple(standing), tuple(unreadable)

    def fan_out_of(self, task: str) -> dict[SSP, FannedOut]:
        """What is taken for a task and not yet covered by a commit."""
        return {taken.ssp: taken for taken in self.fan_outs()[0] if taken.task == task}

    def remove_fan_out(self, task: str, ssps: Collection[SSP] | None = None) -> int:
        """Give up what was taken for a task, for all its SSPs or for some; how many there were. See `remove_consumed`."""
        keys = None if ssps is None else {encoding.fan_out_key(self.application, task, ssp) for ssp in ssps}
        return self._delete_where(
            FAN_OUT_NAMESPACE,
            lambda key: store.task_of(key) == task if keys is None else key in keys,
        )

    def remove_all_fan_outs(self) -> int:
        """Give up all that was taken for this application, unreadable entries included; how many there were."""
        return self._delete_where(FAN_OUT_NAMESPACE, lambda key: True)

    def remove_consumed(self, receipts: Iterable[Receipt]) -> int:
        """Remove what a commit has covered; how many were there.

        Only the very startpoints that the receipts name: one that was written and taken again meanwhile stays, so a
        commit that comes late, or twice, takes nothing from the next start.
        """
        removed = 0
        with self._store.transaction() as values:
            for receipt in receipts:
                key = encoding.fan_out_key(self.application, receipt.task, receipt.ssp)
                value = values.get(FAN_OUT_NAMESPACE, key)
                if value is not None and store.id_of(value) == receipt.id:
                    removed += values.delete(FAN_OUT_NAMESPACE, key)
        return removed

    def _key(self, ssp: SSP, task: str | None) -> str:
        if task is not None:
            checked_name(task, "task")
        return encoding.written_key(self.application, encoding.checked_ssp(ssp), task)

    def _delete_where(self, namespace: str, wanted: Callable[[str], bool]) -> int:
        with self._store.transaction() as values:
            keys = [
                key for key in values.all(namespace) if encoding.application_of(key) == self.application and wanted(key)
            ]
            return sum(values.delete(namespace, key) for key in keys)


def remove_consumed_in(connection: sqlite3.Connection, application: str, receipts: Iterable[Receipt]) -> int:
    """`StartpointManager.remove_consumed` as part of the transaction that `connection` is in: a batch's commit."""
    return StartpointManager(SqliteMetadataStore(_Inside(connection)), application).remove_consumed(receipts)


class _Inside:
    """Somebody else's transaction as the database of a metadata store: it begins and ends nothing of its own."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        if not connection.in_transaction:
            raise sqlite3.ProgrammingError("the connection is in no transaction that a removal could be part of")
        self._connection = connection

    def connection(self) -> sqlite3.Connection:
        return self._connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        yield self._connection

    reading = writing
