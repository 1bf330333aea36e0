"""Durations in all the ways people write them, as whole milliseconds."""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

import numpy as np

from workbench.errors import InvalidDuration

Duration = str | int | timedelta
"""`"1h"`, `"15 min"`, `"1h 30min"`, a `datetime.timedelta` (so also a `pandas.Timedelta`), or milliseconds."""

LONGEST = 10_000 * 366 * 86_400_000
"""Ten thousand years: far beyond any use, and small enough that no sum with an event time overflows."""

_UNITS = {
    "ms": 1,
    "millisecond": 1,
    "milliseconds": 1,
    "s": 1_000,
    "sec": 1_000,
    "second": 1_000,
    "seconds": 1_000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "minutes": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "hours": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "days": 86_400_000,
    "w": 604_800_000,
    "week": 604_800_000,
    "weeks": 604_800_000,
}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")
_SHORT = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1))


def milliseconds(duration: Duration, what: str) -> int:
    """`duration` as whole milliseconds, possibly zero or negative; `what` names it in errors.

    Raises `InvalidDuration` for text that is no duration, for other types, for fractions of a millisecond and for more
    than ten thousand years.
    """
    if isinstance(duration, str):
        exact = _parse(duration, what)
    elif isinstance(duration, timedelta):
        # pandas.Timedelta is a timedelta whose nanoseconds the base class does not know; NaT is none and has no value.
        nanoseconds = getattr(duration, "nanoseconds", 0)
        exact = Fraction(duration // timedelta(microseconds=1), 1_000) + Fraction(nanoseconds, 1_000_000)
    elif isinstance(duration, int | np.integer) and not isinstance(duration, bool):
        exact = Fraction(int(duration))
    else:
        raise InvalidDuration.wrong_type(what, duration)
    if exact.denominator != 1:
        raise InvalidDuration.not_whole(what, duration)
    if abs(exact) > LONGEST:
        raise InvalidDuration.too_long(what, duration)
    return int(exact)


def _parse(text: str, what: str) -> Fraction:
    rest = text.strip().lower()
    sign = -1 if rest.startswith("-") else 1
    rest = rest.removeprefix("-")
    total, position = Fraction(0), 0
    while position < len(rest):
        part = _PART.match(rest, position)
        if part is None or part[2] not in _UNITS:
            break
        total += Fraction(part[1]) * _UNITS[part[2]]
        position = part.end()
    if not rest or position < len(rest):
        raise InvalidDuration.unreadable(what, text)
    return sign * total


def duration_text(length: int) -> str:
    """Milliseconds as people write them: `"1h 30min"`."""
    sign, rest, parts = "-" if length < 0 else "", abs(length), []
    for unit, size in _SHORT:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return sign + " ".join(parts) if parts else "0ms"
