"""Message choosers: how they are configured, and what they must not do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from workbench.errors._base import TidemarkError, did_you_mean


class InvalidChooser(TidemarkError, ValueError):
    """A chooser that can not be configured so."""

    @classmethod
    def bootstrap(cls, value: object) -> InvalidChooser:
        return cls(f"bootstrap is True or False, not {value!r}.")

    @classmethod
    def priority(cls, value: object, highest: int) -> InvalidChooser:
        return cls(f"A priority is an integer below {highest:,} (that of streams between stages), not {value!r}.")

    @classmethod
    def unknown(cls, name: str, known: Sequence[str]) -> InvalidChooser:
        return cls(
            f"There is no chooser {name!r}. There are: {', '.join(map(repr, known))}. One of your own can be a subclass of"
            f" MessageChooser, by(key), or a function of the outstanding envelopes.{did_you_mean(name, known)}"
        )

    @classmethod
    def not_a_chooser(cls, value: object) -> InvalidChooser:
        return cls(
            f"A chooser is the name of one, a subclass of MessageChooser, a function without arguments that makes one,"
            f" by(key), or a function of the outstanding envelopes, not {value!r}."
        )

    @classmethod
    def one_for_all(cls, value: object) -> InvalidChooser:
        return cls(
            f"Each task and each priority needs a chooser of its own, so give the class {type(value).__name__} or a"
            " function that makes one, not one that is made already."
        )

    @classmethod
    def batch_size(cls, value: object) -> InvalidChooser:
        return cls(f"A batch size is a whole number of messages, at least 1 (runs of one), not {value!r}.")

    @classmethod
    def limit(cls, value: object) -> InvalidChooser:
        return cls(f"The limit of a batch is a whole number of messages, at least 0, not {value!r}.")

    @classmethod
    def same_lane_twice(cls, ssp: object) -> InvalidChooser:
        return cls(f"What waits in {ssp} is given twice. Give it once, with all that waits.")

    @classmethod
    def wrong_length(cls, ssp: object, what: str, found: int, needed: int) -> InvalidChooser:
        return cls(f"{ssp} has {needed} messages waiting, but {found} {what}.")

    @classmethod
    def without_tie_breaker(cls, kind: str) -> InvalidChooser:
        return cls(
            f"The policy says {kind!r}, but not which chooser that is: a user's own code is not part of a policy's JSON."
            " Give it as own=…."
        )

    @classmethod
    def message_by_message(cls, name: str) -> InvalidChooser:
        return cls(f"{name!r} is a chooser of a user's own. It is asked message by message: use ChooserDriver.")


class InvalidChoice(TidemarkError, RuntimeError):
    """What the contract of a chooser forbids."""

    @classmethod
    def already_outstanding(cls, ssp: object, offset: object, waiting: object) -> InvalidChoice:
        return cls(
            f"A second message of {ssp} (offset {offset}) was given to the chooser while the one at offset {waiting} has"
            " not been chosen. At most one message of an SSP is outstanding."
        )

    @classmethod
    def not_outstanding(
        cls, chooser: str, returned: object, outstanding: Iterable[tuple[object, object]]
    ) -> InvalidChoice:
        return cls(
            f"The chooser {chooser} returned {returned}, which is not outstanding. A chooser returns each envelope that it"
            f" was given once, as it was given, or None. Outstanding are: {_positions(outstanding)}."
        )


class ChooserFailed(TidemarkError, RuntimeError):
    """A user's chooser raised an exception. It is the cause of this one."""

    @classmethod
    def raised(
        cls, chooser: str, error: Exception, chosen: int, outstanding: Iterable[tuple[object, object]]
    ) -> ChooserFailed:
        return cls(
            f"The chooser {chooser} raised {type(error).__name__}: {error}\nIt had chosen {chosen} messages of this batch."
            f" Outstanding were: {_positions(outstanding)}."
        )


class InvalidRuns(TidemarkError, ValueError):
    """A recorded order of messages that can not be read."""

    @classmethod
    def unreadable(cls, why: str) -> InvalidRuns:
        return cls(f"The recorded order of a batch can not be read: {why}.")

    @classmethod
    def unknown_version(cls, version: object) -> InvalidRuns:
        return cls(f"The recorded order of a batch has version {version!r}, and only version 1 is known here.")


def _positions(outstanding: Iterable[tuple[object, object]], most: int = 8) -> str:
    there = [f"{ssp} at offset {offset}" for ssp, offset in outstanding]
    more = f", and {len(there) - most} more" if len(there) > most else ""
    return ", ".join(there[:most]) + more or "none"


__all__ = ["ChooserFailed", "InvalidChoice", "InvalidChooser", "InvalidRuns"]
