"""Event times as integers: milliseconds since the epoch, UTC, floored, also before 1970."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from workbench.errors import InvalidTime

NO_TIME = -(2**63)
"""Stands for a missing time (a null) in an array of `event_times`; lower than every time, as NaT is in numpy."""

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def event_times(column: pa.Array | pa.ChunkedArray, name: str = "time") -> npt.NDArray[np.int64]:
    """The times of `column` as int64 milliseconds since the epoch, UTC; nulls become `NO_TIME`.

    `column` holds Arrow timestamps of any unit (without a zone they are taken as UTC) or int64 milliseconds. Finer
    units are floored, so that a time never moves forward. Raises `InvalidTime` for any other type, naming the column,
    and for seconds that no int64 of milliseconds can hold. int64 without nulls is a view, not a copy.
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
