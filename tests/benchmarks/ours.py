"""Our job for the work that the benchmarks compare: partition by key, then hourly windows with four aggregates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.benchmarks.inputs import STREAM
from tests.benchmarks.scale import DISORDER_MS, PARTITIONS

if TYPE_CHECKING:
    from workbench.graph import Application


def hourly(name: str, *, out_of_orderness: int = DISORDER_MS) -> Application:
    """events → partition by key (8) → hourly windows → panes: key, window_start, window_end, n, total, mean, top."""
    import workbench as wb

    app = wb.Application(name)
    (
        app.input(STREAM, event_time="event_time", out_of_orderness=out_of_orderness)
        .partition_by("key", partitions=PARTITIONS)
        .window(wb.tumbling("1h"))
        .aggregate(n=("value", "count"), total=("value", "sum"), mean=("value", "mean"), top=("value", "max"))
        .send_to(f"{name}.panes")
    )
    return app
