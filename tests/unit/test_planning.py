"""How far each SSP advances in a batch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from workbench.engine.planning import INTERMEDIATE_FACTOR, advance

waiting = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 500)), min_size=1, max_size=8)


@given(waiting, waiting, st.integers(1, 400))
def test_a_batch_never_passes_the_heads_nor_the_limit_and_never_stalls(
    source: list[tuple[int, int]], inner: list[tuple[int, int]], limit: int
) -> None:
    positions = {"s": [first for first, _ in source], "i": [first for first, _ in inner]}
    heads = {"s": [first + more for first, more in source], "i": [first + more for first, more in inner]}
    ahead = advance(positions, heads, intermediate=frozenset({"i"}), limit=limit)
    for stream, offsets in ahead.items():
        assert all(was <= now <= head for was, now, head in zip(positions[stream], offsets, heads[stream], strict=True))
    admitted = {stream: sum(ahead[stream]) - sum(positions[stream]) for stream in ahead}
    backlog = {stream: sum(heads[stream]) - sum(positions[stream]) for stream in ahead}
    assert admitted["s"] <= limit
    assert admitted["i"] == min(backlog["i"], limit * INTERMEDIATE_FACTOR)
    assert admitted["s"] == min(backlog["s"], limit, limit * INTERMEDIATE_FACTOR - admitted["i"])


@given(waiting, st.integers(1, 400))
def test_partitions_share_the_limit_evenly_and_a_short_one_leaves_its_share(
    source: list[tuple[int, int]], limit: int
) -> None:
    positions = {"s": [first for first, _ in source]}
    heads = {"s": [first + more for first, more in source]}
    ahead = advance(positions, heads, intermediate=frozenset(), limit=limit)
    granted = [now - was for now, was in zip(ahead["s"], positions["s"], strict=True)]
    unsatisfied = [got for got, (_, more) in zip(granted, source, strict=True) if got < more]
    if unsatisfied:
        assert max(granted) - min(unsatisfied) <= 1
