"""Whatever is appended, committed, trimmed and read in whatever order: the log is a list."""

from __future__ import annotations

import tempfile
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from workbench.errors import OffsetOutOfRange, StreamEnded
from workbench.messages import ControlMessage, ControlRun, DrainMessage, EndOfStreamMessage, WatermarkMessage
from workbench.systems.log import ControlAppend, Rows, SegmentWriter, StagedRows, Stream, StreamLog
from workbench.times import NO_TIME

PARTITIONS = 3
partitions = st.integers(0, PARTITIONS - 1)
times = st.none() | st.integers(-1_000, 1_000)
rows = st.lists(times, max_size=6)
messages = st.one_of(
    st.builds(WatermarkMessage, st.integers(-9, 9), st.sampled_from(["Partition 0", "Partition 1"]), st.just(2)),
    st.just(EndOfStreamMessage("s")),
    st.just(DrainMessage("run")),
)
runs = st.lists(messages, max_size=4)

Message = tuple[int, int | None] | ControlMessage
"""A row is (number, time)."""


class LogIsAList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.log = StreamLog(self.directory.name)
        self.stream: Stream = self.log.create("s", PARTITIONS)
        self.expected: list[list[Message]] = [[] for _ in range(PARTITIONS)]
        self.oldest = [0] * PARTITIONS
        self.next_row = 0
        self.batch = 0

    def table(self, values: list[int | None]) -> tuple[pa.Table, list[Message]]:
        numbers = list(range(self.next_row, self.next_row + len(values)))
        self.next_row += len(values)
        table = pa.table({"id": pa.array(numbers, pa.int64()), "time": pa.array(values, pa.timestamp("ms"))})
        return table, list(zip(numbers, values, strict=True))

    @rule(partition=partitions, values=rows)
    def append(self, partition: int, values: list[int | None]) -> None:
        table, expected = self.table(values)
        if values and self.stream.ended()[partition]:
            with pytest.raises(StreamEnded):
                self.stream.append(table, partition, "time")
        else:
            self.stream.append(table, partition, "time")
            self.expected[partition] += expected

    @rule(
        staged=st.lists(st.tuples(partitions, rows), max_size=4),
        controls=st.lists(st.tuples(st.none() | partitions, runs), max_size=4),
        again=st.booleans(),
    )
    def commit(
        self,
        staged: list[tuple[int, list[int | None]]],
        controls: list[tuple[int | None, list[ControlMessage]]],
        again: bool,
    ) -> None:
        appends: list[StagedRows | ControlAppend] = []
        with SegmentWriter(self.log.segments_directory) as writer:
            for partition, values in staged:
                table, expected = self.table(values)
                writer.add("s", partition, table, "time")
                self.expected[partition] += expected
            appends += writer.close()
        for target, run in controls:
            appends.append(ControlAppend("s", target, ControlRun.from_messages(run)))
            for partition in range(PARTITIONS) if target is None else (target,):
                self.expected[partition] += run
        assert self.log.commit("w", self.batch, appends)
        if again:
            assert not self.log.commit("w", self.batch, appends)
        self.batch += 1

    @rule(partition=partitions, by=st.integers(0, 8))
    def trim(self, partition: int, by: int) -> None:
        before = self.oldest[partition] + by
        self.oldest[partition] = min(before, len(self.expected[partition]))
        assert self.stream.trim(partition, before) == self.oldest[partition]

    @rule(partition=partitions, start=st.integers(0, 30), length=st.integers(0, 12))
    def read_a_range(self, partition: int, start: int, length: int) -> None:
        head = len(self.expected[partition])
        if start < self.oldest[partition] or start + length > head:
            with pytest.raises(OffsetOutOfRange):
                self.stream.read(partition, start, start + length)
        else:
            found = self.read(partition, start, start + length)
            assert found == list(enumerate(self.expected[partition]))[start : start + length]

    @rule(partition=partitions, time=st.integers(-1_100, 1_100))
    def look_up(self, partition: int, time: int) -> None:
        kept = list(enumerate(self.expected[partition]))[self.oldest[partition] :]
        hits = [o for o, m in kept if isinstance(m, tuple) and (NO_TIME if m[1] is None else m[1]) >= time]
        assert self.stream.offset_at(partition, time) == (hits[0] if hits else len(self.expected[partition]))

    @rule()
    def sweep_and_open_again(self) -> None:
        assert self.log.sweep(older_than=-1) == 0
        self.log.close()
        self.log = StreamLog(self.directory.name, create=False)
        self.stream = self.log.stream("s")

    @invariant()
    def everything_kept_is_there(self) -> None:
        assert self.stream.heads() == [len(expected) for expected in self.expected]
        assert self.stream.oldest() == self.oldest
        for partition, expected in enumerate(self.expected):
            assert self.read(partition, None, None) == list(enumerate(expected))[self.oldest[partition] :]

    @invariant()
    def ends_are_those_of_the_last_control_message(self) -> None:
        for partition, ended in enumerate(self.stream.ended()):
            kept = self.expected[partition][self.oldest[partition] :]
            controls = [message for message in kept if not isinstance(message, tuple)]
            if controls:
                assert ended == isinstance(controls[-1], EndOfStreamMessage)

    def read(self, partition: int, start: int | None, end: int | None) -> list[tuple[int, Any]]:
        found: list[tuple[int, Any]] = []
        for entry in self.stream.read(partition, start, end):
            if isinstance(entry, Rows):
                when = entry.table["time"].cast(pa.int64()).to_pylist()
                contents: list[Any] = list(zip(entry.table["id"].to_pylist(), when, strict=True))
            else:
                contents = entry.run.messages()
            found += enumerate(contents, entry.offset)
        return found

    def teardown(self) -> None:
        self.log.close()
        self.directory.cleanup()


LogIsAList.TestCase.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
test_the_log_is_a_list_with_offsets = LogIsAList.TestCase
