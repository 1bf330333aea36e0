"""Applications that are split into several jobs."""

from __future__ import annotations

from workbench.errors._base import TidemarkError


class SplitConflict(TidemarkError):
    """A job of a split application that can not start beside, or after, what other jobs have done."""

    @classmethod
    def closed(cls, part: str, application: str, operator: str) -> SplitConflict:
        return cls(
            f"{operator!r} can not be added to {part!r}, which is a part of the split application {application!r}. Declare"
            " all operators first, then split."
        )

    @classmethod
    def ran_otherwise(cls, job: str, others: list[str]) -> SplitConflict:
        listed = ", ".join(map(repr, others))
        return cls(
            f"{job!r} can not start: the same application ran on this log as {listed}, and neither split nor whole takes"
            " over from the other. Deploy it as before, or under another name."
        )

    @classmethod
    def unread(cls, job: str, stream: str, reader: str, messages: int) -> SplitConflict:
        return cls(
            f"{job!r} begins anew, but {reader!r} has not read all of {stream!r} yet: {messages:,} messages are left. Drain"
            f" {reader!r} first (deploy it if it does not run)."
        )

    @classmethod
    def undrained(cls, job: str, stream: str, reader: str) -> SplitConflict:
        return cls(
            f"{job!r} begins anew, but {reader!r}, which reads {stream!r}, goes on with what it heard before: what comes"
            f" now would be late there. Drain {reader!r} first, too."
        )

    @classmethod
    def deployed_too_early(cls, job: str, stream: str, reader: str, partitions: int) -> SplitConflict:
        return cls(
            f"{job!r} gives {stream!r} {partitions} partitions, and {reader!r} was deployed with another number already."
            f" Drain {reader!r}, then deploy {job!r} before it."
        )
