from __future__ import annotations

import datetime
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import InvalidKey, InvalidTime
from workbench.partitioning import partition_of
from workbench.times import NO_TIME, check_unit, event_times, time_range

LARGE = 2**31 - 1
int64s = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("value", "unit", "milliseconds"),
    [
        (-1, "us", -1),
        (-1_000_001, "ns", -2),
        (-1_000_000, "ns", -1),
        (999_999, "ns", 0),
        (-1, "s", -1000),
        (-7, "ms", -7),
    ],
)
def test_finer_times_are_floored_also_before_1970(value: int, unit: str, milliseconds: int) -> None:
    assert event_times(pa.array([value], pa.timestamp(unit))).tolist() == [milliseconds]
    assert event_times(pa.array([value], pa.timestamp(unit, "America/New_York"))).tolist() == [milliseconds]


@given(st.lists(st.none() | int64s), st.sampled_from(["ms", "us", "ns"]))
def test_event_times_are_those_of_python(values: list[int | None], unit: str) -> None:
    per = {"ms": 1, "us": 1_000, "ns": 1_000_000}[unit]
    times = event_times(pa.chunked_array([pa.array(values, pa.timestamp(unit))]))
    assert times.dtype == np.int64
    assert times.tolist() == [NO_TIME if value is None else value // per for value in values]


def test_milliseconds_are_taken_as_they_are_and_without_a_copy() -> None:
    column = pa.array([3, -5])
    times = event_times(column)
    assert times.tolist() == [3, -5]
    assert times.__array_interface__["data"][0] == column.buffers()[1].address


@pytest.mark.parametrize("column", [pa.array([1], pa.int32()), pa.array(["x"]), pa.array([1.5]), pa.nulls(1)])
def test_other_types_are_no_times(column: pa.Array) -> None:
    with pytest.raises(InvalidTime, match="'when' is of type"):
        event_times(column, "when")


def test_seconds_too_far_away_are_refused() -> None:
    with pytest.raises(InvalidTime, match="so far away"):
        event_times(pa.array([2**62], pa.timestamp("s")))


@pytest.mark.parametrize(
    ("unit", "per", "taken_as"),
    [("s", 1, "of 1970-01-16"), ("us", 10**6, "of the year 44,9"), ("ns", 10**9, "of the year 43,0")],
)
def test_whole_numbers_of_another_unit_are_refused_with_what_they_would_be_and_the_cure(
    unit: str, per: int, taken_as: str
) -> None:
    first = 1_357_034_400 * per
    for column in (
        pa.array([first, first + 5 * per]),
        pa.chunked_array([[None], [first, None, first + 1]], pa.int64()),
    ):
        with pytest.raises(InvalidTime) as refused:
            check_unit(column, "at")
        said = str(refused.value)
        assert said.startswith(f"Column 'at' has whole numbers such as {first}.")
        assert taken_as in said and "they are of 2013-01-01." in said
        assert f"pd.to_datetime(frame['at'], unit='{unit}', utc=True)" in said
        cured = pa.Array.from_pandas(pd.to_datetime(pd.Series([first]), unit=unit, utc=True))
        check_unit(cured, "at")
        assert event_times(cured, "at").tolist() == [1_357_034_400_000]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1_357_034_400, 1_357_034_400_000]),  # not all of them
        pa.array([0, 1_357_034_400]),
        pa.array([1_357_034_400], pa.timestamp("ms")),  # a timestamp says its unit
        pa.array([946_684_799]),
        pa.array([4_102_444_800]),
        pa.array([-1_357_034_400]),
        pa.array([], pa.int64()),
        pa.nulls(2, pa.int64()),
    ],
)
def test_times_that_need_not_be_of_another_unit_are_taken_also_those_of_1970(column: pa.Array) -> None:
    check_unit(column, "at")
    expected = [NO_TIME if value is None else value for value in column.cast(pa.int64()).to_pylist()]
    assert event_times(column, "at").tolist() == expected


def test_the_range_of_times_leaves_out_missing_ones() -> None:
    assert time_range(np.array([], np.int64)) is None
    assert time_range(np.array([NO_TIME, NO_TIME])) is None
    assert time_range(np.array([5, NO_TIME, -3])) == (-3, 5)


def places(values: list[Any], kind: pa.DataType | None = None, partitions: int = LARGE) -> list[int]:
    return [int(place) for place in partition_of(pa.array(values, kind), partitions)]


KNOWN: dict[str, tuple[list[Any], pa.DataType | None, list[int]]] = {
    "text": (["", "a", "grün", "a\0", "Partition 0"], None, [38, 76, 5, 93, 46]),
    "whole numbers": ([0, 1, -1, 2**62], pa.int64(), [49, 27, 52, 28]),
    "numbers": ([0.0, 1.5, float("nan"), float("inf")], None, [49, 35, 46, 63]),
    "booleans": ([False, True], None, [49, 27]),
    "instants": ([0, 1_500_000, -1], pa.timestamp("us"), [38, 37, 88]),
    "dates": ([datetime.date(1969, 12, 31)], None, [52]),
    "decimals": ([Decimal("1.5"), Decimal("-0.05")], pa.decimal128(10, 2), [69, 0]),
}


@pytest.mark.parametrize("case", KNOWN)
def test_keys_keep_their_partition_in_every_version(case: str) -> None:
    """Streams written by an earlier version would not be joined with new ones if this changed."""
    values, kind, expected = KNOWN[case]
    assert places(values, kind, 97) == expected


def mixed(value: int) -> int:
    """SplitMix64's finaliser, one number at a time."""
    value = (value + 0x9E3779B97F4A7C15) % 2**64
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) % 2**64
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) % 2**64
    return value ^ value >> 31


@given(st.lists(int64s), st.integers(1, 300))
def test_a_whole_number_is_placed_by_its_mixed_bits(values: list[int], partitions: int) -> None:
    expected = [mixed(value % 2**64) % partitions for value in values] if partitions > 1 else [0] * len(values)
    assert places(values, pa.int64(), partitions) == expected


@given(st.lists(st.binary()), st.integers(2, 300))
def test_a_text_is_placed_by_a_polynomial_in_its_bytes(values: list[bytes], partitions: int) -> None:
    def hashed(value: bytes) -> int:
        polynomial = sum((byte + 1) * pow(0x9E3779B97F4A7C15, i, 2**64) for i, byte in enumerate(value)) % 2**64
        return mixed(polynomial ^ mixed(len(value)))

    assert places(values, pa.binary(), partitions) == [hashed(value) % partitions for value in values]


def test_keys_keep_their_partition_in_another_process() -> None:
    script = (
        "import pyarrow as pa; from workbench.partitioning import partition_of\n"
        "print(partition_of(pa.array([f'key {i}' for i in range(100)]), 97).tolist())"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert ran.stdout.strip() == str(places([f"key {i}" for i in range(100)], partitions=97))


@given(st.lists(st.integers(-128, 127)))
def test_equal_whole_numbers_meet_whatever_their_width(values: list[int]) -> None:
    wide = places(values, pa.int64())
    assert wide == places(values, pa.int8()) == places(values, pa.int16()) == places(values, pa.int32())
    positive = [abs(value) for value in values]
    for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()):
        assert places(positive, kind) == places(positive, pa.int64())


@given(st.lists(st.text() | st.none()), st.integers(0, 3))
def test_equal_texts_meet_whatever_their_encoding_and_place(values: list[str | None], skip: int) -> None:
    expected = [0 if value is None else places([value])[0] for value in values]
    plain = pa.array(values, pa.string())
    for column in (plain, plain.cast(pa.large_string()), plain.cast(pa.string_view()), plain.cast(pa.binary())):
        assert partition_of(column, LARGE).tolist() == expected
        assert partition_of(column.slice(skip), LARGE).tolist() == expected[skip:]
    assert partition_of(plain.dictionary_encode(), LARGE).tolist() == expected
    assert partition_of(pa.chunked_array([plain, plain]), LARGE).tolist() == expected * 2


@given(st.sets(st.text()))
def test_different_texts_have_different_hashes(values: set[str]) -> None:
    # 31 bits and at most some dozens of keys: a collision would be a flaw of the hash, not bad luck.
    assert len(set(places(sorted(values), pa.string()))) == len(values)


@given(st.lists(st.floats(width=32)))
def test_equal_numbers_meet_whatever_their_width(values: list[float]) -> None:
    assert places(values, pa.float32()) == places(values, pa.float64())
    assert places([-0.0, 0.0], pa.float64())[0] == places([0.0], pa.float64())[0]


@given(st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_equal_times_meet_whatever_their_unit(seconds: list[int]) -> None:
    units = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
    found = [places([s * per for s in seconds], pa.timestamp(unit)) for unit, per in units.items()]
    assert found[0] == found[1] == found[2] == found[3]


def test_equal_decimals_meet_whatever_their_scale() -> None:
    numbers = [Decimal("1.5"), Decimal("-100"), Decimal(0), Decimal("0.05")]
    assert places(numbers, pa.decimal128(10, 2)) == places(numbers, pa.decimal256(60, 20))


@given(st.lists(int64s | st.none()), st.integers(1, 300))
def test_every_key_has_a_partition_and_nulls_have_the_first(values: list[int | None], partitions: int) -> None:
    chosen = places(values, pa.int64(), partitions)
    assert all(0 <= partition < partitions for partition in chosen)
    assert all(partition == 0 for partition, value in zip(chosen, values, strict=True) if value is None)


@pytest.mark.parametrize(
    "column",
    [pa.array(range(80_000)), pa.array(f"user-{i}" for i in range(80_000)), pa.array(range(80_000)).cast("float64")],
)
def test_keys_spread_evenly(column: pa.Array) -> None:
    counts = np.bincount(partition_of(column, 8), minlength=8)
    assert counts.min() > 9_600 and counts.max() < 10_400


def test_lists_are_no_keys() -> None:
    with pytest.raises(InvalidKey, match="'tags' is of type list"):
        partition_of(pa.array([[1]]), 2, "tags")


def test_a_column_of_nulls_goes_to_the_first_partition() -> None:
    assert partition_of(pa.nulls(3), 7).tolist() == [0, 0, 0]
    assert partition_of(pa.array([None, None], pa.string()), 7).tolist() == [0, 0]
    assert partition_of(pa.array([], pa.string()), 7).tolist() == []
