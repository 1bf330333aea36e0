"""Startpoints: what can not be one, what can not be resolved, and what can not be asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from workbench.errors._base import TidemarkError, did_you_mean, listing


class InvalidStartpoint(TidemarkError, ValueError):
    """A startpoint, or the text of one, that can not be."""

    @classmethod
    def wrong_type(cls, what: str, expected: str, value: object) -> InvalidStartpoint:
        return cls(f"The {what} of a startpoint must be {expected}, not {_short(value)}.")

    @classmethod
    def out_of_range(cls, what: str, value: int, least: int) -> InvalidStartpoint:
        return cls(f"The {what} of a startpoint must be between {least} and 2⁶³−1, not {_short(value)}.")

    @classmethod
    def unknown_time(cls, by: object, known: Sequence[str]) -> InvalidStartpoint:
        choices = " or ".join(map(repr, known))
        return cls(f"A startpoint looks a time up by {choices}, not by {_short(by)}.{did_you_mean(str(by), known)}")

    @classmethod
    def not_json(cls, why: str) -> InvalidStartpoint:
        return cls(f"This is not the JSON of a startpoint: {why}.")

    @classmethod
    def unknown_kind(cls, kind: object, known: Sequence[str]) -> InvalidStartpoint:
        return cls(
            f'The "@type" of a startpoint must be one of {listing(known)}, not {_short(kind)}.'
            f"{did_you_mean(str(kind), known)}"
        )

    @classmethod
    def missing(cls, kind: str, key: str) -> InvalidStartpoint:
        return cls(f"A {kind} needs the key {key!r}.")

    @classmethod
    def without_creation_time(cls, kind: str) -> InvalidStartpoint:
        return cls(
            f"This {kind} does not say when it was made ('creationTimestamp', in milliseconds since the epoch, UTC). "
            "So nobody can tell whether it is still meant; it is not applied."
        )

    @classmethod
    def unknown_keys(cls, kind: str, keys: Iterable[str], known: Sequence[str]) -> InvalidStartpoint:
        strange = sorted(keys)
        return cls(
            f"A {kind} has no key {listing(strange)}; it has {listing(known)}.{did_you_mean(strange[0], known)} What is "
            "not understood might change its meaning, so it is not applied."
        )

    @classmethod
    def unreadable_key(cls, key: str, expected: str) -> InvalidStartpoint:
        return cls(f"The key {_short(key)} names no SSP of an application; keys look like {expected}.")

    @classmethod
    def other_spelling(cls, key: str, canonical: str) -> InvalidStartpoint:
        return cls(f"The key {_short(key)} must be written {canonical}, or one SSP would have several startpoints.")

    @classmethod
    def not_a_record(cls, why: str) -> InvalidStartpoint:
        return cls(f"This is not the record of a startpoint that a start has taken: {why}.")

    @classmethod
    def not_fresh(cls, startpoint: object, created: str, hours: int, *, ahead: bool) -> InvalidStartpoint:
        when = f"more than {hours} h ahead" if ahead else f"{hours} h ago or more"
        return cls(
            f"The startpoint {startpoint} was made at {created}, {when}: it would never be applied. Make it anew; its "
            "creation time is now by default."
        )


class UnresolvableStartpoint(TidemarkError, ValueError):
    """A startpoint for which its system has no offset. Nothing falls back to the checkpoint in silence."""

    @classmethod
    def out_of_range(cls, ssp: object, startpoint: object, oldest: int, head: int) -> UnresolvableStartpoint:
        return cls(
            f"The startpoint {startpoint} of {ssp} can not be resolved: its offsets are {oldest} to {head} "
            f"({head} is the next message to come).{_NEXT}"
        )

    @classmethod
    def without_times(cls, ssp: object, startpoint: object, oldest: int, head: int) -> UnresolvableStartpoint:
        return cls(
            f"The startpoint {startpoint} of {ssp} can not be resolved: its rows have no event time, as they were "
            f"appended without a time column. Its offsets are {oldest} to {head}. Look up by the time of appending "
            f'(by="append") or give an offset.'
        )

    @classmethod
    def not_there(cls, ssp: object, startpoint: object, why: str) -> UnresolvableStartpoint:
        return cls(f"The startpoint {startpoint} of {ssp} can not be resolved: {why}{_NEXT}")

    @classmethod
    def unsupported(cls, ssp: object, startpoint: object, visitor: str) -> UnresolvableStartpoint:
        return cls(
            f"The startpoint {startpoint} of {ssp} can not be resolved: {visitor} does not support startpoints of this kind."
        )

    @classmethod
    def unknown_system(cls, ssp: object, startpoint: object, known: Sequence[str]) -> UnresolvableStartpoint:
        return cls(
            f"The startpoint {startpoint} of {ssp} can not be resolved: there is no such system. Systems here: {listing(known)}."
        )

    @classmethod
    def several(cls, errors: Sequence[UnresolvableStartpoint]) -> UnresolvableStartpoint:
        if len(errors) == 1:
            return errors[0]
        lines = "".join(f"\n  {error}" for error in errors[:12])
        more = f"\n  and {len(errors) - 12} more" if len(errors) > 12 else ""
        return cls(f"{len(errors)} startpoints can not be resolved:{lines}{more}")


class InvalidStartpointRequest(TidemarkError, ValueError):
    """Startpoints were asked for in a way that leaves open which."""

    @classmethod
    def without_tasks(cls, application: str) -> InvalidStartpointRequest:
        return cls(f"The startpoints of {application!r} can not be fanned out: no task was named that could take them.")

    @classmethod
    def ambiguous(cls, text: str, stream: str, partition: int) -> InvalidStartpointRequest:
        return cls(
            f"{text!r} is a stream, and {stream!r} has a partition {partition} as well. "
            f"Say --partition {partition} for the one; for the other name each partition with --partition."
        )

    @classmethod
    def partition_twice(cls, text: str, partition: int) -> InvalidStartpointRequest:
        return cls(f"{text!r} names a partition already, so --partition {partition} is one too many.")

    @classmethod
    def one_of(cls, choices: Sequence[str], given: Sequence[str]) -> InvalidStartpointRequest:
        said = f"not {' and '.join(given)}" if given else "and none was"
        return cls(f"Exactly one of {', '.join(choices)} must be given, {said}.")

    @classmethod
    def without_time(cls, option: str) -> InvalidStartpointRequest:
        return cls(f"{option} says which time is meant, so it needs --at or --ago.")

    @classmethod
    def without_position(cls, ssp: object, task: str) -> InvalidStartpointRequest:
        return cls(
            f"{task} has no position in {ssp} yet, so there is nothing to shift from. Name an offset, a time, the "
            "oldest or the upcoming message."
        )

    @classmethod
    def not_consumed(cls, what: str, application: str, known: Iterable[str]) -> InvalidStartpointRequest:
        names = sorted(known)
        return cls(
            f"{application!r} does not consume {what}. It consumes: {listing(names)}.{did_you_mean(what, names)}"
        )

    @classmethod
    def without_event_times(cls, streams: str) -> InvalidStartpointRequest:
        return cls(
            f"No row of {streams} has an event time, so there is none to count back from. Use the time of appending "
            "(by append), or an offset."
        )

    @classmethod
    def without_reference(cls) -> InvalidStartpointRequest:
        return cls(
            "Event times need not be near now: say with before=… from which time to count back, the latest event time of "
            "the stream, say."
        )

    @classmethod
    def not_a_time(cls, text: str) -> InvalidStartpointRequest:
        return cls(f"{text!r} is not a time in ISO 8601, such as 2013-07-04T06:00 (UTC) or 2013-07-04T06:00-04:00.")


_NEXT = " Set another one, or delete it."


def _short(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # a whole number with more digits than Python writes
        return "a very large number"
    return text if len(text) <= 120 else f"{text[:117]}…"
