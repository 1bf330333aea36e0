"""The operators of an application, as the user declared them: plain data, no behaviour.

How each of them treats messages is `workbench.engine.operators`; which of them run together is `workbench.graph.stages`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from workbench.joins import JoinSpec, LookupSpec, Side
from workbench.windows import WindowSpec

BatchFunction = Callable[[pd.DataFrame], pd.DataFrame]
"""A user's function of a whole batch: Arrow-backed frame in, frame out."""


@dataclass(frozen=True, eq=False)
class Node:
    """One operator. `id` is unique in its application and stable across deployments of the same code."""

    id: int
    label: str
    inputs: tuple[Node, ...]

    @property
    def kind(self) -> str:
        return type(self).__name__


@dataclass(frozen=True, eq=False)
class Input(Node):
    """Reads a stream. Where `produced_by` is set, it is an intermediate stream of this application.

    `out_of_orderness` and `max_ahead` are milliseconds; the first makes source watermarks from `event_time`, the second
    bounds how far one batch may push the watermark ahead (None: no bound). Higher `priority` goes first; other sources wait
    until a `bootstrap` stream has been read as far as it went when the run started.
    """

    stream: str = ""
    event_time: str | None = None
    out_of_orderness: int = 0
    max_ahead: int | None = None
    priority: int = 0
    bootstrap: bool = False
    produced_by: Node | None = None

    @property
    def is_intermediate(self) -> bool:
        return self.produced_by is not None

    @property
    def is_broadcast(self) -> bool:
        return isinstance(self.produced_by, Broadcast)


@dataclass(frozen=True, eq=False)
class Map(Node):
    """One row out for each row in."""

    function: BatchFunction = field(repr=False, kw_only=True)


@dataclass(frozen=True, eq=False)
class FlatMap(Node):
    """Any number of rows out."""

    function: BatchFunction = field(repr=False, kw_only=True)


@dataclass(frozen=True, eq=False)
class Filter(Node):
    """Keeps the rows for which `predicate` holds: an expression (see `expressions`), or a function from a frame to booleans."""

    predicate: str | Callable[[pd.DataFrame], Any] = field(kw_only=True)


@dataclass(frozen=True, eq=False)
class Merge(Node):
    """All messages of all inputs."""


@dataclass(frozen=True, eq=False)
class PartitionBy(Node):
    """Writes to an intermediate stream, the partition chosen by a hash of the key columns."""

    stream: str = ""
    keys: tuple[str, ...] = ()
    partitions: int | None = None
    event_time: str | None = None


@dataclass(frozen=True, eq=False)
class Broadcast(Node):
    """Writes to an intermediate stream of one partition that every task reads."""

    stream: str = ""
    event_time: str | None = None


@dataclass(frozen=True, eq=False)
class Window(Node):
    """Windows with aggregates. Late rows are counted, and go to the stream `late` if one is named."""

    spec: WindowSpec = field(kw_only=True)
    late: str | None = None


@dataclass(frozen=True, eq=False)
class JoinSide(Node):
    """Where one side enters a `StreamJoin`. Late rows are counted, and go to the stream `late` if one is named."""

    spec: JoinSpec = field(kw_only=True)
    side: Side = field(kw_only=True)
    late: str | None = None


@dataclass(frozen=True, eq=False)
class StreamJoin(Node):
    """Pairs of rows of two streams; `inputs` are their sides, left and right."""

    spec: JoinSpec = field(kw_only=True)


@dataclass(frozen=True, eq=False)
class Table(Node):
    """The latest row of each key."""

    keys: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class TableJoin(Node):
    """Rows of a stream with those of a table; `inputs` are the stream and the `Table`."""

    spec: LookupSpec = field(kw_only=True)


@dataclass(frozen=True, eq=False)
class SendTo(Node):
    """Writes to an output stream: by a hash of `keys`, or to the partition of the task's own number."""

    stream: str = ""
    keys: tuple[str, ...] = ()
    partitions: int | None = None
    event_time: str | None = None


@dataclass(frozen=True, eq=False)
class Sink(Node):
    """Hands each batch to a function of the user's, on the executor, at least once."""

    function: Callable[[pd.DataFrame], None] = field(repr=False, kw_only=True)
