"""What can go wrong with files, and that committed data outlives it."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from workbench.errors import CorruptSegment, DiskFull, LogUnavailable
from workbench.systems.log import Rows, StreamLog
from workbench.systems.log.database import VERSION

ROOT = Path(__file__).parents[2]


def rows(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


@pytest.fixture
def log(log_dir: Path) -> StreamLog:
    log = StreamLog(log_dir)
    stream = log.create("s", 1)
    stream.append(rows(1, 2))
    stream.append(rows(3))
    return log


def segments(log: StreamLog) -> list[Path]:
    by_offset = log.resolve("s", 0)
    return [log.segments_directory / ref["f"] for ref in by_offset]


def read(log: StreamLog) -> list[int]:
    return [
        value for entry in log.stream("s").read(0) if isinstance(entry, Rows) for value in entry.table["id"].to_pylist()
    ]


def in_child(work: Callable[[], None]) -> int:
    """Run `work` in a fork; its exit code, 0 if it returned."""
    pid = os.fork()
    if pid == 0:
        code = 1
        with contextlib.suppress(BaseException):
            work()
            code = 0
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_name_is_no_directory_and_makes_no_log_in_the_current_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for create in (True, False):
        with pytest.raises(
            LogUnavailable, match=r"its name is empty\. For the current directory, write StreamLog\('\.'\)"
        ):
            StreamLog(name, create=create)
    assert list(tmp_path.iterdir()) == []
    assert StreamLog(".").directory == tmp_path


def test_a_log_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(LogUnavailable, match="There is no log at"):
        StreamLog(tmp_path / "nothing", create=False)
    (tmp_path / "empty").mkdir()
    with pytest.raises(LogUnavailable, match="There is no log at"):
        StreamLog(tmp_path / "empty", create=False)


def test_a_log_that_vanished_is_said_to_be_so(log: StreamLog) -> None:
    log.close()
    log.directory.rename(log.directory.with_name("elsewhere"))
    with pytest.raises(LogUnavailable, match="There is no log at"):
        log.streams()


def test_a_file_where_a_directory_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "log"):
        with pytest.raises(LogUnavailable, match=r"needs a directory at .*file"):
            StreamLog(path)


def test_a_log_of_a_later_version_is_not_touched(log: StreamLog) -> None:
    log.connection().execute(f"PRAGMA user_version = {VERSION + 1}")
    for create in (True, False):
        with pytest.raises(LogUnavailable, match=f"has format {VERSION + 1}; .* up to {VERSION}"):
            StreamLog(log.directory, create=create).streams()


def test_a_database_that_is_no_log_is_not_touched(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / StreamLog.MARKER)) as connection:
        connection.execute("CREATE TABLE stream (x)")
    before = (tmp_path / StreamLog.MARKER).read_bytes()
    with pytest.raises(LogUnavailable, match="not the index of a log"):
        StreamLog(tmp_path)
    assert (tmp_path / StreamLog.MARKER).read_bytes() == before


def test_a_damaged_index_is_said_to_be_damaged(log: StreamLog) -> None:
    log.connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")
    log.close()
    index = log.directory / StreamLog.MARKER
    intact = index.read_bytes()
    index.write_bytes(b"no database at all" * 100)
    with pytest.raises(LogUnavailable, match="is damaged"):
        StreamLog(log.directory)
    index.write_bytes(intact[:4096] + os.urandom(len(intact) - 4096))
    with pytest.raises(LogUnavailable, match="is damaged"):
        StreamLog(log.directory).stream("s").append(rows(4))
    index.write_bytes(intact)
    assert read(StreamLog(log.directory)) == [1, 2, 3]


def test_a_segment_that_is_gone_is_named_with_partition_and_offset(log: StreamLog) -> None:
    gone = segments(log)[1]
    gone.unlink()
    with pytest.raises(
        CorruptSegment, match=rf"{re.escape(str(gone))} holds partition 0 of 's' at offset 2, but .*not there"
    ):
        read(log)
    assert len(list(log.stream("s").read(0, 0, 2))) == 1


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda data: data[: len(data) // 2], "the file ends at byte"),
        (lambda data: b"", "the file ends at byte|empty file"),
        (lambda data: data[:-20] + bytes([data[-20] ^ 1]) + data[-19:], "its checksum is"),
        (lambda data: data[:9] + bytes([data[9] ^ 1]) + data[10:], "its checksum is"),
    ],
    ids=["cut", "emptied", "one bit of the data", "one bit of the head"],
)
def test_a_damaged_segment_is_found_out_and_the_rest_stays_readable(
    log: StreamLog, damage: Callable[[bytes], bytes], why: str
) -> None:
    first, second = segments(log)
    first.write_bytes(damage(first.read_bytes()))
    with pytest.raises(CorruptSegment, match=rf"{re.escape(str(first))} holds partition 0 of 's' at offset 0.*({why})"):
        read(log)
    (entry,) = log.stream("s").read(0, 2)
    assert isinstance(entry, Rows) and entry.table["id"].to_pylist() == [3]
    assert second.exists()


def test_a_full_index_loses_nothing_and_goes_on_when_there_is_room(log: StreamLog) -> None:
    connection = log.connection()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(DiskFull, match=r"no room left to write .*log\.sqlite"):
        log.metadata.put("n", "k", b"x" * 1_000_000)
    assert log.metadata.get("n", "k") is None and read(log) == [1, 2, 3]
    connection.execute(f"PRAGMA max_page_count = {2**30}")
    log.metadata.put("n", "k", b"x" * 1_000_000)
    log.stream("s").append(rows(4))
    assert read(log) == [1, 2, 3, 4]


def test_a_segment_for_which_there_is_no_room_is_removed(log: StreamLog) -> None:
    def write_too_much() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))
        with pytest.raises(DiskFull, match=r"no room left to write .*\.arrow"):
            log.stream("s").append(pa.table({"id": pa.array(range(1_000_000), pa.int64())}))

    assert in_child(write_too_much) == 0
    assert len(list(log.segments_directory.rglob("*.arrow"))) == 2
    assert read(log) == [1, 2, 3]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", place]).returncode:
        pytest.skip("needs the right to mount a small file system")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_loses_nothing_and_goes_on_when_there_is_room(small_disk: Path) -> None:
    log = StreamLog(small_disk / "log")
    stream = log.create("s", 1)
    committed = 0
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 1_000_000)
    with pytest.raises(DiskFull, match="no room left to write"):
        for _ in range(1000):
            stream.append(pa.table({"id": pa.array(range(committed, committed + 5_000), pa.int64())}))
            committed += 5_000
    assert committed and read(log) == list(range(committed))
    ballast.unlink()
    stream.append(rows(committed))
    assert read(log) == list(range(committed + 1))
    log.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_directory_that_may_not_be_written_is_named(log: StreamLog, tmp_path: Path) -> None:
    script = (
        "import os, sys; from workbench.systems.log import StreamLog; import pyarrow as pa; os.setuid(65534)\n"
        "try:\n    eval(sys.argv[1])\nexcept Exception as error:\n    print(type(error).__name__, error)\n"
    )
    for parent in [log.directory, *log.directory.parents[:3]]:
        parent.chmod(0o755)
    actions = {
        f"StreamLog({str(log.directory.parent / 'new')!r})": "may not write to .*new",
        f"StreamLog({str(log.directory)!r})": "may not write to|could not use",
        f"StreamLog({str(log.directory)!r}, create=False).create('t', 1)": "may not write to|could not use",
    }
    for action, expected in actions.items():
        ran = subprocess.run([sys.executable, "-c", script, action], capture_output=True, text=True, cwd=ROOT)
        if "Permission" in ran.stderr:
            pytest.skip("the interpreter itself is out of reach for other users")
        assert re.match(f"LogUnavailable .*({expected})", ran.stdout), ran.stdout + ran.stderr
    assert read(log) == [1, 2, 3]
