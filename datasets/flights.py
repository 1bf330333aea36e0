"""All 336,776 flights that left New York in 2013, in the order in which they landed.

A flight is reported when it lands, but the event is its take-off: so event times arrive out of order by hours, which is
what watermarks are for. `flights.md` has the columns and the measured disorder.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datasets import _nycflights, _streams

if TYPE_CHECKING:
    from workbench.systems.log import StreamLog

ORIGINS = ("EWR", "JFK", "LGA")
"""The airports, in the order of the partitions."""

_TYPES = {
    "month": pa.int32(),
    "dep_delay": pa.int32(),
    "arr_delay": pa.int32(),
    "carrier": pa.string(),
    "flight": pa.int32(),
    "tailnum": pa.string(),
    "origin": pa.string(),
    "dest": pa.string(),
    "air_time": pa.int32(),
    "distance": pa.int32(),
    "minute": pa.int32(),
    "time_hour": pa.timestamp("s", "UTC"),
}
_MINUTE_US = 60_000_000


def table(*, months: Collection[int] | None = None) -> pa.Table:
    """The flights, sorted by landing; the same rows in the same order every time.

    `months` keeps the flights that were scheduled for these months (1 to 12, New York's calendar). Times are
    `timestamp[us, UTC]`, delays and air time minutes, distance statute miles:

    - `event_time`: take-off. A cancelled flight has its scheduled departure.
    - `landed_at`: `event_time` plus the time in the air; decides the order. A flight that was cancelled, or never
      landed where it was meant to, takes the place it would have had: with the median air time of its route.
    - `cancelled`: never took off. Its delays and air time are null.
    """
    source = _nycflights.read("flights.csv.zip", _TYPES)
    source = source.append_column("event_time", _take_off(source))
    source = source.append_column("landed_at", _landing(source))
    source = source.append_column("cancelled", pc.is_null(source["dep_delay"]))
    if months is not None:
        source = source.filter(pc.is_in(source["month"], value_set=pa.array(sorted(months), pa.int32())))
    order = np.argsort(source["landed_at"].to_numpy(), kind="stable")
    return source.take(pa.array(order)).select(
        [
            "event_time",
            "landed_at",
            "carrier",
            "flight",
            "tailnum",
            "origin",
            "dest",
            "dep_delay",
            "arr_delay",
            "air_time",
            "distance",
            "cancelled",
        ]
    )


def backfill() -> pa.Table:
    """The flights of January to November: the past that a job catches up with beside `december`."""
    return table(months=range(1, 12))


def december() -> pa.Table:
    """The flights of December: the live part."""
    return table(months=[12])


def write(
    log: StreamLog,
    stream: str = "flights",
    *,
    months: Collection[int] | None = None,
    end: bool = True,
    limit: int | None = None,
    batch_rows: int = 50_000,
) -> int:
    """Append the flights to `stream`, one partition per airport of `ORIGINS`, in order of landing; return their number.

    The three partitions grow side by side: each round of appends takes the next `batch_rows` landings of all airports.
    `limit` stops after so many landings, `end=False` leaves the stream open for more.
    """
    flights = table(months=months).slice(0, limit)
    return _streams.append(
        log,
        stream,
        flights,
        pc.index_in(flights["origin"], pa.array(ORIGINS)).to_numpy(),
        len(ORIGINS),
        end=end,
        batch_rows=batch_rows,
    )


def _take_off(source: pa.Table) -> pa.Array:
    """Scheduled departure plus delay, as an instant.

    The package gives the scheduled hour in UTC, so that neither midnight nor the two days on which the clocks change
    need a rule of their own, and no time zone database is needed. That the result agrees with the local clock time of
    every departure is tested.
    """
    hour_us = source["time_hour"].cast(pa.int64()).to_numpy() * 1_000_000
    minutes = source["minute"].to_numpy() + pc.fill_null(source["dep_delay"], 0).to_numpy()
    return pa.array(hour_us + minutes.astype(np.int64) * _MINUTE_US, pa.timestamp("us", "UTC"))


def _landing(source: pa.Table) -> pa.Array:
    routes = source.select(["origin", "dest", "air_time"]).to_pandas()
    usual = routes.groupby(["origin", "dest"])["air_time"].transform("median")
    # A route that was never flown at all has no median of its own.
    minutes = routes["air_time"].fillna(usual).fillna(routes["air_time"].median()).to_numpy().astype(np.int64)
    taken_off = source["event_time"].cast(pa.int64()).to_numpy()
    return pa.array(taken_off + minutes * _MINUTE_US, pa.timestamp("us", "UTC"))
