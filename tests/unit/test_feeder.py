"""A feeder keeps its order and its rate, ends or does not, and does not hide what went wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from datasets.feeder import Feeder, pieces
from workbench.errors import FeederUsed, FeedTimeout, InvalidOption, SchemaMismatch, StreamEnded
from workbench.systems.log import Stream, StreamLog

FAST = 1_000_000.0


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return StreamLog(tmp_path).create("s", 3)


def numbers(first: int, last: int) -> pa.Table:
    return pa.table({"event_time": range(first, last), "n": range(first, last)})


def held(stream: Stream, partition: int) -> list[int]:
    frame = stream.to_pandas(partition)
    return frame["n"].tolist() if len(frame) else []


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("feeder of")]


def test_every_row_arrives_once_in_its_partition_in_the_order_of_the_table(stream: Stream) -> None:
    table, partition_of = numbers(0, 1_000), np.arange(1_000) * 7 % 3
    cut = list(pieces(table, partition_of, piece_rows=64))
    assert max(rows.num_rows for rows, _ in cut) <= 64
    with Feeder(stream, cut, rows_per_second=FAST, end=True) as feeder:
        feeder.wait(30)
        assert feeder.status == "done" and feeder.rows == 1_000
    for partition in range(3):
        assert held(stream, partition) == [n for n in range(1_000) if n * 7 % 3 == partition]
    assert stream.ended() == [True] * 3
    assert threads() == []


def test_a_partition_without_rows_gets_no_piece_and_a_table_without_rows_none_at_all() -> None:
    assert [partition for _, partition in pieces(numbers(0, 10), np.full(10, 2), piece_rows=4)] == [2, 2, 2]
    assert list(pieces(numbers(0, 0), np.zeros(0, np.int64))) == []


def test_the_rate_is_kept(stream: Stream) -> None:
    began = time.monotonic()
    Feeder(stream, [(numbers(n, n + 20), 0) for n in range(0, 100, 20)], rows_per_second=200).start().wait(30)
    # Five pieces, 0.1 s apart: the first at once.
    assert time.monotonic() - began >= 0.4


def test_a_stopped_feeder_ends_nothing_takes_no_more_and_may_be_stopped_twice(stream: Stream) -> None:
    taken = []

    def endless() -> Iterator[tuple[pa.Table, int]]:
        while True:
            taken.append(len(taken))
            yield numbers(len(taken), len(taken) + 1), 0

    feeder = Feeder(stream, endless(), rows_per_second=500, end=True)
    assert feeder.status == "new"
    with feeder:
        while feeder.rows < 5:
            assert feeder.status == "feeding"
            time.sleep(0.005)
    count = len(taken)
    assert feeder.stop().stop().status == "stopped"
    assert stream.heads()[0] == feeder.rows <= count
    assert stream.ended() == [False] * 3
    time.sleep(0.05)
    assert len(taken) == count and threads() == []
    assert repr(feeder) == f"<feeder of 's': stopped, {feeder.rows:,} rows>"


def test_a_slow_feeder_is_stopped_at_once_however_far_away_its_next_piece_is(stream: Stream) -> None:
    began = time.monotonic()
    with Feeder(stream, [(numbers(0, 1), 0), (numbers(1, 2), 0)], rows_per_second=0.001) as feeder:
        while not feeder.rows:
            time.sleep(0.005)
    assert time.monotonic() - began < 10
    assert held(stream, 0) == [0]


def test_an_append_that_fails_is_raised_by_wait_and_by_stop_and_says_how_far_it_was(stream: Stream) -> None:
    other = pa.table({"event_time": [1], "another": ["x"]})
    feeder = Feeder(
        stream, [(numbers(0, 3), 0), (other, 0), (numbers(3, 6), 0)], rows_per_second=FAST, end=True
    ).start()
    for ask in (feeder.wait, feeder.stop):
        with pytest.raises(SchemaMismatch) as caught:
            ask()
        assert caught.value.__notes__ == ["In the feeder of 's', after 3 rows."]
    assert feeder.status == "failed"
    assert held(stream, 0) == [0, 1, 2] and stream.ended() == [False] * 3


def test_a_block_that_ends_well_raises_what_the_feeder_met(stream: Stream) -> None:
    stream.end(1)
    with pytest.raises(StreamEnded), Feeder(stream, [(numbers(0, 1), 1)], rows_per_second=FAST) as feeder:
        while feeder.status == "feeding":
            time.sleep(0.005)


def test_a_block_that_fails_keeps_its_own_error_and_tells_of_the_feeders(stream: Stream) -> None:
    def broken() -> Iterator[tuple[pa.Table, int]]:
        raise OSError("the disk is gone")
        yield  # a generator

    with pytest.raises(KeyError) as caught, Feeder(stream, broken(), rows_per_second=FAST) as feeder:
        while feeder.status == "feeding":
            time.sleep(0.005)
        raise KeyError("mine")
    assert caught.value.__notes__ == ["And the feeder of 's': OSError: the disk is gone"]
    assert threads() == []


def test_waiting_has_a_deadline_and_the_feeder_goes_on(stream: Stream) -> None:
    with Feeder(stream, [(numbers(0, 40), 0), (numbers(40, 41), 0)], rows_per_second=100, end=True) as feeder:
        with pytest.raises(FeedTimeout, match=r"not done after 0\.05 s; it has appended \d+ rows so far and goes on"):
            feeder.wait(0.05)
        assert feeder.wait(30).status == "done"
    assert stream.heads()[0] == 42, "41 rows and the end"


def test_an_append_that_hangs_is_told_and_the_feeder_stops_behind_it(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, append = threading.Event(), stream.append

    def hanging(*arguments: object) -> None:
        free.wait(30)
        append(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(stream, "append", hanging)
    feeder = Feeder(stream, [(numbers(0, 1), 0), (numbers(1, 2), 0)], rows_per_second=FAST).start()
    with pytest.raises(FeedTimeout, match=r"has not ended after 0\.05 s \(0 rows are in\)"):
        feeder.stop(0.05)
    free.set()
    assert feeder.stop().status == "stopped"
    assert held(stream, 0) == [0]


@pytest.mark.parametrize("rate", [0, -1, float("inf"), float("nan")])
def test_a_rate_must_be_positive(stream: Stream, rate: float) -> None:
    with pytest.raises(InvalidOption, match="rows_per_second' must be a positive number"):
        Feeder(stream, [], rows_per_second=rate)


def test_what_can_not_be_is_refused(stream: Stream) -> None:
    with pytest.raises(InvalidOption, match="piece_rows must be at least 1, not 0"):
        list(pieces(numbers(0, 1), np.zeros(1, np.int64), piece_rows=0))
    feeder = Feeder(stream, [], rows_per_second=1).start()
    with pytest.raises(FeederUsed, match="started before"):
        feeder.start()
    assert feeder.wait(30).status == "done"
