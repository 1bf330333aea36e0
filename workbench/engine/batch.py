"""Rows on their way through the operators of a task: Arrow between operators, pandas inside a user's function."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import pyarrow as pa


@dataclass(frozen=True)
class Batch:
    """Rows that one task processes at once. `stream` is the input stream they came from, for error messages."""

    table: pa.Table
    stream: str

    def frame(self) -> pd.DataFrame:
        """The rows with Arrow-backed types and the index 0, 1, …: a new frame each time, over the same immutable data.

        So a function may change the frame it gets, and no other branch of the graph sees it.
        """
        return self.table.to_pandas(types_mapper=pd.ArrowDtype)

    @property
    def columns(self) -> list[str]:
        return list(self.table.column_names)

    def __len__(self) -> int:
        return len(self.table)

    def with_rows(self, rows: pa.Table) -> Batch:
        """Other rows of the same origin."""
        return Batch(rows, self.stream)
