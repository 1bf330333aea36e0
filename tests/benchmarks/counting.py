"""Spark's own stateful processor in Python, as its guide shows it: one value of state for each key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle


class CountingProcessor(StatefulProcessor):
    """Counts the rows of each key and tells each batch's new count."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        known = self.count.get()
        n = (0 if known is None else known[0]) + sum(len(frame) for frame in rows)
        self.count.update((n,))
        yield pd.DataFrame({"key": [key[0]], "n": [n]})

    def close(self) -> None:
        """Nothing is open."""
