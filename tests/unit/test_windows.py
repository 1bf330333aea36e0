from __future__ import annotations

import math
import pickle
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from workbench.errors import (
    InvalidAggregate,
    InvalidDuration,
    InvalidTime,
    InvalidWindow,
    SumOverflow,
    UnknownColumn,
    WrongType,
)
from workbench.windows import (
    Aggregate,
    Assigner,
    WindowAggregation,
    WindowSpec,
    WindowStore,
    quantile,
    session,
    sliding,
    tumbling,
)
from workbench.windows.durations import duration_text, milliseconds

MAX_TIMESTAMP = 2**63 - 1
NAN = float("nan")
HOUR = 3_600_000


class MemoryChunks(dict[str, bytes]):
    def get(self, id: str) -> bytes:  # type: ignore[override]
        return self[id]

    def put(self, id: str, data: bytes) -> None:
        self[id] = data

    def delete(self, id: str) -> None:
        del self[id]


def operator(assigner: Assigner, keys: tuple[str, ...] = (), **aggregates: Any) -> WindowAggregation:
    return WindowAggregation(WindowSpec(assigner, keys, aggregates, "time"))


def table(**columns: Any) -> pa.Table:
    made = pa.table(columns)
    return made.set_column(made.schema.get_field_index("time"), "time", made["time"].cast(pa.int64()))


def starts(panes: pa.Table) -> list[int]:
    return [round(start.timestamp() * 1000) for start in panes["window_start"].to_pylist()]


def results(values: pa.Array, aggregate: str | Aggregate, batches: int = 2) -> Any:
    """The aggregate of `values`, added in several batches that are merged from their chunks."""
    operated, chunks = operator(tumbling("1h"), of=("value", aggregate)), MemoryChunks()
    store = WindowStore(chunks, fan_in=2)
    whole = pa.table({"time": pa.array(range(len(values)), pa.int64()), "value": values})
    size = math.ceil(len(values) / batches)
    for begin in range(0, len(values), size):
        operated.add(store, whole.slice(begin, size), None)
        store = WindowStore(chunks, store.manifest(), fan_in=2)
    panes = operated.close(store, MAX_TIMESTAMP)
    assert panes.schema == operated.output_schema(whole.schema)
    return panes["of"].to_pylist()[0]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("1h", HOUR),
        ("15 min", 900_000),
        ("500ms", 500),
        ("1h 30min", 5_400_000),
        ("1.5 hours", 5_400_000),
        ("2 Days", 172_800_000),
        ("-3s", -3_000),
        (timedelta(seconds=90), 90_000),
        (pd.Timedelta("15min"), 900_000),
        (np.int64(7), 7),
        (42, 42),
    ],
)
def test_durations_are_read_however_people_write_them(written: Any, expected: int) -> None:
    assert milliseconds(written, "size") == expected


@pytest.mark.parametrize(
    ("written", "part"),
    [
        ("soon", "'soon' is not a duration"),
        ("5", "'5' is not a duration"),
        ("", "'' is not a duration"),
        ("1h and a bit", "not a duration"),
        ("3 months", "not a duration"),
        (1.5, "not float"),
        (True, "not bool"),
        (None, "not NoneType"),
        (pd.NaT, "not NaTType"),
        ("0.5ms", "whole number of milliseconds"),
        (timedelta(microseconds=1), "whole number of milliseconds"),
        (pd.Timedelta(1, "ns"), "whole number of milliseconds"),
        (10**18, "ten thousand years"),
    ],
)
def test_what_is_no_duration_says_why(written: Any, part: str) -> None:
    with pytest.raises(InvalidDuration, match=part):
        tumbling(written)


def test_durations_are_shown_as_people_write_them() -> None:
    assert duration_text(5_400_001) == "1h 30min 1ms"
    assert duration_text(0) == "0ms"
    assert str(tumbling("90min")) == "tumbling 1h 30min"
    assert str(tumbling("1d", origin="6h")) == "tumbling 1d from 6h"
    assert str(sliding("1h", "15min")) == "sliding 1h every 15min"
    assert str(session("30s")) == "session 30s"


@pytest.mark.parametrize(
    "make",
    [
        lambda: tumbling(0),
        lambda: tumbling("-1h"),
        lambda: sliding("1h", 0),
        lambda: sliding("15min", "1h"),
        lambda: session(0),
        lambda: session(timedelta(seconds=-1)),
    ],
)
def test_windows_that_can_not_be_are_refused(make: Any) -> None:
    with pytest.raises(InvalidWindow):
        make()


def test_tumbling_windows_start_at_the_floor_of_a_time_also_before_1970() -> None:
    first, last = tumbling("1h").starts(np.array([0, HOUR - 1, HOUR, -1, -HOUR, -HOUR - 1]))
    assert last.tolist() == [0, 0, HOUR, -HOUR, -HOUR, -2 * HOUR]
    assert first is last


def test_an_origin_moves_the_edges() -> None:
    assert tumbling(10, origin=3).starts(np.array([2, 3, 12, -8]))[1].tolist() == [-7, 3, 3, -17]


def test_sliding_windows_hold_a_time_that_their_size_covers() -> None:
    # Spark's window('90 minutes', '60 minutes') holds 23:59:59 once (from 23:00), 23:00 twice.
    first, last = sliding("90min", "60min").starts(np.array([-1_000, -HOUR, -HOUR + 1_800_000]))
    assert first.tolist() == [-HOUR, -2 * HOUR, -HOUR]
    assert last.tolist() == [-HOUR, -HOUR, -HOUR]


def test_a_window_closes_when_the_watermark_reaches_its_end() -> None:
    op, store = operator(tumbling(10), rows=("*", "size")), WindowStore(MemoryChunks())
    op.add(store, table(time=[0, 9, 10]), None)
    assert len(op.close(store, 9)) == 0
    assert op.close(store, 10)["rows"].to_pylist() == [2]
    assert len(op.close(store, 10)) == 0
    assert starts(op.close(store, 20)) == [10]


def test_a_row_at_the_watermark_is_on_time_and_one_of_a_closed_window_is_late() -> None:
    op, store = operator(tumbling(10), rows=("*", "size")), WindowStore(MemoryChunks())
    late, accepted = op.add(store, table(time=[9, 10, 15, 19], name=["a", "b", "c", "d"]), 15)
    assert late.to_pylist() == [{"time": 9, "name": "a"}]
    assert accepted == 3


def test_a_row_of_a_window_that_was_closed_before_is_late_whatever_the_watermark_says_now() -> None:
    op, store = operator(tumbling(10), rows=("*", "size")), WindowStore(MemoryChunks())
    op.close(store, 10)
    for watermark in (None, 5):
        late, _ = op.add(store, table(time=[9]), watermark)
        assert len(late) == 1


def test_a_row_that_is_late_for_some_sliding_windows_counts_in_the_others() -> None:
    op, store = operator(sliding(20, 10), rows=("*", "size")), WindowStore(MemoryChunks())
    late, accepted = op.add(store, table(time=[12]), 20)
    assert (len(late), accepted) == (0, 1)
    assert starts(op.close(store, MAX_TIMESTAMP)) == [10]


def test_sliding_windows_that_close_together_are_spread_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    op = operator(sliding(50, 5), ("key",), total=("value", "sum"), median=("value", quantile(0.5)))
    rows = table(time=list(range(-90, 90, 7)), key=["a", "b"] * 13, value=list(range(26)))
    panes = []
    for block in (4_000_000, 40, 1):
        monkeypatch.setattr("workbench.windows.aggregation._BLOCK", block)
        store = WindowStore(MemoryChunks())
        op.add(store, rows, None)
        panes.append(op.close(store, MAX_TIMESTAMP))
    assert len(panes[0]) > 80
    assert panes[0].equals(panes[1])
    assert panes[0].equals(panes[2])


def test_rows_without_an_event_time_are_returned_as_late() -> None:
    op, store = operator(tumbling(10), rows=("*", "size")), WindowStore(MemoryChunks())
    late, accepted = op.add(store, table(time=[None, 3], name=["x", "y"]), None)
    assert late.to_pylist() == [{"time": None, "name": "x"}]
    assert accepted == 1


def test_sessions_join_at_exactly_their_gap_as_in_spark() -> None:
    # Spark's session_window('10 seconds') of these seconds: [0, 29), [40, 60), [61, 71).
    op, store = operator(session("10s"), rows=("*", "size")), WindowStore(MemoryChunks())
    op.add(store, table(time=[1000 * second for second in (0, 10, 19, 40, 50, 61)]), None)
    panes = op.close(store, MAX_TIMESTAMP)
    assert starts(panes) == [0, 40_000, 61_000]
    assert [round(end.timestamp()) for end in panes["window_end"].to_pylist()] == [29, 60, 71]
    assert panes["rows"].to_pylist() == [3, 2, 1]


def test_a_session_stays_open_while_a_row_on_time_could_join_it() -> None:
    op, store = operator(session(10), rows=("*", "size")), WindowStore(MemoryChunks())
    op.add(store, table(time=[0]), None)
    assert len(op.close(store, 10)) == 0
    late, _ = op.add(store, table(time=[9, 10]), 10)
    assert late["time"].to_pylist() == [9]
    assert op.close(store, 21)["rows"].to_pylist() == [2]


def test_the_watermark_of_the_panes_never_passes_a_window_that_is_still_open() -> None:
    op, store = operator(tumbling(10), rows=("*", "size")), WindowStore(MemoryChunks())
    assert [op.earliest_open_start(store, w) for w in (0, 9, 10, 11, -(2**63))] == [0, 0, 10, 10, -(2**63)]
    op = operator(session(10), rows=("*", "size"))
    op.add(store, table(time=[-5, 7, 40]), None)
    assert op.earliest_open_start(store, 10) == -5
    op.close(store, 20)
    assert op.earliest_open_start(store, 20) == 20


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        # What Spark 4.3 gives for the same values in a batch query.
        ([1.0, NAN, 2.0], (3, NAN, 1.0, NAN, NAN, NAN, 3, NAN)),
        ([NAN], (1, NAN, NAN, NAN, NAN, None, 1, NAN)),
        ([-0.0, 0.0], (2, 0.0, 0.0, 0.0, 0.0, 0.0, 1, 0.0)),
        ([None, None], (0, None, None, None, None, None, 0, None)),
        ([5.0], (1, 5.0, 5.0, 5.0, 5.0, None, 1, 5.0)),
        ([NAN, NAN], (2, NAN, NAN, NAN, NAN, NAN, 1, NAN)),
        ([1.0, math.inf], (2, math.inf, 1.0, math.inf, math.inf, NAN, 2, math.inf)),
    ],
)
@pytest.mark.parametrize("batches", [1, 2])
def test_nulls_nan_and_zeros_are_treated_as_in_a_batch_query_of_spark(
    values: list[float | None], expected: tuple[float | None, ...], batches: int
) -> None:
    aggregates = ("count", "sum", "min", "max", "mean", "std", "nunique", quantile(0.75))
    for name, value in zip(aggregates, expected, strict=True):
        found = results(pa.array(values, pa.float64()), name, batches)
        assert found == value or (found is not None and math.isnan(found) and math.isnan(value)), name


@pytest.mark.parametrize(
    ("values", "least", "greatest"),
    [
        (pa.array(["b", None, "a", "ü"]), "a", "ü"),
        (pa.array(["b", None, "a", "ü"], pa.large_string()), "a", "ü"),
        (pa.array(["b", None, "a", "b"]).dictionary_encode(), "a", "b"),
        (pa.array([True, None, False, True]), False, True),
        (pa.array([3, None, 1, 2], pa.uint8()), 1, 3),
        (pa.array([date(2013, 1, 2), None, date(2013, 1, 1), None]), date(2013, 1, 1), date(2013, 1, 2)),
        (pa.array([Decimal("1.5"), None, Decimal("-2.5"), None]), Decimal("-2.5"), Decimal("1.5")),
        (pa.array([b"b", None, b"a", b"c"]), b"a", b"c"),
        (pa.nulls(4), None, None),
    ],
)
def test_any_type_with_an_order_has_extremes_and_edges(values: pa.Array, least: Any, greatest: Any) -> None:
    assert results(values, "min") == least
    assert results(values, "max") == greatest
    assert results(values, "first") == values[0].as_py()
    there = [value for value in values.to_pylist() if value is not None]
    assert results(values, "last") == (there[-1] if there else None)
    assert results(values, "count") == len(there)
    assert results(values, "nunique") == len(set(there))
    assert results(values, "size") == 4


def test_decimals_stay_decimals_with_the_precision_of_spark() -> None:
    values = pa.array([Decimal("1.25"), Decimal("2.10"), Decimal("2.10"), None], pa.decimal128(5, 2))
    assert results(values, "sum") == Decimal("5.45")
    assert results(values, "mean") == Decimal("1.816667")
    assert results(values, "std") == pytest.approx(0.49074772881118195)
    assert results(values, quantile(0.5)) == 2.1
    schema = operator(tumbling(1), s=("value", "sum"), m=("value", "mean")).output_schema(
        pa.schema([("time", pa.int64()), ("value", values.type)])
    )
    assert (schema.field("s").type, schema.field("m").type) == (pa.decimal128(15, 2), pa.decimal128(9, 6))


def test_whole_numbers_are_summed_exactly_and_never_wrap_around() -> None:
    assert results(pa.array([2**62, 2**62 - 1]), "sum") == 2**63 - 1
    assert results(pa.array([2**62, 2**62]), "mean") == 2.0**62
    assert results(pa.array([True, None, True]), "sum") == 2
    for batches in (1, 2):
        with pytest.raises(SumOverflow, match="64 bits"):
            results(pa.array([2**62, 2**62]), "sum", batches)
    with pytest.raises(SumOverflow):
        results(pa.array([2**63], pa.uint64()), "sum")


def test_first_and_last_follow_event_time_and_then_arrival() -> None:
    op = operator(tumbling(100), first=("value", "first"), last=("value", "last"))
    store = WindowStore(MemoryChunks())
    op.add(store, table(time=[5, 5, 9], value=["a", "b", "c"]), None)
    op.add(store, table(time=[5, 9, 1, 10], value=["d", "e", None, None]), None)
    assert op.close(store, 100).select(["first", "last"]).to_pylist() == [{"first": "a", "last": "e"}]


def test_null_and_nan_keys_are_groups_of_their_own_and_panes_are_sorted_with_nulls_last() -> None:
    op, store = operator(tumbling(10), ("x", "y"), rows=("*", "size")), WindowStore(MemoryChunks())
    rows = table(time=[0] * 7, x=[NAN, None, 0.0, -0.0, NAN, None, 3.0], y=["b", "a", "a", "a", "b", "c", None])
    op.add(store, rows, None)
    op.add(store, rows, None)
    panes = op.close(store, 10)
    assert panes["y"].to_pylist() == ["a", None, "b", "a", "c"]
    assert panes["rows"].to_pylist() == [4, 2, 4, 2, 2]
    assert [str(x) for x in panes["x"].to_pylist()] == ["0.0", "3.0", "nan", "None", "None"]


def test_keys_of_one_name_meet_whatever_their_arrow_type_and_chunks() -> None:
    op, store = operator(tumbling(10), ("key",), rows=("*", "size")), WindowStore(MemoryChunks())
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        key = pa.chunked_array([pa.array(["a", "b"]).cast(kind), pa.array(["b", None]).cast(kind)])
        op.add(store, table(time=[0] * 4, key=key), None)
    assert op.close(store, 10).select(["key", "rows"]).to_pylist() == [
        {"key": "a", "rows": 4},
        {"key": "b", "rows": 8},
        {"key": None, "rows": 4},
    ]


def test_types_that_widen_from_batch_to_batch_are_followed() -> None:
    op, store = operator(tumbling(10), total=("value", "sum"), most=("value", "max")), WindowStore(MemoryChunks())
    op.add(store, table(time=[0], value=pa.nulls(1)), None)
    op.add(store, table(time=[0], value=pa.array([2], pa.int32())), None)
    op.add(store, table(time=[0], value=[0.5]), None)
    panes = op.close(store, 10)
    assert panes.select(["total", "most"]).to_pylist() == [{"total": 2.5, "most": 2.0}]
    with pytest.raises(WrongType, match="no common type"):
        op.add(store, table(time=[20], value=["text"]), None)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_event_times_are_timestamps_of_any_unit(unit: str) -> None:
    op, store = operator(tumbling("1s"), rows=("*", "size")), WindowStore(MemoryChunks())
    times = pa.array([-1, 0, 1], pa.timestamp("s", tz="America/New_York")).cast(pa.timestamp(unit))
    op.add(store, pa.table({"time": times}), None)
    panes = op.close(store, MAX_TIMESTAMP)
    assert starts(panes) == [-1000, 0, 1000]
    assert panes.schema.field("window_start").type == pa.timestamp("us", tz="UTC")


def test_times_that_no_window_can_show_are_refused() -> None:
    op, store = operator(tumbling("1h"), rows=("*", "size")), WindowStore(MemoryChunks())
    with pytest.raises(InvalidTime, match="another unit"):
        op.add(store, table(time=[1_356_998_400_000_000_000]), None)
    with pytest.raises(InvalidTime, match="'time'"):
        op.add(store, pa.table({"time": ["yesterday"]}), None)


def test_the_schema_of_the_panes_is_known_before_the_first_row() -> None:
    op = operator(tumbling("1h"), ("carrier",), rows=("*", "size"), mean=("delay", "mean"), least=("delay", "min"))
    rows = pa.schema([("time", pa.timestamp("us")), ("carrier", pa.large_string()), ("delay", pa.int16())])
    assert op.output_schema(rows) == pa.schema(
        [
            ("carrier", pa.string()),
            ("window_start", pa.timestamp("us", tz="UTC")),
            ("window_end", pa.timestamp("us", tz="UTC")),
            ("rows", pa.int64()),
            ("mean", pa.float64()),
            ("least", pa.int16()),
            ("drained", pa.bool_()),
        ]
    )
    store = WindowStore(MemoryChunks())
    assert op.close(store, 5).column_names == op.output_schema(rows).names
    op.add(store, rows.empty_table(), None)
    assert op.close(store, 6).schema == op.output_schema(rows)


@pytest.mark.parametrize(
    ("keys", "aggregates", "error", "part"),
    [
        (("carier",), {"n": ("*", "size")}, UnknownColumn, "Did you mean 'carrier'"),
        ((), {"n": ("delya", "count")}, UnknownColumn, "Did you mean 'delay'"),
        ((), {"n": ("nothing", "size")}, UnknownColumn, "'nothing'"),
        ((), {"n": ("carrier", "mean")}, WrongType, "mean needs numbers, but column 'carrier' is of type string"),
        ((), {"n": ("carrier", quantile(0.95))}, WrongType, r"quantile\(0.95\) needs numbers"),
        ((), {"n": ("tags", "nunique")}, WrongType, "nunique"),
        ((), {"n": ("tags", "max")}, WrongType, "order"),
        (("tags",), {"n": ("*", "size")}, WrongType, "no keys"),
    ],
)
def test_columns_that_do_not_fit_are_named_early(
    keys: tuple[str, ...], aggregates: dict[str, Any], error: type[Exception], part: str
) -> None:
    rows = pa.schema(
        [("time", pa.int64()), ("carrier", pa.string()), ("delay", pa.int64()), ("tags", pa.list_(pa.string()))]
    )
    op = operator(tumbling("1h"), keys, **aggregates)
    with pytest.raises(error, match=part):
        op.output_schema(rows)
    with pytest.raises(error, match=part):
        op.add(WindowStore(MemoryChunks()), rows.empty_table(), None)


@pytest.mark.parametrize(
    ("aggregates", "part"),
    [
        ({}, "at least one"),
        ({"n": ("a", "average")}, "unknown"),
        ({"n": ("a", "conut")}, "Did you mean 'count'"),
        ({"n": ("a", "quantile")}, "which"),
        ({"n": "count"}, "pair"),
        ({"n": ("a", 3)}, "unknown"),
        ({"carrier": ("a", "count")}, "has the columns"),
        ({"window_start": ("a", "count")}, "has the columns"),
    ],
)
def test_aggregates_that_can_not_be_are_refused(aggregates: Any, part: str) -> None:
    with pytest.raises(InvalidAggregate, match=part):
        WindowSpec(tumbling("1h"), ("carrier",), aggregates, "time")


@pytest.mark.parametrize("fraction", [-0.1, 1.1, NAN, "0.5", True])
def test_a_quantile_is_between_nothing_and_all(fraction: Any) -> None:
    with pytest.raises(InvalidAggregate, match="from 0 to 1"):
        quantile(fraction)


def test_a_specification_travels_as_a_pickle() -> None:
    spec = WindowSpec(sliding("1h", "15min"), ("carrier",), {"p95": ("delay", quantile(0.95))}, "time")
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_aggregates_of_one_column_share_what_they_are_computed_from() -> None:
    spec = WindowSpec(
        tumbling(1),
        (),
        {name: ("v", name) for name in ("count", "mean", "nunique")} | {"q": ("v", quantile(0.5))},
        "time",
    )
    assert [component.name for component in spec.components] == ["count.0", "total.0", "values.0"]
