"""Several processes and threads at one log."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from workbench.errors import LogInUse
from workbench.messages import ControlRun, WatermarkMessage
from workbench.systems.log import ControlAppend, Rows, StreamLog

ROOT = Path(__file__).parents[2]


@pytest.fixture
def log(log_dir: Path) -> StreamLog:
    return StreamLog(log_dir)


def read(log: StreamLog, partition: int) -> list[int]:
    stream = log.stream("s")
    return [v for entry in stream.read(partition) if isinstance(entry, Rows) for v in entry.table["id"].to_pylist()]


def append_some(directory: Path, writer: int, appends: int) -> None:
    log = StreamLog(directory)
    stream = log.create("s", 2, exist_ok=True)
    for i in range(appends):
        table = pa.table({"id": [writer * 1_000 + i] * 3})
        stream.append(table, i % 2)
        stream.inject(WatermarkMessage(i, f"Partition {writer}", 4))


def test_writers_in_several_processes_lose_nothing_and_interleave_whole_appends(log: StreamLog) -> None:
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=append_some, args=(log.directory, writer, 15)) for writer in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    for partition in range(2):
        found = read(log, partition)
        assert sorted(found) == sorted(
            w * 1_000 + i for w in range(4) for i in range(partition, 15, 2) for _ in range(3)
        )
        assert all(len(set(found[i : i + 3])) == 1 for i in range(0, len(found), 3)), "an append is never split"
        for number in range(4):
            assert [v for v in found if v // 1_000 == number] == sorted(v for v in found if v // 1_000 == number)
        offset = 0
        for entry in log.stream("s").read(partition):
            assert entry.offset == offset
            offset += len(entry)
        assert offset == log.stream("s").heads()[partition]


def test_several_processes_create_one_log_together(log_dir: Path) -> None:
    fork = multiprocessing.get_context("fork")
    makers = [fork.Process(target=append_some, args=(log_dir, maker, 1)) for maker in range(4)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert [maker.exitcode for maker in makers] == [0] * 4
    assert len(read(StreamLog(log_dir), 0)) == 12


def test_threads_share_a_log(log: StreamLog) -> None:
    stream = log.create("s", 1)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(10):
                stream.append(pa.table({"id": [number * 100 + i]}))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(read(log, 0)) == sorted(number * 100 + i for number in range(4) for i in range(10))


def test_a_forked_child_opens_a_connection_of_its_own_and_closes_none_of_its_parent(log: StreamLog) -> None:
    stream = log.create("s", 1)
    stream.append(pa.table({"id": [1]}))
    ours = log.connection()
    in_thread: list[object] = []
    go_on = threading.Event()

    def hold() -> None:
        in_thread.append(log.connection())
        go_on.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    while not in_thread:
        time.sleep(0.01)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if log.connection() is not ours and log.connection() not in in_thread:
                stream.append(pa.table({"id": [2]}))
                code = 0
        finally:
            # As an interpreter ends that has its connections closed by the garbage collector.
            del ours
            in_thread.clear()
            log.close()
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    go_on.set()
    holder.join()
    assert log.connection() is ours
    stream.append(pa.table({"id": [3]}))
    assert read(log, 0) == [1, 2, 3]
    assert ours.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


APPENDING = """
import sys; import pyarrow as pa
from workbench.systems.log import *
from workbench.messages import *
log = StreamLog(sys.argv[1]); stream = log.create("s", 2, exist_ok=True)
for batch in range(100_000):
    with SegmentWriter(log.segments_directory) as writer:
        for partition in (0, 1):
            writer.add("s", partition, pa.table({"id": [batch] * 100}))
        rows = writer.close()
    control = ControlAppend("s", None, ControlRun.from_messages([WatermarkMessage(batch)]))
    log.commit("w", batch, [*rows, control])
    print(batch, flush=True)
"""


@pytest.mark.parametrize("moment", range(4))
def test_what_was_committed_survives_the_death_of_the_writer_and_nothing_is_half_there(
    log: StreamLog, moment: int
) -> None:
    writer = start(APPENDING, log.directory)
    assert writer.stdout is not None
    for _ in range(3 + 5 * moment):
        said = int(writer.stdout.readline())
    time.sleep(0.0007 * moment)
    writer.send_signal(signal.SIGKILL)
    last = max([said, *map(int, writer.stdout.read().split())])
    writer.wait()
    writer.stdout.close()
    both = [read(log, partition) for partition in (0, 1)]
    assert both[0] == both[1]
    batches = sorted(set(both[0]))
    assert batches == list(range(len(batches))) and len(batches) in (last + 1, last + 2)
    assert both[0] == [batch for batch in batches for _ in range(100)]
    assert log.stream("s").heads() == [101 * len(batches)] * 2
    # The restarted writer repeats what it does not know to be done; then everything is there once.
    control = ControlAppend("s", None, ControlRun.from_messages([WatermarkMessage(0)]))
    assert [log.commit("w", batch, [control]) for batch in range(len(batches) + 1)] == [False] * len(batches) + [True]
    assert log.sweep(older_than=-1) <= 1


HOLDING = """
import sys, time, os; from workbench.systems.log import StreamLog
lock = StreamLog(sys.argv[1]).lock("app", "run-7")
if os.fork() == 0:
    print(os.getpid(), flush=True)
    time.sleep(30)
    os._exit(0)
time.sleep(30)
"""


def test_a_lock_names_its_holder_and_goes_with_it_though_a_child_lives_on(log: StreamLog) -> None:
    holder = start(HOLDING, log.directory)
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    try:
        with pytest.raises(LogInUse, match=rf"process {holder.pid} on .*\(run run-7\)"):
            log.lock("app")
        holder.kill()
        holder.wait()
        os.kill(child, 0)
        log.lock("app").release()
    finally:
        os.kill(child, signal.SIGKILL)
        holder.kill()
        holder.wait()
        holder.stdout.close()


def test_many_control_messages_for_many_partitions_are_one_short_commit(log: StreamLog) -> None:
    log.create("wide", 256)
    runs = [ControlRun.from_messages([WatermarkMessage(0, f"Partition {task}", 256)]) for task in range(256)]
    statements: list[str] = []
    log.connection().set_trace_callback(statements.append)
    log.commit("w", 0, [ControlAppend("wide", None, run) for run in runs])
    assert len([text for text in statements if text.startswith("INSERT INTO entry")]) <= 256
    assert log.stream("wide").heads() == [256] * 256
