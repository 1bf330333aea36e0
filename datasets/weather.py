"""Hourly weather at the three airports in 2013, as a stream that is aligned with `flights` by airport and hour."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from datasets import _nycflights, _streams
from datasets.flights import ORIGINS

if TYPE_CHECKING:
    from workbench.systems.log import StreamLog

_TYPES = {
    "time_hour": pa.timestamp("s", "UTC"),
    "origin": pa.string(),
    "temp": pa.float64(),
    "dewp": pa.float64(),
    "humid": pa.float64(),
    "wind_dir": pa.int32(),
    "wind_speed": pa.float64(),
    "wind_gust": pa.float64(),
    "precip": pa.float64(),
    "pressure": pa.float64(),
    "visib": pa.float64(),
}


def table() -> pa.Table:
    """The observations in order of time, then airport. `event_time` (`timestamp[us, UTC]`) is the hour observed."""
    source = _nycflights.read("weather.csv", _TYPES)
    times = source["time_hour"].cast(pa.timestamp("us", "UTC"))
    named = source.drop_columns(["time_hour"]).add_column(0, "event_time", times)
    return named.sort_by([("event_time", "ascending"), ("origin", "ascending")]).combine_chunks()


def write(
    log: StreamLog, stream: str = "weather", *, end: bool = True, limit: int | None = None, batch_rows: int = 50_000
) -> int:
    """Append the observations to `stream`, one partition per airport as in `flights`; return their number."""
    weather = table().slice(0, limit)
    return _streams.append(
        log,
        stream,
        weather,
        pc.index_in(weather["origin"], pa.array(ORIGINS)).to_numpy(),
        len(ORIGINS),
        end=end,
        batch_rows=batch_rows,
    )
