"""However rows are cut into batches, ordered, late, compacted or restarted: panes are what a plain computation gives."""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.windows import (
    Aligned,
    Assigner,
    Session,
    WindowAggregation,
    WindowSpec,
    WindowStore,
    quantile,
    session,
    sliding,
    tumbling,
)

MAX_TIMESTAMP = 2**63 - 1
SCHEMA = pa.schema(
    [("id", pa.int64()), ("key", pa.string()), ("time", pa.int64()), ("value", pa.float64()), ("whole", pa.int64())]
)
AGGREGATES = {
    "rows": ("*", "size"),
    "count": ("value", "count"),
    "total": ("value", "sum"),
    "least": ("value", "min"),
    "most": ("value", "max"),
    "mean": ("value", "mean"),
    "spread": ("value", "std"),
    "median": ("value", quantile(0.5)),
    "p90": ("value", quantile(0.9)),
    "values": ("value", "nunique"),
    "first": ("whole", "first"),
    "last": ("whole", "last"),
    "whole_total": ("whole", "sum"),
    "whole_values": ("whole", "nunique"),
}


class MemoryChunks(dict[str, bytes]):
    """A chunk store that insists on its rules: no identifier twice, nothing read or deleted that is not there."""

    def __init__(self) -> None:
        super().__init__()
        self.ever: set[str] = set()

    def get(self, id: str) -> bytes:  # type: ignore[override]
        return self[id]

    def put(self, id: str, data: bytes) -> None:
        assert id not in self.ever
        self.ever.add(id)
        self[id] = data

    def delete(self, id: str) -> None:
        del self[id]


Row = dict[str, Any]


@dataclass
class Reference:
    """The same windows, row by row and in plain Python."""

    assigner: Assigner
    closed: float = -math.inf
    rows: list[tuple[Row, set[int]]] = field(default_factory=list)

    def add(self, rows: Sequence[Row], watermark: int | None) -> list[Row]:
        reached = max(self.closed, -math.inf if watermark is None else watermark)
        late = []
        for row in rows:
            time = row["time"]
            if time is None:
                late.append(row)
            elif isinstance(self.assigner, Session):
                if time < reached:
                    late.append(row)
                else:
                    self.rows.append((row, set()))
            else:
                windows = {start for start in self.starts(time) if start + self.assigner.size > reached}
                if windows:
                    self.rows.append((row, windows))
                else:
                    late.append(row)
        return late

    def starts(self, time: int) -> set[int]:
        assert isinstance(self.assigner, Aligned)
        earliest = time - self.assigner.size
        return {
            start
            for start in range(earliest + 1, time + 1)
            if (start - self.assigner.origin) % self.assigner.slide == 0
        }

    def close(self, watermark: int) -> list[dict[str, Any]]:
        if watermark <= self.closed:
            return []
        self.closed = watermark
        panes: dict[tuple[int, int, str | None], list[Row]] = {}
        if isinstance(self.assigner, Session):
            for start, end, rows in self.sessions(self.assigner.gap):
                if end < watermark:
                    panes[start, end, rows[0]["key"]] = rows
            gone = {row["id"] for rows in panes.values() for row in rows}
            self.rows = [(row, windows) for row, windows in self.rows if row["id"] not in gone]
        else:
            size = self.assigner.size
            for row, windows in self.rows:
                for start in sorted(windows):
                    if start + size <= watermark:
                        panes.setdefault((start, start + size, row["key"]), []).append(row)
                        windows.remove(start)
        order = sorted(panes, key=lambda pane: (pane[0], pane[2] is None, pane[2] or ""))
        return [pane_of(*pane, panes[pane]) for pane in order]

    def sessions(self, gap: int) -> list[tuple[int, int, list[Row]]]:
        found: list[tuple[int, int, list[Row]]] = []
        for key in {row["key"] for row, _ in self.rows}:
            # Rows of one session keep the order of arrival.
            rows = [row for row, _ in self.rows if row["key"] == key]
            times = sorted(row["time"] for row in rows)
            start = previous = times[0]
            for time in [*times[1:], math.inf]:
                if time > previous + gap:
                    found.append((start, previous + gap, [row for row in rows if start <= row["time"] <= previous]))
                    start = time
                previous = time
        return found


def pane_of(start: int, end: int, key: str | None, rows: list[Row]) -> dict[str, Any]:
    values = sorted(row["value"] for row in rows if row["value"] is not None)
    wholes = [row for row in rows if row["whole"] is not None]
    # Python's sort is stable: of equal times the first stays first.
    by_time = sorted(wholes, key=lambda row: row["time"])
    return {
        "key": key,
        "window_start": start,
        "window_end": end,
        "rows": len(rows),
        "count": len(values),
        "total": sum(values) if values else None,
        "least": values[0] if values else None,
        "most": values[-1] if values else None,
        "mean": sum(values) / len(values) if values else None,
        "spread": statistics.stdev(values) if len(values) > 1 else None,
        "median": between(values, 0.5),
        "p90": between(values, 0.9),
        "values": len(set(values)),
        "first": by_time[0]["whole"] if wholes else None,
        "last": by_time[-1]["whole"] if wholes else None,
        "whole_total": sum(row["whole"] for row in wholes) if wholes else None,
        "whole_values": len({row["whole"] for row in wholes}),
    }


def between(values: list[float], fraction: float) -> float | None:
    if not values:
        return None
    position = fraction * (len(values) - 1)
    low, high = values[math.floor(position)], values[math.ceil(position)]
    return low + (high - low) * (position - math.floor(position))


def plain(panes: pa.Table) -> list[dict[str, Any]]:
    rows = panes.to_pylist()
    for row in rows:
        for bound in ("window_start", "window_end"):
            row[bound] = round(row[bound].timestamp() * 1000)
    return rows


# Event times and watermarks are drawn relative to the highest watermark so far: most rows are near it, few are late.
rows_of_a_batch = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "ü", None]),
        st.sampled_from([*range(-4, 26), *range(8), None]),
        st.sampled_from([None, -4.0, -1.0, 0.0, 2.0, 2.0, 3.0, 1000.0, 1001.0]),
        st.sampled_from([None, -3, -2, -1, 0, 1, 2, 3]),
    ),
    max_size=20,
)
watermarks = st.sampled_from([*range(-3, 12), *range(8), 25])
steps = st.one_of(
    st.tuples(st.just("add"), rows_of_a_batch, st.none() | watermarks),
    st.tuples(st.just("add"), rows_of_a_batch, st.just(0)),
    st.tuples(st.just("close"), watermarks, st.none()),
    st.tuples(st.just("close"), watermarks, st.none()),
    st.tuples(st.just("restart"), st.none(), st.none()),
)
endings = st.sampled_from([[], [("add", [("a", 3, 1.0, 1)], MAX_TIMESTAMP), ("close", 5, None)]])
assigners = st.one_of(
    st.builds(tumbling, st.integers(1, 15), origin=st.integers(-20, 20)),
    st.integers(2, 20).flatmap(
        lambda size: st.builds(sliding, st.just(size), st.integers(1, size), origin=st.integers(-9, 9))
    ),
    st.builds(session, st.integers(1, 12)),
)


@settings(max_examples=250, deadline=None)
@given(
    assigner=assigners,
    script=st.lists(steps, min_size=6, max_size=24),
    begin=st.sampled_from([-(2**63), -40, 0, 1_356_998_400_000]),
    ending=endings,
    fan_in=st.integers(2, 4),
    chunk_rows=st.integers(1, 12),
    small_rows=st.integers(1, 12),
    keyed=st.booleans(),
)
def test_panes_are_those_of_a_plain_computation_over_the_accepted_rows(
    assigner: Assigner,
    script: list[tuple[str, Any, Any]],
    begin: int,
    ending: list[tuple[str, Any, Any]],
    fan_in: int,
    chunk_rows: int,
    small_rows: int,
    keyed: bool,
) -> None:
    operator = WindowAggregation(WindowSpec(assigner, ("key",) if keyed else (), AGGREGATES, "time"))
    chunks, reference = MemoryChunks(), Reference(assigner)
    sizes = {"fan_in": fan_in, "chunk_rows": chunk_rows, "small_rows": small_rows}
    store = WindowStore(chunks, None, **sizes)
    number, emitted, clock, earliest = 0, set(), begin, -(2**63)
    last = [*ending, ("close", MAX_TIMESTAMP, None), *ending, ("restart", None, None)]
    for kind, what, watermark in [*script, *last]:
        near = clock if abs(clock) < 2**62 else -40
        if kind == "add":
            rows = [
                dict(zip(SCHEMA.names, (number + i, *row), strict=True)) | ({} if keyed else {"key": None})
                for i, row in enumerate(what)
            ]
            for row in rows:
                row["time"] = None if row["time"] is None else near + row["time"]
            if watermark is not None and watermark != MAX_TIMESTAMP:
                watermark = clock + watermark if clock == near else clock
            number += len(rows)
            late, accepted = operator.add(store, pa.Table.from_pylist(rows, SCHEMA), watermark)
            expected_late = reference.add(rows, watermark)
            assert late.to_pylist() == expected_late
            assert late.schema == SCHEMA
            assert accepted == len(rows) - len(expected_late)
        elif kind == "close":
            to = what if what == MAX_TIMESTAMP else near + what
            clock = max(clock, to)
            panes = plain(operator.close(store, to))
            expected = reference.close(to)
            for pane in panes:
                identity = (pane.setdefault("key", None), pane["window_start"])
                assert identity not in emitted
                emitted.add(identity)
            assert_same(panes, expected, to)
            assert all(pane["window_start"] >= earliest for pane in panes)
            assert operator.earliest_open_start(store, store.closed) >= earliest
            earliest = operator.earliest_open_start(store, store.closed)
        else:
            manifest = json.loads(json.dumps(store.manifest()))
            assert {entry[0] for entry in manifest["chunks"]} == set(chunks)
            store = WindowStore(chunks, manifest, **sizes)
            assert all(chunk.rows <= chunk_rows for chunk in store.chunks)
    assert store.open_rows == 0
    assert not chunks


def assert_same(panes: list[dict[str, Any]], expected: list[dict[str, Any]], watermark: int) -> None:
    names = ("key", "window_start", "window_end")
    assert [[pane[n] for n in names] for pane in panes] == [[pane[n] for n in names] for pane in expected], watermark
    for pane, wanted in zip(panes, expected, strict=True):
        for name, value in wanted.items():
            found = pane[name]
            numbers = isinstance(value, int | float) and found is not None
            same = math.isclose(found, value, abs_tol=1e-9) if numbers else found == value
            assert same, (name, found, value, pane)


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.floats(1e9, 1e9 + 1), min_size=2, max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=6),
    fan_in=st.integers(2, 4),
)
def test_deviations_of_large_numbers_that_lie_close_together_keep_their_digits(
    values: list[float], cuts: list[int], fan_in: int
) -> None:
    operator = WindowAggregation(WindowSpec(tumbling("1h"), (), {"spread": ("value", "std")}, "time"))
    store = WindowStore(MemoryChunks(), fan_in=fan_in)
    bounds = sorted({0, len(values), *(cut for cut in cuts if cut < len(values))})
    for begin, end in itertools.pairwise(bounds):
        part = values[begin:end]
        operator.add(store, pa.table({"time": pa.array([0] * len(part), pa.int64()), "value": part}), None)
    (spread,) = operator.close(store, MAX_TIMESTAMP)["spread"].to_pylist()
    assert spread == pytest.approx(statistics.stdev(values), rel=1e-5, abs=2e-7)
