"""Joins without an engine: what matches, what is held for how long, what the result looks like."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import InvalidJoin, InvalidTime
from workbench.joins import JoinSpec, JoinStore, KeyedTable, LookupSpec, Sizes, StreamJoin, join_table
from workbench.joins.keys import common_codes
from workbench.joins.matching import Matching
from workbench.messages import MAX_TIMESTAMP
from workbench.windows.store import EARLIEST

MINUTE = 60_000
TINY = Sizes(fan_in=2, chunk_rows=4, small_rows=2)
UNKNOWN = (EARLIEST, EARLIEST)
times = st.integers(-50, 50)


class Kept(dict[str, bytes]):
    """Chunks in memory, counting what is read."""

    reads = 0

    def get(self, id: str) -> bytes:  # type: ignore[override]
        self.reads += 1
        return self[id]

    def put(self, id: str, data: bytes) -> None:
        self[id] = data

    def delete(self, id: str) -> None:
        del self[id]


def spec(how: str = "inner", before: int = 10, after: int = 10, **more: object) -> JoinSpec:
    fixed = {"left_on": ("key",), "right_on": ("key",), "left_time": "at", "right_time": "seen", "event_time": "at"}
    return JoinSpec(**{**fixed, "how": how, "before": before, "after": after, **more})  # type: ignore[arg-type]


def left(*rows: tuple[object, int, int]) -> pa.Table:
    """Rows (key, at, a)."""
    return pa.table(
        {"key": [r[0] for r in rows], "at": pa.array([r[1] for r in rows], pa.int64()), "a": [r[2] for r in rows]}
    )


def right(*rows: tuple[object, int, int]) -> pa.Table:
    """Rows (key, seen, b)."""
    return left(*rows).rename_columns(["key", "seen", "b"])


class Run:
    """A join beside its store, which is closed and opened again at every `batch`."""

    def __init__(self, join: JoinSpec, sizes: Sizes = TINY) -> None:
        self.join, self.kept, self.sizes = StreamJoin(join), Kept(), sizes
        self.store = JoinStore(self.kept, None, sizes)
        self.watermarks = UNKNOWN
        self.out: list[pa.Table] = []
        self.late: list[pa.Table] = []

    def add(self, side: str, table: pa.Table, *, drained: bool = False) -> list[tuple[object, ...]]:
        accepted, late = self.join.accept(side, table, self.watermarks[side == "right"])  # type: ignore[arg-type]
        self.late.append(late)
        if not len(accepted):
            return []
        return self._emit(self.join.add(self.store, side, accepted, self.watermarks, drained=drained))  # type: ignore[arg-type]

    def advance(
        self, left: int | None = None, right: int | None = None, *, drained: bool = False
    ) -> list[tuple[object, ...]]:
        known = self.watermarks
        self.watermarks = (known[0] if left is None else left, known[1] if right is None else right)
        return self._emit(self.join.expire(self.store, self.watermarks, drained=drained))

    def batch(self) -> None:
        manifest = json.loads(json.dumps(self.store.manifest()))
        self.store = JoinStore(self.kept, manifest, self.sizes)

    def _emit(self, tables: object) -> list[tuple[object, ...]]:
        found = list(tables)  # type: ignore[call-overload]
        self.out += found
        return [(row["a"], row.get("b")) for table in found for row in table.to_pylist()]


# Matching.


@given(
    left=st.lists(st.tuples(st.integers(0, 3), times), max_size=20),
    right=st.lists(st.tuples(st.integers(0, 3), times), max_size=20),
    low=st.integers(-30, 30),
    width=st.integers(0, 40),
    most=st.integers(1, 30),
)
def test_pairs_are_those_of_a_loop_over_everything(
    left: list[tuple[int, int]], right: list[tuple[int, int]], low: int, width: int, most: int
) -> None:
    sides = [np.array([row[i] for row in rows], np.int64) for rows in (left, right) for i in (0, 1)]
    matching = Matching(*sides, low, low + width)
    expected = {
        (i, j)
        for i, (key, at) in enumerate(left)
        for j, (other, seen) in enumerate(right)
        if key == other and low <= seen - at <= low + width
    }
    blocks = list(matching.blocks(most))
    found = [(int(i), int(j)) for block in blocks for i, j in zip(*block, strict=True)]
    assert len(found) == matching.pairs == len(expected) and set(found) == expected
    assert set(np.flatnonzero(matching.left_matched)) == {i for i, _ in expected}
    assert set(np.flatnonzero(matching.right_matched)) == {j for _, j in expected}
    per_row = max([len(left), len(right), 1])
    assert all(len(block[0]) <= most + per_row for block in blocks)


def test_keys_meet_across_widths_units_and_encodings_and_nan_is_a_key() -> None:
    pairs = [
        (pa.array([1, 2], pa.int8()), pa.array([2, 1], pa.int64())),
        (pa.array(["x", "y"]).dictionary_encode(), pa.array(["y", "x"], pa.large_string())),
        (pa.array([float("nan"), -0.0]), pa.array([0.0, float("nan")], pa.float32())),
        (pa.array([1, 2], pa.timestamp("s", "UTC")), pa.array([2000, 1000], pa.timestamp("ms", "UTC"))),
    ]
    for one, other in pairs:
        codes = common_codes(pa.table({"k": one}), ["k"], pa.table({"k": other}), ["k"])
        assert codes[0].tolist() == codes[1].tolist()[::-1], one.type


@pytest.mark.parametrize(
    ("one", "other"),
    [(pa.int64(), pa.float64()), (pa.string(), pa.int64()), (pa.timestamp("s"), pa.timestamp("s", "UTC"))],
)
def test_keys_that_are_never_equal_are_refused(one: pa.DataType, other: pa.DataType) -> None:
    tables = pa.schema([("key", one)]).empty_table(), pa.schema([("key", other)]).empty_table()
    with pytest.raises(InvalidJoin, match=re.escape(f"'key' is of type {one} on the left")):
        common_codes(tables[0], ["key"], tables[1], ["key"])


# Holding and letting go.


@pytest.mark.parametrize("first", ["left", "right"])
def test_a_pair_comes_when_the_later_of_its_rows_arrives_and_both_ends_of_the_bound_count(first: str) -> None:
    run = Run(spec(before=10, after=5))
    rows = {
        "left": left(("k", 100, 1)),
        "right": right(("k", 89, 0), ("k", 90, 1), ("k", 105, 2), ("k", 106, 3), ("other", 100, 4)),
    }
    second = "right" if first == "left" else "left"
    assert run.add(first, rows[first]) == []
    run.batch()
    assert sorted(run.add(second, rows[second])) == [(1, 1), (1, 2)]
    assert run.advance(MAX_TIMESTAMP, MAX_TIMESTAMP) == []
    assert run.store.open_rows == 0


def test_a_row_is_held_until_the_other_sides_watermark_has_passed_its_bound() -> None:
    run = Run(spec(before=10, after=5))
    run.add("left", left(("k", 100, 1)))
    run.advance(left=1_000)
    assert run.store.open_rows == 1, "its own side's watermark says nothing about what may match it"
    run.advance(right=105)
    assert run.store.open_rows == 1, "a row at the watermark is on time"
    assert run.add("right", right(("k", 105, 7))) == [(1, 7)]
    run.advance(right=106)
    assert run.store.open_rows == 0
    run.add("right", right(("k", 900, 8)))
    assert run.store.open_rows == 0, "the left side is at 1000 already: no row within 10 before it comes any more"


def test_a_left_row_without_a_match_comes_once_when_none_can_come_and_says_if_a_drain_decided_it() -> None:
    run = Run(spec("left"))
    run.add("left", left(("k", 100, 1), ("k", 200, 2), (None, 100, 3)))
    run.batch()
    assert run.add("right", right(("k", 205, 5))) == [(2, 5)]
    run.batch()
    assert run.advance(right=111) == [(1, None), (3, None)]
    assert run.out[-1].schema.field("b").type == pa.int64()
    run.batch()
    assert run.advance(right=300) == [], "row 2 has met its match"
    assert run.add("left", left(("k", 150, 4))) == [(4, None)], "too old to wait for anything"
    run.add("left", left(("k", 500, 6), (None, 500, 7)))
    assert run.advance(right=MAX_TIMESTAMP, drained=True) == [(6, None), (7, None)]
    drained = {row["a"]: row["drained"] for table in run.out for row in table.to_pylist()}
    assert drained == {1: False, 2: False, 3: False, 4: False, 6: True, 7: False}
    assert run.store.left.rows == run.store.matched.rows == 0


def test_rows_behind_their_own_sides_watermark_or_without_a_time_are_late() -> None:
    run = Run(spec())
    run.advance(left=100, right=5_000)
    table = left(("k", 99, 1), ("k", 100, 2)).append_column("n", pa.array([1, 2]))
    run.add("left", table)
    assert run.late[-1]["a"].to_pylist() == [1]
    without = table.set_column(1, "at", pa.array([None, 7_000], pa.int64()))
    run.add("left", without)
    assert run.late[-1]["a"].to_pylist() == [1]
    with pytest.raises(InvalidTime):
        run.add("left", table.set_column(1, "at", pa.array(["x", "y"])))
    with pytest.raises(InvalidJoin, match="100 million years"):
        run.add("left", left(("k", 2**63 - 5, 1)))


def test_the_output_watermark_waits_for_the_earliest_row_that_may_still_be_emitted() -> None:
    run = Run(spec(before=10, after=5))
    assert run.join.output_watermark(run.store, (80, 70)) == 70
    run.add("left", left(("k", 60, 1)))
    run.advance(80, 63)
    assert run.join.output_watermark(run.store, run.watermarks) == 60
    run.advance(80, 66)
    assert run.join.output_watermark(run.store, run.watermarks) == 66
    of_right = Run(spec(before=10, after=5, event_side="right", event_time="seen"))
    of_right.add("right", right(("k", 60, 1)))
    of_right.advance(65, 90)
    assert of_right.join.output_watermark(of_right.store, of_right.watermarks) == 60


def test_a_new_generation_keeps_what_is_held_unless_it_is_reset_and_never_brings_back_what_expired() -> None:
    for reset in (False, True):
        run = Run(spec("left"), Sizes(8, 100, 100))
        run.add("left", left(("k", 100, 1), ("k", 200, 2)))
        assert run.advance(right=150) == [(1, None)]
        run.batch()
        run.join.start_generation(run.store, reset=reset)
        run.watermarks = UNKNOWN
        assert run.add("right", right(("k", 100, 3), ("k", 200, 4))) == ([] if reset else [(2, 4)])


rows_of = st.lists(st.tuples(st.sampled_from(["a", "b", None]), times), max_size=8)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("left"), rows_of),
        st.tuples(st.just("right"), rows_of),
        st.tuples(st.just("advance"), st.tuples(times, times)),
        st.tuples(st.just("batch"), st.none()),
    ),
    max_size=25,
)


@settings(max_examples=250, deadline=None)
@given(
    steps=steps,
    how=st.sampled_from(["inner", "left"]),
    before=st.integers(-8, 15),
    width=st.integers(0, 20),
    side=st.sampled_from(["left", "right"]),
)
def test_whatever_the_order_the_batches_and_the_watermarks_the_result_is_that_of_a_batch_join(
    steps: list[tuple[str, object]], how: str, before: int, width: int, side: str
) -> None:
    side = "left" if how == "left" else side
    run = Run(spec(how, before, width - before, event_side=side, event_time="at" if side == "left" else "seen"))
    accepted: dict[str, list[tuple[str | None, int, int]]] = {"left": [], "right": []}
    number, reached, emitted = 0, EARLIEST, 0
    for what, value in steps:
        if what == "advance":
            marks = [max(known, new) for known, new in zip(run.watermarks, value, strict=True)]  # type: ignore[call-overload]
            run.advance(*marks)
        elif what == "batch":
            run.batch()
        elif value:
            rows = [(key, at, number + i) for i, (key, at) in enumerate(value)]  # type: ignore[arg-type]
            number += len(rows)
            accepted[what] += [row for row in rows if row[1] >= run.watermarks[what == "right"]]
            run.add(what, (left if what == "left" else right)(*rows))
        new = [row for table in run.out[emitted:] for row in table.to_pylist()]
        emitted = len(run.out)
        assert all(row[run.join.spec.event_time] >= reached for row in new), "behind the output watermark"
        if EARLIEST not in run.watermarks:
            reached = max(reached, run.join.output_watermark(run.store, run.watermarks))
    run.advance(MAX_TIMESTAMP, MAX_TIMESTAMP)
    assert run.store.open_rows == 0
    assert run.store.manifest() and not run.kept, "nothing is left behind"
    found = sorted(
        (row["a"], -1 if row.get("b") is None else row["b"]) for table in run.out for row in table.to_pylist()
    )
    assert found == batch_join(accepted["left"], accepted["right"], how, before, width - before)


def batch_join(
    left: Sequence[tuple[str | None, int, int]],
    right: Sequence[tuple[str | None, int, int]],
    how: str,
    before: int,
    after: int,
) -> list[tuple[int, int]]:
    pairs = [
        (a, b)
        for key, at, a in left
        for other, seen, b in right
        if key is not None and key == other and -before <= seen - at <= after
    ]
    alone = {a for _, _, a in left} - {a for a, _ in pairs} if how == "left" else set()
    return sorted(pairs + [(a, -1) for a in alone])


# The store.


def test_a_batch_reads_only_the_chunks_within_its_bound() -> None:
    run = Run(spec(), Sizes(100, 1_000, 10))
    for hour in range(20):
        run.add("right", right(*(("k", hour * 3_600_000 + i, i) for i in range(12))))
        run.batch()
    assert len(run.kept) == 20
    run.kept.reads = 0
    assert len(run.add("left", left(("k", 7 * 3_600_000, 1)))) == 11
    assert run.kept.reads == 1
    run.kept.reads = 0
    run.advance(left=15 * 3_600_000)
    run.batch()
    assert run.kept.reads == 0 and len([id for id in run.kept if id.startswith("right")]) == 5, (
        "gone without being read"
    )


def test_the_number_of_chunks_stays_small_and_a_row_is_rewritten_a_few_times_only() -> None:
    run, written = Run(spec(before=10**9, after=10**9), Sizes(4, 500, 50)), 0
    for batch in range(200):
        before = dict(run.kept)
        run.add("right", right(*((f"k{i}", batch * 100 + i, i) for i in range(20))))
        run.batch()
        written += sum(len(data) for id, data in run.kept.items() if before.get(id) is not data)
    assert run.store.open_rows == 4_000
    assert len(run.kept) < 30
    assert written < 15 * sum(map(len, run.kept.values()))


# Columns.


def test_columns_that_both_sides_have_get_suffixes_and_keys_come_once() -> None:
    rows = left(("k", 1, 1)), right(("k", 2, 2)).append_column("a", pa.array([9]))
    run = Run(spec())
    run.add("left", rows[0])
    run.add("right", rows[1])
    assert run.out[0].to_pylist() == [{"key": "k", "at": 1, "a": 1, "seen": 2, "b": 2, "a_right": 9}]
    both = spec(suffixes=("_l", "_r"))
    assert both.output_schema(rows[0].schema, rows[1].schema).names == ["key", "at", "a_l", "seen", "b", "a_r"]
    with pytest.raises(InvalidJoin, match=r"the same name: 'a'.*rename columns"):
        spec(suffixes=("", "")).output_schema(rows[0].schema, rows[1].schema)


def test_an_event_time_that_a_suffix_renames_must_be_called_so() -> None:
    clash = right(("k", 2, 2)).append_column("at", pa.array([9]))
    with pytest.raises(InvalidJoin, match="is called 'at_l' in them"):
        spec(suffixes=("_l", "_r")).output_schema(left(("k", 1, 1)).schema, clash.schema)
    named = spec(suffixes=("_l", "_r"), event_time="at_l")
    assert named.output_schema(left(("k", 1, 1)).schema, clash.schema).names == [
        "key",
        "at_l",
        "a",
        "seen",
        "b",
        "at_r",
    ]


def test_the_event_time_is_called_so_before_anything_is_known_of_the_other_side() -> None:
    run = Run(spec("left", suffixes=("_l", "_r"), event_time="at_l"))
    run.add("left", left(("k", 1, 1)))
    run.advance(right=MAX_TIMESTAMP)
    assert run.out[-1].column_names == ["key", "at_l", "a", "drained"]


def test_panes_on_the_left_stay_incomplete_and_another_column_drained_is_refused() -> None:
    panes = left(("k", 100, 1), ("k", 100, 2)).append_column("drained", pa.array([True, False]))
    run = Run(spec("left"))
    run.add("left", panes)
    run.advance(right=MAX_TIMESTAMP, drained=False)
    assert run.out[-1]["drained"].to_pylist() == [True, False]
    run = Run(spec("left"))
    run.add("left", panes)
    run.advance(right=MAX_TIMESTAMP, drained=True)
    assert run.out[-1]["drained"].to_pylist() == [True, True]
    other = left(("k", 1, 1)).append_column("drained", pa.array(["yes"]))
    with pytest.raises(InvalidJoin, match=r"'drained'.*of type string. Rename it"):
        spec("left").output_schema(other.schema, right(("k", 1, 1)).schema)


def test_types_may_widen_while_rows_are_held_but_not_change() -> None:
    run = Run(spec())
    run.add("right", right(("k", 1, 1)).set_column(2, "b", pa.array([1], pa.int32())))
    run.batch()
    run.add("right", right(("k", 2, 2**40)))
    run.batch()
    assert sorted(run.add("left", left(("k", 1, 1)))) == [(1, 1), (1, 2**40)]
    with pytest.raises(InvalidJoin, match="of the right input of the join changed their types"):
        run.add("right", right(("k", 2, 2)).set_column(2, "b", pa.array(["x"])))


# Tables.


@settings(max_examples=150, deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("update"), st.lists(st.one_of(st.none(), st.integers(0, 6)), max_size=8)),
            st.tuples(st.just("look up"), st.lists(st.one_of(st.none(), st.integers(0, 8)), max_size=8)),
            st.tuples(st.just("batch"), st.just([])),
        ),
        max_size=25,
    ),
    how=st.sampled_from(["inner", "left"]),
)
def test_a_look_up_finds_the_latest_row_of_each_key(steps: list[tuple[str, list[int | None]]], how: str) -> None:
    kept, truth, number = Kept(), dict[int, int](), 0
    sizes = Sizes(2, 3, 2)
    table = KeyedTable(("id",), kept, None, sizes)
    lookup = LookupSpec(("of",), ("id",), how)  # type: ignore[arg-type]
    for what, keys in steps:
        if what == "update" and keys:
            values = range(number, number + len(keys))
            number += len(keys)
            table.update(pa.table({"id": pa.array(keys, pa.int64()), "value": pa.array(values, pa.int64())}))
            truth |= {key: value for key, value in zip(keys, values, strict=True) if key is not None}
        elif what == "look up":
            rows = pa.table({"of": pa.array(keys, pa.int32()), "n": pa.array(range(len(keys)), pa.int64())})
            found = [(row["n"], row.get("value")) for row in join_table(lookup, rows, table).to_pylist()]
            expected = [(n, truth.get(key)) for n, key in enumerate(keys)]  # type: ignore[arg-type]
            assert found == [(n, value) for n, value in expected if how == "left" or value is not None]
        elif what == "batch":
            table = KeyedTable(("id",), kept, json.loads(json.dumps(table.manifest())), sizes)
    table.manifest()
    assert table.held_rows <= max(1, 12 * len(truth)), "what is superseded goes when chunks are merged"


def test_a_look_up_of_few_keys_in_a_large_table_reads_few_chunks() -> None:
    kept = Kept()
    sizes = Sizes(4, 100, 10)
    table = KeyedTable(("id",), kept, None, sizes)
    table.update(pa.table({"id": [f"key-{i}" for i in range(5_000)], "value": range(5_000)}))
    table = KeyedTable(("id",), kept, table.manifest(), sizes)
    assert len(kept) == 50
    found = join_table(LookupSpec(("id",), ("id",)), pa.table({"id": ["key-77", "nobody", "key-4000"]}), table)
    assert found.to_pylist() == [{"id": "key-77", "value": 77}, {"id": "key-4000", "value": 4000}]
    assert kept.reads <= 3


def test_a_table_of_several_keys_and_one_that_is_empty() -> None:
    table = KeyedTable(("x", "y"), Kept())
    rows = pa.table({"a": [1, 1], "b": ["p", "q"], "x": [5, 6]})
    assert join_table(LookupSpec(("a", "b"), ("x", "y"), "left"), rows, table).equals(rows)
    assert len(join_table(LookupSpec(("a", "b"), ("x", "y")), rows, table)) == 0
    table.update(pa.table({"x": [1, 2], "y": ["q", "p"], "v": [True, False]}))
    found = join_table(LookupSpec(("a", "b"), ("x", "y"), "left"), rows, table)
    assert found.to_pylist() == [{"a": 1, "b": "p", "x": 5, "v": None}, {"a": 1, "b": "q", "x": 6, "v": True}]
    with pytest.raises(InvalidJoin, match="'x' of type int64 on the right"):
        join_table(LookupSpec(("b", "b"), ("x", "y")), rows, table)


def test_pandas_frames_survive_the_round_trip_of_types() -> None:
    frame = pd.DataFrame(
        {"key": pd.Categorical(["u", "v"]), "at": pd.to_datetime([1, 2], unit="ms", utc=True), "a": [1, 2]}
    )
    run = Run(spec(right_time="at", event_time="at"))
    table = pa.Table.from_pandas(frame, preserve_index=False)
    run.add("left", table)
    run.batch()
    assert len(run.add("right", table.rename_columns(["key", "at", "b"]))) == 2
    assert run.out[-1].schema.field("key").type == pa.string()
