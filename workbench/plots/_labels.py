"""Names, times and durations as plotly may show them."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;", "%": "&#37;"}
_DIGITS = re.compile(r"(\d+)")
SOURCE = "source"
"""Stands for nobody among upstream tasks: what a source itself says, or an external tool."""
_TASK = re.compile(r"Partition (\d+)")
_FIRST_DRAWABLE = np.datetime64("0001-01-01", "ms")
_LAST_DRAWABLE = np.datetime64("9999-12-31T23:59:59.999", "ms")


def escaped(text: object) -> str:
    """`text` so that plotly shows it letter by letter.

    Plotly reads a subset of HTML in every text, `%{…}` in templates and, where MathJax is loaded, `$…$` as a formula.
    Names are data: they may hold any of these.
    """
    plain = (" " if character.isspace() else character for character in str(text))
    return "".join(_ENTITIES.get(character, character) for character in plain)


def label(name: object, most: int = 32) -> str:
    """A name for an axis, a legend or a title: escaped, and cut in the middle beyond `most` characters.

    The middle goes, because names of one family differ at their ends.
    """
    text = str(name)
    if len(text) > most:
        tail = (most - 1) // 2
        text = f"{text[: most - 1 - tail]}…{text[-tail:]}"
    return escaped(text)


def in_order(names: Iterable[object]) -> list[str]:
    """Names in the order people count: `Partition 9` before `Partition 10`. The same in every figure."""
    return sorted({str(name) for name in names}, key=_counting_key)


def _counting_key(name: str) -> tuple[list[tuple[int, int, str]], str]:
    parts = [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in _DIGITS.split(name)]
    return parts, name


def task_number(name: object) -> int | None:
    """The number in `Partition <number>`; None for the name of anything else."""
    match = _TASK.fullmatch(str(name))
    return int(match[1]) if match else None


def counts_as_upstream(rows: pd.DataFrame, consumer: list[str]) -> pd.Series:
    """Which rows count among a consumer's upstream tasks: all, but for "source" (a message that no task sent) where the
    consumer has upstream tasks. `consumer` are the columns that tell consumers apart."""
    is_source = rows["upstream_task"] == SOURCE
    only_source = is_source.groupby([rows[column] for column in consumer]).transform("all")
    return ~is_source | only_source.astype(bool)


def instants(column: pd.Series) -> NDArray[np.datetime64]:
    """A column of UTC times as datetime64[ms] without zone; NaT stays NaT."""
    return np.asarray(pd.to_datetime(column, utc=True).dt.tz_localize(None).to_numpy(dtype="datetime64[ms]"))


def drawable(times: NDArray[np.datetime64]) -> NDArray[np.bool_]:
    """Which times a date axis can hold: known, and of the years 1 to 9999."""
    return np.asarray(~np.isnat(times) & (times >= _FIRST_DRAWABLE) & (times <= _LAST_DRAWABLE))


def dates(times: NDArray[np.datetime64]) -> list[str | None]:
    """Times as plotly takes them (ISO 8601, UTC); None, which is a gap, where there is no time to draw.

    Text, not datetime objects: those end at the year 9999 and are converted one at a time.
    """
    return [
        text if shown else None
        for text, shown in zip(np.datetime_as_string(times).tolist(), drawable(times).tolist(), strict=True)
    ]


def moment(time: np.datetime64) -> str:
    """A time for people, as short as it is exact: `2013-01-01 05:00:00 UTC`."""
    if np.isnat(time):
        return "not yet known"
    return str(np.datetime_as_string(time, unit="ms")).replace("T", " ").removesuffix(".000") + " UTC"


def duration(milliseconds: float) -> str:
    """A length of time for people, in its two largest units: `350 ms`, `18 s`, `2 min 5 s`, `3 h`, `2 d 4 h`."""
    if not np.isfinite(milliseconds):
        return "unknown"
    if abs(milliseconds) < 1000:
        return f"{milliseconds:.0f} ms"
    sign, seconds = ("−" if milliseconds < 0 else ""), round(abs(milliseconds) / 1000)
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    largest = next(index for index, (size, _) in enumerate(units) if seconds >= size)
    parts = []
    for size, unit in units[largest : largest + 2]:
        count, seconds = divmod(seconds, size)
        parts.append(f"{count:,} {unit}" if count else "")
    return sign + " ".join(part for part in parts if part)
