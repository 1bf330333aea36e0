"""DrainMonitor: how a running job notices that it shall drain."""

from __future__ import annotations

from workbench.drain.notification import DrainNotification
from workbench.drain.store import Unreadable, read_notifications
from workbench.metadata import MetadataStore


class DrainMonitor:
    """Looks for notifications for one run whenever it is polled. It has no thread and no clock.

    The job's source polls it before each plan, the first included; so a notification written before the run started is
    noticed as any other. (Samza's monitor polls once a minute on a thread of its own, and its first failure ends it.)

    `ignored` and `unreadable` are what the newest poll found beside that: notifications for other runs, oldest first,
    and values that are no notification, by key.
    """

    def __init__(self, metadata: MetadataStore, run_id: str) -> None:
        self.run_id = run_id
        self.ignored: list[DrainNotification] = []
        self.unreadable: list[Unreadable] = []
        self._metadata = metadata
        self._seen: DrainNotification | None = None
        self._reported: set[Unreadable] = set()

    def poll(self) -> DrainNotification | None:
        """The oldest notification for this run, or None. What was returned once is returned ever after.

        Later notifications are the same drain, and removing one does not undo it: a drain is final.
        """
        found = read_notifications(self._metadata)
        self.ignored = [notification for notification in found.valid if notification.run_id != self.run_id]
        self.unreadable = found.unreadable
        if self._seen is None:
            self._seen = next(iter(found.of_run(self.run_id)), None)
        return self._seen

    def take_unreadable(self) -> list[Unreadable]:
        """Those of `unreadable` that no earlier call has returned, so that each is reported once."""
        new = [unreadable for unreadable in self.unreadable if unreadable not in self._reported]
        # Only what is still there is remembered: the same damage done again is news again.
        self._reported = set(self.unreadable)
        return new
