"""Drain notifications in the metadata store: written by anyone, read by the job, removed when the run has drained.

One value for each notification, under its uuid. A value that can not be read is told beside the others and harms none of
them; in Samza it makes every read fail.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from workbench.drain.notification import DrainMode, DrainNotification
from workbench.errors.drain import InvalidNotification
from workbench.metadata import MetadataStore

NAMESPACE = "samza-drain-v1"
"""The namespace that Samza's controllers write to."""


@dataclass(frozen=True)
class Unreadable:
    """A value that is no notification: its key, and why in a sentence."""

    key: str
    why: str


@dataclass(frozen=True)
class Notifications:
    """All that is in the namespace: what can be read, oldest first, and what can not, by key.

    Those that do not say when they were requested come last; equals are ordered by uuid.
    """

    valid: list[DrainNotification]
    unreadable: list[Unreadable]

    def of_run(self, run_id: str) -> list[DrainNotification]:
        """Those for one run, oldest first."""
        return [notification for notification in self.valid if notification.run_id == run_id]


def write_notification(
    metadata: MetadataStore,
    run_id: str,
    mode: DrainMode = DrainMode.DEFAULT,
    *,
    uuid: UUID | None = None,
    now_ms: int | None = None,
) -> DrainNotification:
    """Ask the run `run_id` to drain. The run need not have started. Raises `InvalidNotification` for an empty run id.

    Several notifications for one run are one drain. Source: `DrainUtils.writeDrainNotification`, which takes the run id
    from the job's configuration in the store; here one store serves many jobs, so it is given.
    """
    notification = DrainNotification.create(run_id, mode=mode, uuid=uuid, now_ms=now_ms)
    metadata.put(NAMESPACE, str(notification.uuid), notification.to_json())
    return notification


def read_notifications(metadata: MetadataStore) -> Notifications:
    """Every notification there is, for any run. Raises for no content, only where the store itself can not be read."""
    valid: list[DrainNotification] = []
    unreadable: list[Unreadable] = []
    for key, value in metadata.all(NAMESPACE).items():
        try:
            valid.append(DrainNotification.from_json(value))
        except InvalidNotification as error:
            unreadable.append(Unreadable(key, str(error)))
    return Notifications(sorted(valid, key=_age), unreadable)


def clean_up(metadata: MetadataStore, run_id: str) -> int:
    """Remove all notifications for one run; how many there were. Those for other runs and unreadable ones stay."""
    with metadata.transaction() as transaction:
        return sum(transaction.delete(NAMESPACE, key) for key in _keys_of(run_id, transaction.all(NAMESPACE).items()))


def clean_up_in(connection: sqlite3.Connection, run_id: str) -> int:
    """`clean_up` as part of a transaction of the log: `also=` of `StreamLog.commit`."""
    rows = connection.execute("SELECT key, value FROM metadata WHERE namespace = ?", (NAMESPACE,)).fetchall()
    keys = _keys_of(run_id, rows)
    connection.executemany("DELETE FROM metadata WHERE namespace = ? AND key = ?", [(NAMESPACE, key) for key in keys])
    return len(keys)


def clean_up_all(metadata: MetadataStore) -> int:
    """Remove everything from the namespace, for whatever run, readable or not; how many values there were."""
    return metadata.delete_all(NAMESPACE)


def _keys_of(run_id: str, values: Iterable[tuple[str, bytes]]) -> list[str]:
    """Keys rather than uuids: who wrote a notification under another key than its uuid gets it removed as well."""
    found = []
    for key, value in values:
        try:
            notification = DrainNotification.from_json(value)
        except InvalidNotification:
            continue
        if notification.run_id == run_id:
            found.append(key)
    return found


def _age(notification: DrainNotification) -> tuple[bool, int, str]:
    return notification.requested is None, notification.requested or 0, str(notification.uuid)
