"""Event times as integers: milliseconds since the epoch, UTC, floored, also before 1970."""

from __future__ import annotations

import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from workbench.errors import InvalidTime

NO_TIME = -(2**63)
"""Stands for a missing time (a null) in an array of `event_times`; lower than every time, as NaT is in numpy."""

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_PLAUSIBLE = (946_684_800, 4_102_444_800)
"""The years 2000 to 2099, in seconds since the epoch."""
_LAST_SHOWN = 253_402_300_800_000
"""Milliseconds up to the year 10,000, where dates end in Python."""
_YEAR = 31_556_952_000
"""Milliseconds of a mean year."""


def event_times(column: pa.Array | pa.ChunkedArray, name: str = "time") -> npt.NDArray[np.int64]:
    """The times of `column` as int64 milliseconds since the epoch, UTC; nulls become `NO_TIME`.

    `column` holds Arrow timestamps of any unit (without a zone they are taken as UTC) or int64 milliseconds. Finer
    units are floored, so that a time never moves forward. int64 without nulls is a view, not a copy.

    Raises `InvalidTime`, naming the column, for any other type and for seconds that no int64 of milliseconds can hold.
    """
    kind = column.type
    check_time_type(kind, name)
    unit = kind.unit if pa.types.is_timestamp(kind) else "ms"
    numbers = column.cast(pa.int64())
    if numbers.null_count:
        valid = np.asarray(numbers.is_valid())
        times = _milliseconds(np.asarray(numbers.fill_null(0)), unit, name)
        return np.where(valid, times, NO_TIME)
    return _milliseconds(np.asarray(numbers), unit, name)


def check_time_type(kind: pa.DataType, name: str) -> None:
    """Raise `InvalidTime` unless a column of this Arrow type can hold event times."""
    if not (pa.types.is_timestamp(kind) or pa.types.is_int64(kind)):
        raise InvalidTime.wrong_type(name, str(kind))


def check_unit(column: pa.Array | pa.ChunkedArray, name: str) -> None:
    """Raise `InvalidTime` if `column` holds int64 that look like another unit than milliseconds.

    That is so if each of them is of the years 2000 to 2099 when taken as seconds (or micro- or nanoseconds). As
    milliseconds these are early in 1970 (or past the year 30,000). For the first times of a stream, which are all that is
    known of it: simulated time that begins at 0 gets there, too, days later. What timestamps say is not questioned.
    """
    if not pa.types.is_int64(column.type):
        return
    values: npt.NDArray[np.int64] = np.asarray(column.drop_null())
    for unit in ("s", "us", "ns"):
        low, high = (second * _PER_SECOND[unit] for second in _PLAUSIBLE)
        # The first value alone clears most columns.
        if len(values) and low <= values[0] < high and low <= values.min() and values.max() < high:
            value = int(values[0])
            as_unit = _day(value * 1000 // _PER_SECOND[unit])
            raise InvalidTime.other_unit(name, value, unit, _day(value), as_unit)


def _day(milliseconds: int) -> str:
    if milliseconds >= _LAST_SHOWN:
        return f"of the year {1970 + milliseconds // _YEAR:,}"
    return f"of {datetime.datetime.fromtimestamp(milliseconds // 1000, datetime.UTC):%Y-%m-%d}"


def _milliseconds(values: npt.NDArray[np.int64], unit: str, name: str) -> npt.NDArray[np.int64]:
    if unit == "ms":
        return values
    if unit == "s":
        largest = 2**63 // 1000
        if len(values) and (int(values.max()) >= largest or int(values.min()) < -largest):
            raise InvalidTime.out_of_range(name)
        return values * 1000
    return np.floor_divide(values, _PER_SECOND[unit] // 1000)


def time_range(times: npt.NDArray[np.int64]) -> tuple[int, int] | None:
    """The least and greatest of the `times` that are there; None if there is none."""
    if not len(times):
        return None
    least = int(times.min())
    if least == NO_TIME:
        times = times[times != NO_TIME]
        if not len(times):
            return None
        least = int(times.min())
    return least, int(times.max())
