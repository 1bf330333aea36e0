"""Rows on their way through the operators of a task: Arrow between operators, pandas inside a user's function."""

from __future__ import annotations

from functools import cached_property

import pandas as pd
import pyarrow as pa


class Batch:
    """Rows that one task processes at once, as an Arrow table or an Arrow-backed frame, converted at most once.

    `stream` is the input stream they came from, for error messages.
    """

    def __init__(self, rows: pa.Table | pd.DataFrame, stream: str) -> None:
        self._rows = rows
        self.stream = stream

    @cached_property
    def table(self) -> pa.Table:
        if isinstance(self._rows, pa.Table):
            return self._rows
        return pa.Table.from_pandas(self._rows, preserve_index=False).replace_schema_metadata(None)

    @cached_property
    def frame(self) -> pd.DataFrame:
        if isinstance(self._rows, pd.DataFrame):
            return self._rows
        return self._rows.to_pandas(types_mapper=pd.ArrowDtype)

    @property
    def columns(self) -> list[str]:
        return list(self._rows.columns) if isinstance(self._rows, pd.DataFrame) else self._rows.column_names

    def __len__(self) -> int:
        return len(self._rows)

    def with_rows(self, rows: pa.Table | pd.DataFrame) -> Batch:
        """Other rows of the same origin."""
        return Batch(rows, self.stream)
