from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from workbench.windows import WindowAggregation, WindowSpec, WindowStore, quantile, session, sliding, tumbling
from workbench.windows.store import ChunkStore

HOUR = 3_600_000
MAX_TIMESTAMP = 2**63 - 1
COUNT = WindowAggregation(WindowSpec(tumbling("1h"), ("key",), {"count": ("value", "count")}, "time"))


class CountingChunks:
    """A chunk store in memory that counts its calls, and the rows that went through them."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.calls: Counter[str] = Counter()
        self.rows: Counter[str] = Counter()

    def get(self, id: str) -> bytes:
        self._count("get", self.held[id])
        return self.held[id]

    def put(self, id: str, data: bytes) -> None:
        assert id not in self.held
        self._count("put", data)
        self.held[id] = data

    def delete(self, id: str) -> None:
        self._count("delete", self.held.pop(id))

    def reset(self) -> None:
        self.calls.clear()
        self.rows.clear()

    def _count(self, call: str, data: bytes) -> None:
        self.calls[call] += 1
        source = pa.BufferReader(data)
        while source.tell() < source.size():
            self.rows[call] += pa.ipc.open_stream(source).read_all().num_rows


def batch(times: np.ndarray | list[int], keys: int = 10, seed: int = 0) -> pa.Table:
    generator = np.random.default_rng(seed)
    times = np.asarray(times, np.int64)
    return pa.table(
        {
            "time": times,
            "key": [f"key {number}" for number in generator.integers(0, keys, len(times))],
            "value": generator.normal(size=len(times)),
        }
    )


def every_pair(keys: int, windows: int) -> pa.Table:
    hours = np.tile(np.arange(windows), keys)
    return pa.table(
        {
            "time": hours * HOUR,
            "key": np.repeat([f"key {number}" for number in range(keys)], windows),
            "value": hours * 1.0,
        }
    )


def test_any_object_with_three_methods_is_a_chunk_store() -> None:
    chunks: ChunkStore = CountingChunks()
    assert WindowStore(chunks).open_rows == 0


def test_a_batch_is_one_write_and_no_read_however_many_windows_it_spans() -> None:
    chunks = CountingChunks()
    store = WindowStore(chunks)
    COUNT.add(store, batch(np.arange(8_760) * HOUR), None)
    manifest = store.manifest()
    assert chunks.calls == {"put": 1}
    assert len(json.dumps(manifest)) < 1_000
    assert (store.open_rows, len(store.chunks)) == (8_760, 1)


def test_values_for_quantiles_are_in_the_same_write() -> None:
    spec = WindowSpec(tumbling("1h"), ("key",), {"p95": ("value", quantile(0.95)), "n": ("key", "nunique")}, "time")
    chunks = CountingChunks()
    store = WindowStore(chunks)
    WindowAggregation(spec).add(store, batch([1, 2, 3]), None)
    store.manifest()
    assert chunks.calls == {"put": 1}


def test_what_is_added_and_closed_in_one_batch_never_leaves_the_process() -> None:
    chunks = CountingChunks()
    store = WindowStore(chunks)
    COUNT.add(store, batch(np.arange(100) * HOUR), None)
    assert len(COUNT.close(store, 100 * HOUR)) == 100
    store.manifest()
    assert chunks.calls == {}


def test_several_additions_in_one_batch_are_one_write() -> None:
    chunks = CountingChunks()
    store = WindowStore(chunks)
    for number in range(20):
        COUNT.add(store, batch(np.arange(100) * HOUR, seed=number), None)
    store.manifest()
    assert chunks.calls == {"put": 1}
    assert chunks.rows["put"] <= 1_000


def test_a_batch_of_few_rows_over_many_open_windows_writes_only_its_own() -> None:
    chunks = CountingChunks()
    store = WindowStore(chunks)
    COUNT.add(store, every_pair(keys=100, windows=1_000), None)
    manifest = store.manifest()
    chunks.reset()
    store = WindowStore(chunks, manifest)
    COUNT.add(store, batch(np.arange(100) * 10 * HOUR, keys=100), None)
    store.manifest()
    assert chunks.calls == {"put": 1}
    assert chunks.rows["put"] <= 100


def test_many_small_batches_leave_few_chunks_and_rewrite_each_row_a_few_times() -> None:
    chunks, manifest, most = CountingChunks(), None, 0
    sizes = {"fan_in": 4, "chunk_rows": 2_000, "small_rows": 100}
    for number in range(600):
        store = WindowStore(chunks, manifest, **sizes)
        # 50 new windows per batch: nothing merges away.
        COUNT.add(store, batch((number * 50 + np.arange(50)) * HOUR), None)
        manifest = store.manifest()
        most = max(most, len(store.chunks))
    assert store.open_rows == 30_000
    assert most <= 30_000 / 2_000 + 5 * 8
    assert chunks.rows["put"] <= 30_000 * 7
    assert chunks.calls["get"] <= 600 * 3


def test_partials_of_the_same_windows_are_merged_away() -> None:
    chunks, manifest = CountingChunks(), None
    for number in range(200):
        store = WindowStore(chunks, manifest, small_rows=64)
        COUNT.add(store, batch(np.arange(50) * HOUR, seed=number), None)
        manifest = store.manifest()
    assert store.open_rows < 2_500
    assert sum(COUNT.close(store, MAX_TIMESTAMP)["count"].to_pylist()) == 200 * 50


def test_closing_reads_only_what_it_closes_once_a_wide_chunk_has_been_cut_by_time() -> None:
    chunks = CountingChunks()
    store = WindowStore(chunks, chunk_rows=8_192, small_rows=512)
    COUNT.add(store, every_pair(keys=20, windows=1_000), None)
    manifest, panes = store.manifest(), 0
    chunks.reset()
    for hour in range(1, 1_001):
        store = WindowStore(chunks, manifest, chunk_rows=8_192, small_rows=512)
        panes += len(COUNT.close(store, hour * HOUR))
        manifest = store.manifest()
    assert panes == 20_000
    # Uncut, 1,000 closings would read ten million rows; each row is rewritten two or three times to spare that.
    assert chunks.rows["get"] <= 20_000 * 30
    assert chunks.rows["put"] <= 20_000 * 4
    assert chunks.calls["get"] <= 1_500
    assert not chunks.held


def test_sliding_windows_keep_a_row_once_and_do_not_rewrite_it_at_each_close() -> None:
    operator = WindowAggregation(WindowSpec(sliding("1d", "1h"), ("key",), {"count": ("value", "count")}, "time"))
    chunks = CountingChunks()
    store = WindowStore(chunks, small_rows=64)
    operator.add(store, every_pair(keys=20, windows=100), None)
    assert store.open_rows == 2_000
    manifest, panes = store.manifest(), 0
    for hour in range(1, 124):
        store = WindowStore(chunks, manifest, small_rows=64)
        panes += len(operator.close(store, hour * HOUR))
        manifest = store.manifest()
    assert panes == 20 * 123
    assert chunks.rows["put"] <= 2_000 * 6
    assert not chunks.held


def test_a_watermark_that_closes_nothing_reads_nothing() -> None:
    for operator in (COUNT, WindowAggregation(WindowSpec(session("1h"), ("key",), {"n": ("*", "size")}, "time"))):
        chunks = CountingChunks()
        store = WindowStore(chunks)
        operator.add(store, batch([HOUR, 2 * HOUR]), None)
        store = WindowStore(chunks, store.manifest())
        chunks.reset()
        assert len(operator.close(store, HOUR + 1)) == 0
        store.manifest()
        assert chunks.calls == {}
        assert len(operator.close(store, MAX_TIMESTAMP)) == 2


def test_a_process_that_died_before_its_manifest_was_kept_leaves_the_store_as_it_was() -> None:
    chunks = CountingChunks()
    store = WindowStore(chunks)
    COUNT.add(store, batch([1, 2, 3]), None)
    manifest = store.manifest()
    lost = WindowStore(CountingChunks(), manifest)
    COUNT.add(lost, batch([4, 5]), None)
    again = WindowStore(chunks, json.loads(json.dumps(manifest)))
    assert sum(COUNT.close(again, HOUR)["count"].to_pylist()) == 3


@pytest.mark.parametrize("sizes", [{"fan_in": 1}, {"chunk_rows": 0}, {"small_rows": 0}])
def test_sizes_with_which_no_store_can_work_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least"):
        WindowStore(CountingChunks(), **sizes)
