"""What a system of streams offers. The embedded log is one; a broker such as Kafka would be another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from workbench.messages import ControlRun


class Rows(NamedTuple):
    """User rows with contiguous offsets: row *i* of `table` has offset `offset` + *i*."""

    offset: int
    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)


class Controls(NamedTuple):
    """Control messages with contiguous offsets: message *i* of `run` has offset `offset` + *i*."""

    offset: int
    run: ControlRun

    def __len__(self) -> int:
        return len(self.run)


Entry = Rows | Controls


@runtime_checkable
class StreamPartitions(Protocol):
    """A stream: named partitions of messages with contiguous offsets."""

    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> int: ...

    @property
    def schema(self) -> pa.Schema | None:
        """The Arrow schema of user rows; None before the first."""

    def oldest(self) -> list[int]:
        """Per partition the first offset that can be read."""

    def heads(self) -> list[int]:
        """Per partition the offset that the next message will get ("upcoming")."""

    def offset_at(self, partition: int, timestamp: int, by: str = "event") -> int:
        """The first offset at or after a time in milliseconds since the epoch; the head if there is none."""

    def read(
        self, partition: int, start: int | None = None, end: int | None = None, limit: int | None = None
    ) -> Iterator[Entry]:
        """The messages from `start` up to, not including, `end`, in order."""


@runtime_checkable
class StreamSystem(Protocol):
    """A place that holds streams."""

    def streams(self) -> list[str]: ...

    def stream(self, name: str) -> StreamPartitions: ...

    def create(self, name: str, partitions: int, *, exist_ok: bool = False) -> StreamPartitions: ...
