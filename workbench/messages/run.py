"""Consecutive control messages of one partition in columns, as the embedded log stores them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

from workbench.errors import InvalidMessage, InvalidName
from workbench.messages.control import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    VERSION,
    ControlMessage,
    DrainMessage,
    EndOfStreamMessage,
    MessageType,
    WatermarkMessage,
)
from workbench.messages.tasks import stored_task, task_of_stored

_WATERMARK, _END, _DRAIN = int(MessageType.WATERMARK), int(MessageType.END_OF_STREAM), int(MessageType.DRAIN)


@dataclass(frozen=True, slots=True)
class ControlRun:
    """Control messages with contiguous offsets, one tuple per column, all of the same length.

    The message at offset *o* has index *o* − (first offset of the run). `timestamps` holds milliseconds since the
    epoch, or the largest timestamp where the message is no watermark: who ended or drained has nothing earlier to
    say. `texts` holds the stream id of an end of stream, the run id of a drain, None for a watermark.
    """

    types: tuple[int, ...]
    timestamps: tuple[int, ...]
    texts: tuple[str | None, ...]
    task_names: tuple[str | None, ...]
    task_counts: tuple[int | None, ...]

    @classmethod
    def from_messages(cls, messages: Iterable[ControlMessage]) -> ControlRun:
        rows = [(int(message.type), *_content(message), message.task_name, message.task_count) for message in messages]
        return cls(*zip(*rows, strict=True)) if rows else cls((), (), (), (), ())

    def messages(self) -> list[ControlMessage]:
        return list(self)

    def only_watermarks(self) -> bool:
        return self.types.count(_WATERMARK) == len(self.types)

    def without(self, kind: MessageType) -> ControlRun:
        """The run of all messages of other types. Their offsets are no longer contiguous."""
        if kind not in self.types:
            return self
        others = [index for index, each in enumerate(self.types) if each != kind]
        return ControlRun(*(tuple([column[index] for index in others]) for column in self._columns()))

    def __len__(self) -> int:
        return len(self.types)

    def __iter__(self) -> Iterator[ControlMessage]:
        columns = zip(self.types, self.timestamps, self.texts, self.task_names, self.task_counts, strict=True)
        for kind, timestamp, text, name, count in columns:
            if kind == _WATERMARK:
                yield WatermarkMessage(timestamp, name, count)
            else:
                assert text is not None
                yield EndOfStreamMessage(text, name, count) if kind == _END else DrainMessage(text, name, count)

    @overload
    def __getitem__(self, index: int) -> ControlMessage: ...
    @overload
    def __getitem__(self, index: slice) -> ControlRun: ...
    def __getitem__(self, index: int | slice) -> ControlMessage | ControlRun:
        """One message, or the run of some of them: `run[first - start : last - start]` by offsets."""
        if isinstance(index, slice):
            return ControlRun(*(column[index] for column in self._columns()))
        if not -len(self) <= index < len(self):
            raise IndexError(f"A run of {len(self)} control messages has no index {index}.")
        index %= len(self)
        return self[index : index + 1].messages()[0]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types. A column that is the same throughout is one value, a task is its number where it has one."""
        watermarks = self.only_watermarks()
        return {
            "v": VERSION,
            "n": len(self),
            "type": _packed(self.types),
            "time": _packed(self.timestamps),
            **({} if watermarks else {"text": _packed(self.texts)}),
            "task": _packed([*map(stored_task, self.task_names)]),
            "of": _packed(self.task_counts),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ControlRun:
        """The inverse of `to_json`. Raises `InvalidMessage` for columns that it can not have written."""
        try:
            if data["v"] != VERSION:
                raise InvalidMessage.unknown_version(data["v"], VERSION)
            length = data["n"]
            types = _unpacked(data["type"], length)
            run = cls(
                types,
                _unpacked(data["time"], length),
                _unpacked(data.get("text"), length),
                tuple(map(task_of_stored, _unpacked(data["task"], length))),
                _unpacked(data["of"], length),
            )
        except (KeyError, TypeError, InvalidName) as error:
            raise InvalidMessage.corrupt_run(repr(error)) from error
        run._check(length)
        return run

    def _columns(self) -> tuple[tuple[Any, ...], ...]:
        return (self.types, self.timestamps, self.texts, self.task_names, self.task_counts)

    def _check(self, length: int) -> None:
        # Whole columns at a time: building each message to check it would cost a hundred times as much.
        nothing = type(None)
        kinds: list[set[type]] = [{int}, {int}, {str, nothing}, {str, nothing}, {int, nothing}]
        for column, allowed in zip(self._columns(), kinds, strict=True):
            if len(column) != length:
                raise InvalidMessage.corrupt_run(f"a column has {len(column)} values, not {length}")
            if not set(map(type, column)) <= allowed:
                raise InvalidMessage.corrupt_run(f"a column has values of wrong types: {column[:3]}")
        if length and not MIN_TIMESTAMP <= min(self.timestamps) <= max(self.timestamps) <= MAX_TIMESTAMP:
            raise InvalidMessage.corrupt_run("a timestamp beyond 64 bits")
        if not set(self.types) <= {_WATERMARK, _END, _DRAIN}:
            raise InvalidMessage.corrupt_run(f"unknown types among {sorted(set(self.types))}")
        if not self.only_watermarks() and None in {
            text for kind, text in zip(self.types, self.texts, strict=True) if kind != _WATERMARK
        }:
            raise InvalidMessage.corrupt_run("an end of stream or drain without its stream or run")


def _content(message: ControlMessage) -> tuple[int, str | None]:
    match message:
        case WatermarkMessage(timestamp=timestamp):
            return timestamp, None
        case EndOfStreamMessage(stream_id=stream_id):
            return MAX_TIMESTAMP, stream_id
        case DrainMessage(run_id=run_id):
            return MAX_TIMESTAMP, run_id


def _packed(column: Sequence[Any]) -> Any:
    first = column[0] if column else None
    return first if column.count(first) == len(column) else list(column)


def _unpacked(column: Any, length: int) -> tuple[Any, ...]:
    return tuple(column) if isinstance(column, list) else (column,) * length
