"""Ad views and the clicks they led to: the example with which Samza's documents explain joins and time alignment.

A click must meet its view, which came up to some minutes earlier in another stream. The closer a job reads the two
streams in time, the less it has to remember.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datasets import _streams
from datasets._random import Draws
from datasets.synthetic import START_MS, disordered, even_times, instants

if TYPE_CHECKING:
    from workbench.systems.log import StreamLog

_HOUR_MS = 3_600_000


class AdTraffic(NamedTuple):
    """Two streams in order of arrival, one table per partition; a click is in the partition of its view."""

    views: tuple[pa.Table, ...]
    clicks: tuple[pa.Table, ...]


def traffic(
    views: int = 100_000,
    *,
    ads: int = 200,
    users: int = 5_000,
    partitions: int = 4,
    click_rate: float = 0.2,
    click_within_ms: int = 120_000,
    disorder_ms: int = 30_000,
    seed: int = 0,
    duration_ms: int = _HOUR_MS,
    start_ms: int = START_MS,
) -> AdTraffic:
    """`views` ad views during `duration_ms`; a share of `click_rate` of them is clicked, within `click_within_ms`.

    Views have `event_time` (`timestamp[us, UTC]`), `view_id` (int64, unique), `ad_id` and `user_id` (text; a few ads
    are shown far more often than the others). Clicks have `event_time`, which is 1 ms to `click_within_ms` after that
    of the view, `view_id` and `ad_id`. In both streams messages arrive less than `disorder_ms` after their event time.
    The same arguments give the same bytes.
    """
    draws = Draws(seed)
    view_id = np.arange(views, dtype=np.int64)
    viewed = disordered(even_times(views, start_ms, duration_ms), disorder_ms, draws)
    ad_id = _names("ad", ads, draws.below(ads, views, skew=2))
    user_id = _names("user", users, draws.below(users, views))
    clicked = draws.uniform(views) < click_rate
    after = 1 + draws.below(click_within_ms, views, skew=2)
    click_time = (viewed + after)[clicked]
    arrival = click_time + draws.below(disorder_ms, len(click_time), skew=3)

    seen = pa.table({"event_time": instants(viewed), "view_id": view_id, "ad_id": ad_id, "user_id": user_id})
    hits = pa.table(
        {"event_time": instants(click_time), "view_id": view_id[clicked], "ad_id": ad_id.filter(pa.array(clicked))}
    )
    hits = hits.take(pa.array(np.argsort(arrival, kind="stable")))
    return AdTraffic(_by_view(seen, partitions), _by_view(hits, partitions))


def write(
    log: StreamLog,
    ads: AdTraffic,
    views: str = "ad-views",
    clicks: str = "ad-clicks",
    *,
    end: bool = True,
    batch_rows: int = 10_000,
) -> int:
    """Append both streams of `ads`, under the names `views` and `clicks`; return the number of messages."""
    return sum(
        _streams.append_each(log, stream, parts, end=end, batch_rows=batch_rows)
        for stream, parts in ((views, ads.views), (clicks, ads.clicks))
    )


def _names(kind: str, many: int, chosen: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    return pa.array([f"{kind}-{index:05d}" for index in range(many)]).take(pa.array(chosen))


def _by_view(table: pa.Table, partitions: int) -> tuple[pa.Table, ...]:
    owner = table["view_id"].to_numpy() % partitions
    return tuple(table.filter(pc.equal(pa.array(owner), partition)) for partition in range(partitions))
