"""The content of waiting messages, read column by column and only when a chooser looks into it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from workbench.choosers.lanes import LaneArrivals, Times
from workbench.errors import UnknownColumn
from workbench.messages import ControlRun
from workbench.names import SSP
from workbench.times import NO_TIME, event_times

_AT_ONCE = 4_096
"""Values of a column that are turned into Python objects at a time."""


class EntryContent:
    """Payloads and keys of entries of a partition: tables of rows and runs of control messages, one behind the other.

    Index 0 is the first message of the first entry. A payload is valid as long as this is; a value is converted when it
    is asked for, together with those of the rows that follow it.
    """

    def __init__(self, ssp: SSP, entries: Iterable[pa.Table | ControlRun], key_column: str | None = None) -> None:
        self._ssp = ssp
        self._key_column = key_column
        self._entries = [entry for entry in entries if len(entry)]
        self._starts: list[int] = []
        start = 0
        for entry in self._entries:
            self._starts.append(start)
            start += len(entry)
        self._count = start
        self._first, self._entry = 0, (self._entries[0] if self._entries else None)
        self._values: dict[str, tuple[int, list[Any]]] = {}
        """Column → (index of the first value, values): those that were read last."""

    def __len__(self) -> int:
        return self._count

    def key(self, index: int) -> object:
        """The value of the key column; None without one and for control messages."""
        if self._key_column is None or isinstance(self._entry_at(index), ControlRun):
            return None
        return self.value(index, self._key_column)

    def payload(self, index: int) -> Mapping[str, Any]:
        """The row's columns by name, read when asked for; of a control message its fields."""
        entry = self._entry_at(index)
        if isinstance(entry, ControlRun):
            return entry[index - self._first].fields()
        return _Row(self, index)

    def value(self, index: int, column: str) -> Any:
        """Raises `UnknownColumn`."""
        entry = self._entry_at(index)
        first, values = self._values.get(column, (0, ()))
        if not first <= index < first + len(values):
            if column not in entry.column_names:
                raise UnknownColumn.from_known(column, entry.column_names, f"the rows of {self._ssp}")
            first = index
            values = entry.column(column).slice(index - self._first, _AT_ONCE).to_pylist()
            self._values[column] = first, values
        return values[index - first]

    def names(self, index: int) -> list[str]:
        names: list[str] = self._entry_at(index).column_names
        return names

    def _entry_at(self, index: int) -> Any:
        if not self._first <= index < self._first + len(self._entry or ()):
            if not 0 <= index < self._count:
                raise IndexError(f"{self._count} messages of {self._ssp} wait; there is none with index {index}.")
            at = bisect_right(self._starts, index) - 1
            self._first, self._entry = self._starts[at], self._entries[at]
        return self._entry


class _Row(Mapping[str, Any]):
    __slots__ = ("_content", "_index")

    def __init__(self, content: EntryContent, index: int) -> None:
        self._content = content
        self._index = index

    def __getitem__(self, column: str) -> Any:
        return self._content.value(self._index, column)

    def __iter__(self) -> Iterator[str]:
        return iter(self._content.names(self._index))

    def __len__(self) -> int:
        return len(self._content.names(self._index))

    def __repr__(self) -> str:
        return repr(dict(self))


def lane_of_entries(
    ssp: SSP,
    start_offset: int,
    entries: Iterable[pa.Table | ControlRun],
    *,
    time_column: str | None = None,
    key_column: str | None = None,
    **options: Any,
) -> LaneArrivals:
    """What waits in `ssp`, from the entries that hold it, in order and without gaps from `start_offset` on.

    `time_column` names the event time of the rows (see `workbench.times.event_times`); without one none has a time.
    `options` are further fields of `LaneArrivals`. Raises `UnknownColumn` and `InvalidTime` for the time column, when
    the times are asked for.
    """
    kept = [entry for entry in entries if len(entry)]
    content = EntryContent(ssp, kept, key_column)
    kinds = None
    if any(isinstance(entry, ControlRun) for entry in kept):
        kinds = np.concatenate([np.asarray(_kinds(entry), dtype=np.uint8) for entry in kept])

    def times(count: int) -> Times:
        assert time_column is not None
        found, needed = [], count
        for entry in kept:
            if needed > 0:
                found.append(_times(ssp, entry[:needed], time_column))
                needed -= len(entry)
        return np.concatenate(found) if found else np.empty(0, dtype=np.int64)

    timed = None if time_column is None else times
    return LaneArrivals(ssp, len(content), start_offset, event_times=timed, kinds=kinds, content=content, **options)


def _kinds(entry: pa.Table | ControlRun) -> Any:
    return entry.types if isinstance(entry, ControlRun) else np.zeros(len(entry))


def _times(ssp: SSP, entry: pa.Table | ControlRun, column: str) -> Times:
    if isinstance(entry, ControlRun):
        return np.full(len(entry), NO_TIME)
    if column not in entry.column_names:
        raise UnknownColumn.from_known(column, entry.column_names, f"the rows of {ssp}")
    return event_times(entry.column(column), column)
