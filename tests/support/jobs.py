"""The two-stage job that many tests run, and the truth for it from plain pandas."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa

from workbench.graph import Application
from workbench.systems.log import StreamLog
from workbench.windows import quantile, tumbling

EPOCH_MS = 1_356_998_400_000  # 2013-01-01T00:00:00Z


def events(rows: int, *, partitions: int, disorder_ms: int, keys: int = 7, seed: int = 1) -> list[pa.Table]:
    """One table for each partition: `at` (timestamp[ms, UTC]) out of order by at most `disorder_ms`, `key`, `value`, `id`."""
    random = np.random.default_rng(seed)
    tables = []
    for partition in range(partitions):
        count = rows // partitions + (partition < rows % partitions)
        times = EPOCH_MS + np.sort(random.integers(0, 86_400_000, count))
        late_by = random.integers(0, disorder_ms + 1, count)
        order = np.argsort(times + late_by, kind="stable")
        tables.append(
            pa.table(
                {
                    "at": pa.array(times[order], pa.timestamp("ms", "UTC")),
                    "key": pa.array([f"key-{key}" for key in random.integers(0, keys, count)]),
                    "value": pa.array(random.normal(0, 10, count)),
                    "id": pa.array(np.arange(count) * partitions + partition),
                }
            )
        )
    return tables


def write_events(
    log: StreamLog, tables: list[pa.Table], stream: str = "events", *, end: bool = True, pieces: int = 3
) -> None:
    """Append in several pieces, so that ranges cross segments; then end the stream."""
    target = log.create(stream, len(tables), exist_ok=True)
    for piece in range(pieces):
        for partition, table in enumerate(tables):
            first, last = (len(table) * edge // pieces for edge in (piece, piece + 1))
            target.append(table.slice(first, last - first), partition, time_column="at")
    if end:
        target.end()


def hourly(partitions: int = 4, *, out_of_orderness: int = 0, name: str = "hourly") -> Application:
    """events → partition by key → hourly windows → panes; late rows on the side."""
    app = Application(name)
    (
        app.input("events", event_time="at", out_of_orderness=out_of_orderness)
        .filter("value > -100")
        .partition_by("key", partitions=partitions)
        .window(tumbling("1h"), late="late")
        .aggregate(n=("id", "count"), total=("value", "sum"), p95=("value", quantile(0.95)), ids=("id", "nunique"))
        .send_to("panes")
    )
    return app


def hourly_truth(rows: pd.DataFrame) -> pd.DataFrame:
    """What `hourly` must emit for the rows it accepted, sorted by window and key."""
    frame = pd.DataFrame({name: rows[name].to_numpy() for name in ("key", "value", "id")})
    frame["window_start"] = _utc(rows["at"]).dt.floor("h").to_numpy()
    truth = (
        frame.groupby(["key", "window_start"])
        .agg(
            n=("id", "count"), total=("value", "sum"), p95=("value", lambda v: v.quantile(0.95)), ids=("id", "nunique")
        )
        .reset_index()
    )
    return truth.sort_values(["window_start", "key"], ignore_index=True)


def assert_hourly_is_true(log: StreamLog, tables: list[pa.Table]) -> int:
    """Panes equal the truth over all rows less the reported late ones. Returns the number of late rows."""
    rows = pa.concat_tables(tables).to_pandas()
    late = log.stream("late").to_pandas()
    assert not late["id"].duplicated().any() if len(late) else True
    accepted = rows[~rows["id"].isin(late["id"])] if len(late) else rows
    truth = hourly_truth(accepted)
    if truth.empty:
        assert log.stream("panes").to_pandas().empty
        return len(late)
    panes = log.stream("panes").to_pandas().sort_values(["window_start", "key"], ignore_index=True)
    ours = pd.DataFrame({name: panes[name].to_numpy() for name in ("key", "n", "total", "p95", "ids")})
    ours.insert(1, "window_start", _utc(panes["window_start"]))
    pd.testing.assert_frame_equal(ours, truth, check_dtype=False, rtol=1e-9)
    return len(late)


def _utc(times: pd.Series) -> pd.Series:
    """Times in one representation, whatever the reader made of them; without a zone, as everything is UTC."""
    return pd.to_datetime(times, utc=True).dt.tz_localize(None).astype("datetime64[ms]")
