"""The base of all, and how errors list what there is."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TidemarkError(Exception):
    """Base of all errors raised on purpose by this package."""


def listing(names: Iterable[str], most: int = 12) -> str:
    names = sorted(names)
    shown = ", ".join(repr(name) for name in names[:most])
    return f"{shown}, and {len(names) - most} more" if len(names) > most else shown


def did_you_mean(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
