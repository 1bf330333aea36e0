"""What a window operator is told: windows, keys, aggregates, and the column of event times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from workbench.errors import InvalidAggregate, UnknownColumn, WrongType
from workbench.windows.aggregates import COMPONENTS, Aggregate, resolve, result_type
from workbench.windows.assigners import Assigner
from workbench.windows.components import Component
from workbench.windows.grouping import canonical_type

WINDOW_COLUMNS = ("window_start", "window_end")
DRAINED = "drained"
"""Column of panes: whether a drain emitted it, before its window had ended, so that rows are missing in it."""
WINDOW_TIME = pa.timestamp("us", tz="UTC")
ANY_COLUMN = "*"
"""Stands for no column in particular: `rows=("*", "size")`."""


@dataclass(frozen=True)
class WindowSpec:
    """Windows per key with named aggregates, `{output: (column, aggregate)}`. Can be pickled.

    Raises `InvalidAggregate` for unknown aggregates and for outputs whose name is taken.
    """

    assigner: Assigner
    keys: tuple[str, ...]
    aggregates: Mapping[str, tuple[str, str | Aggregate]]
    time_column: str

    def __post_init__(self) -> None:
        if not self.aggregates:
            raise InvalidAggregate.none()
        taken = (*self.keys, *WINDOW_COLUMNS, DRAINED)
        for output, pair in self.aggregates.items():
            if output in taken:
                raise InvalidAggregate.name_taken(output, taken)
            if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
                raise InvalidAggregate.not_a_pair(output, pair)
            resolve(pair[1], output)

    @property
    def outputs(self) -> tuple[tuple[str, str, Aggregate], ...]:
        """Name, column and aggregate of each output."""
        return tuple((output, column, resolve(how, output)) for output, (column, how) in self.aggregates.items())

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are aggregated, each once. Components refer to them by number."""
        return tuple(dict.fromkeys(column for _, column, aggregate in self.outputs if COMPONENTS[aggregate.name]))

    @property
    def components(self) -> tuple[Component, ...]:
        """What has to be kept, without repetition: aggregates of one column share what they have in common."""
        columns, found = self.columns, []
        for _, column, aggregate in self.outputs:
            kinds = COMPONENTS[aggregate.name]
            found += [Component(kind, columns.index(column)) for kind in kinds] or [Component("size", -1)]
        return tuple(dict.fromkeys(found))

    def used(self, schema: pa.Schema) -> pa.Schema:
        """The columns of `schema` that matter here, in their canonical types. Raises `UnknownColumn`."""
        needed = dict.fromkeys((*self.keys, *self.columns))
        for column in (*needed, self.time_column, *(c for _, c, _ in self.outputs if c != ANY_COLUMN)):
            if column not in schema.names:
                raise UnknownColumn.from_known(column, schema.names, "the rows of the window")
        return pa.schema([(column, canonical_type(schema.field(column).type)) for column in needed])

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """Columns of the panes for input of `schema`: keys, `window_start`, `window_end` (UTC), aggregates, `drained`.

        Raises `UnknownColumn`, and `WrongType` for a key or an aggregate whose column has an unfit type.
        """
        return self.panes(self.used(schema))

    def panes(self, used: pa.Schema) -> pa.Schema:
        """As `output_schema`, from what `used` returned."""
        fields = []
        for key in self.keys:
            kind = used.field(key).type
            if pa.types.is_nested(kind):
                raise WrongType.of_window_key(key, str(kind))
            fields.append(pa.field(key, kind))
        fields += [pa.field(name, WINDOW_TIME) for name in WINDOW_COLUMNS]
        for output, column, aggregate in self.outputs:
            kind = used.field(column).type if COMPONENTS[aggregate.name] else pa.null()
            fields.append(pa.field(output, result_type(aggregate, column, kind)))
        fields.append(pa.field(DRAINED, pa.bool_()))
        return pa.schema(fields)
