"""Windows in event time: assigners, mergeable aggregates, and a store whose cost follows what changes."""

from workbench.windows.aggregates import Aggregate, quantile
from workbench.windows.aggregation import WindowAggregation
from workbench.windows.assigners import Aligned, Assigner, Session, session, sliding, tumbling
from workbench.windows.durations import Duration
from workbench.windows.spec import WindowSpec
from workbench.windows.store import ChunkStore, WindowStore

__all__ = [
    "Aggregate",
    "Aligned",
    "Assigner",
    "ChunkStore",
    "Duration",
    "Session",
    "WindowAggregation",
    "WindowSpec",
    "WindowStore",
    "quantile",
    "session",
    "sliding",
    "tumbling",
]
