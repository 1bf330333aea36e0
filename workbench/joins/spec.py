"""What a join is told: keys, bound in time, kind, and how the columns of its result are named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from workbench.errors import InvalidJoin
from workbench.joins.keys import Mask, canonical_schema, key_type, rows_at
from workbench.windows.durations import duration_text
from workbench.windows.grouping import Numbers
from workbench.windows.spec import DRAINED

Side = Literal["left", "right"]
How = Literal["inner", "left"]
KINDS = ("inner", "left")
SUFFIXES = ("", "_right")


@dataclass(frozen=True)
class LookupSpec:
    """Rows of a stream (left) with what a table (right) has for their key. Can be pickled.

    `left_on` and `right_on` name the keys of either side, in the same order. The result has the columns of the left,
    then those of the right without its keys; columns that both have get the `suffixes`.
    """

    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    how: How = "inner"
    suffixes: tuple[str, str] = SUFFIXES

    @property
    def marks_drained(self) -> bool:
        """Whether the result has the column `drained`."""
        return False

    def names(self, left: Sequence[str], right: Sequence[str]) -> tuple[list[str], list[str]]:
        """The names in the result of the left's columns, and of those of the right that are no keys.

        Raises `InvalidJoin` where they would not be unique.
        """
        kept = [column for column in right if column not in self.right_on]
        left_names = [
            column + self.suffixes[0] if column in kept and column not in self._unchanged else column for column in left
        ]
        own = {*left, *((DRAINED,) if self.marks_drained else ())}
        right_names = [column + self.suffixes[1] if column in own else column for column in kept]
        result = [*left_names, *right_names]
        if self.marks_drained and DRAINED not in left:
            result.append(DRAINED)
        twice = [name for name, count in Counter(result).items() if count > 1]
        if twice:
            raise InvalidJoin.columns_clash(twice, self.suffixes)
        return left_names, right_names

    def output_schema(self, left: pa.Schema, right: pa.Schema) -> pa.Schema:
        """Columns of the result for rows of these schemas. Raises `InvalidJoin`."""
        left, right = canonical_schema(left), canonical_schema(right)
        return self.combine(left.empty_table(), right.empty_table(), _NO_ROWS).schema

    def combine(self, left: pa.Table, right: pa.Table, rows: Numbers, *, drained: Mask | None = None) -> pa.Table:
        """One row of the result for each row of `left`, with the row of `right` whose number is in `rows`; with nulls
        where that is negative. `right` without columns is one of which nothing is known yet. `drained` tells of each
        row whether a drain emits it (None: of none)."""
        left_names, right_names = self.names(left.column_names, right.column_names)
        columns = list(left.columns)
        if right.num_columns:
            for own, other in zip(self.left_on, self.right_on, strict=True):
                index = left.schema.get_field_index(own)
                columns[index] = columns[index].cast(key_type(left.schema.field(own), right.schema.field(other)))
            kept = right.select([column for column in right.column_names if column not in self.right_on])
            if kept.num_columns:
                columns += rows_at(kept, rows).columns
        names = [*left_names, *right_names]
        if self.marks_drained:
            _mark(names, columns, np.zeros(len(left), np.bool_) if drained is None else drained)
        return pa.table(columns, names=names)

    @property
    def _unchanged(self) -> tuple[str, ...]:
        """Columns of the left that keep their names."""
        return (*self.left_on, DRAINED) if self.marks_drained else self.left_on

    def __str__(self) -> str:
        pairs = zip(self.left_on, self.right_on, strict=True)
        keys = ", ".join(own if own == other else f"{own} = {other}" for own, other in pairs)
        return f"{self.how} by {keys}"


@dataclass(frozen=True)
class JoinSpec(LookupSpec):
    """Pairs of rows of two streams that have the same key and are close in time. Can be pickled.

    The time of the right row less that of the left one is from -`before` to `after` (milliseconds, both included).
    `event_side` is the side whose time is that of the pair, in the column `event_time` of the result. In a left join
    a row without any match comes alone, and the result has the column `drained`, as panes have it: true where it was a
    drain that ended the wait for a match.
    """

    left_time: str = ""
    right_time: str = ""
    before: int = 0
    after: int = 0
    event_side: Side = "left"
    event_time: str = ""

    @property
    def marks_drained(self) -> bool:
        return self.how == "left"

    def reach(self, side: Side) -> tuple[int, int]:
        """From where to where, relative to a row of `side`, its matches on the other side are (milliseconds)."""
        return (-self.before, self.after) if side == "left" else (-self.after, self.before)

    def time_column(self, side: Side) -> str:
        return self.left_time if side == "left" else self.right_time

    def keys(self, side: Side) -> tuple[str, ...]:
        return self.left_on if side == "left" else self.right_on

    def names(self, left: Sequence[str], right: Sequence[str]) -> tuple[list[str], list[str]]:
        left_names, right_names = super().names(left, right)
        if self.event_side == "left" and not right and left:
            # Which columns both have is not known yet, but what this one is called in the result was said.
            left_names[list(left).index(self.left_time)] = self.event_time
        if left and right:
            name = self._name_of_time(left, right, left_names, right_names)
            if name != self.event_time:
                raise InvalidJoin.event_time_renamed(self.event_time, name)
        return left_names, right_names

    def _name_of_time(
        self, left: Sequence[str], right: Sequence[str], left_names: Sequence[str], right_names: Sequence[str]
    ) -> str:
        if self.event_side == "left":
            return left_names[list(left).index(self.left_time)]
        if self.right_time in self.right_on:
            return self.left_on[self.right_on.index(self.right_time)]
        return right_names[[column for column in right if column not in self.right_on].index(self.right_time)]

    def __str__(self) -> str:
        if self.before == self.after:
            bound = duration_text(self.before)
        else:
            bound = f"({duration_text(self.before)}, {duration_text(self.after)})"
        return f"{super().__str__()} within {bound} of {self.left_time} and {self.right_time}"


def _mark(names: list[str], columns: list[pa.ChunkedArray], drained: Mask) -> None:
    """Adds the column `drained`. Panes on the left have one already: what was incomplete before stays so."""
    if DRAINED not in names:
        names.append(DRAINED)
        columns.append(pa.chunked_array([pa.array(drained)]))
        return
    index = names.index(DRAINED)
    if not pa.types.is_boolean(columns[index].type):
        raise InvalidJoin.drained_is_taken(str(columns[index].type))
    if drained.any():
        columns[index] = pc.or_kleene(columns[index], pa.array(drained))


_NO_ROWS: Numbers = np.zeros(0, np.int64)
