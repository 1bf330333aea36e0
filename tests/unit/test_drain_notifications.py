from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from workbench.drain import (
    NAMESPACE,
    DrainMode,
    DrainMonitor,
    DrainNotification,
    clean_up,
    clean_up_all,
    clean_up_in,
    read_notifications,
    write_notification,
)
from workbench.errors import DrainTimeout, InvalidNotification
from workbench.metadata import MetadataStore
from workbench.systems.log import StreamLog

SAMZA = b'{"uuid":"2f1d3a52-7d2e-4a33-9f1c-0a6a5d0a9c11","runId":"1700000000000-a1b2c3","drainMode":"DEFAULT"}'
"""As a controller that was written for Samza has it."""

ROOT = Path(__file__).parents[2]

CleanUp = Callable[[StreamLog, str], int]


@pytest.fixture
def log(tmp_path: Path) -> StreamLog:
    return StreamLog(tmp_path / "log")


@pytest.fixture
def store(log: StreamLog) -> MetadataStore:
    return log.metadata


def uuid(number: int) -> UUID:
    return UUID(int=number)


def samza(**changes: object) -> bytes:
    """The notification of Samza with other values; None removes a key."""
    fields = {**json.loads(SAMZA), **changes}
    return json.dumps({key: value for key, value in fields.items() if value is not None}).encode()


def run_ids() -> st.SearchStrategy[str]:
    return st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)


# The notification.


@given(run_ids(), st.uuids(), st.none() | st.integers(0, 9_000_000_000_000))
def test_a_notification_survives_its_json(run_id: str, id: UUID, requested: int | None) -> None:
    notification = DrainNotification(id, run_id, DrainMode.DEFAULT, requested)
    assert DrainNotification.from_json(notification.to_json()) == notification


def test_the_json_has_the_keys_of_samza_and_when_it_was_requested() -> None:
    notification = DrainNotification.create("r", uuid=uuid(1), now_ms=7)
    assert json.loads(notification.to_json()) == {
        "uuid": "00000000-0000-0000-0000-000000000001",
        "runId": "r",
        "drainMode": "DEFAULT",
        "requested": 7,
    }


def test_a_notification_of_samza_is_read() -> None:
    read = DrainNotification.from_json(SAMZA)
    assert read == DrainNotification(UUID("2f1d3a52-7d2e-4a33-9f1c-0a6a5d0a9c11"), "1700000000000-a1b2c3")
    assert read.requested is None


@pytest.mark.parametrize("mode", ["DEFAULT", "default", "Default"])
def test_the_mode_may_be_in_any_case(mode: str) -> None:
    assert DrainNotification.from_json(samza(drainMode=mode)).mode is DrainMode.DEFAULT


def test_keys_that_are_not_ours_are_ignored() -> None:
    assert DrainNotification.from_json(samza(by="nobody", deep={"a": [1]})) == DrainNotification.from_json(SAMZA)


@pytest.mark.parametrize("requested", ["yesterday", 1.5, True, -1, 10**30, [], {}])
def test_a_request_time_that_is_none_does_not_keep_a_run_from_draining(requested: object) -> None:
    assert DrainNotification.from_json(samza(requested=requested)) == DrainNotification.from_json(SAMZA)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "not JSON in UTF-8"),
        (b"\xff\xfe", "not JSON in UTF-8"),
        (SAMZA[:-1], "not JSON in UTF-8"),
        (b"[" * 100_000, "not JSON in UTF-8"),
        (b"1" * 10_000, "not JSON in UTF-8"),
        (b"null", "must be a JSON object, not NoneType"),
        (b"[]", "must be a JSON object, not list"),
        (b'"drain"', "must be a JSON object, not 'drain'"),
        (b"{}", "It has no 'uuid'. It has: nothing."),
        (samza(runId=None), "It has no 'runId'. It has: 'drainMode', 'uuid'."),
        (samza(drainMode=None), "It has no 'drainMode'"),
        (SAMZA.replace(b'"DEFAULT"', b"null"), "It has no 'drainMode'"),
        (samza(uuid="2f1d3a52"), "must look like 123e4567-e89b-42d3-a456-426614174000, not like '2f1d3a52'"),
        (samza(uuid="{2f1d3a52-7d2e-4a33-9f1c-0a6a5d0a9c11}"), "must look like"),
        (samza(uuid=7), r"'uuid' must be text, not int \(7\)"),
        (samza(runId=["r"]), "'runId' must be text, not list"),
        (samza(runId=""), "this run id is empty"),
        (samza(runId="  "), "this run id is empty"),
        (samza(runId="\ud800"), "'runId' must be text"),
        (samza(drainMode="DEFALT"), "'DEFALT' is not a drain mode. There is: 'DEFAULT'. Did you mean 'DEFAULT'?"),
        (samza(drainMode={}), "'drainMode' must be text, not dict"),
    ],
)
def test_what_is_no_notification_is_refused_in_a_sentence_that_any_screen_shows(data: bytes, told: str) -> None:
    with pytest.raises(InvalidNotification, match=told) as refused:
        DrainNotification.from_json(data)
    assert len(str(refused.value).encode()) < 400


@given(
    st.binary()
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["uuid", "runId", "drainMode", "x"]), inner),
    ).map(lambda value: json.dumps(value).encode())
    | st.integers(0, 3_000).map(lambda depth: b"[" * depth + b"]" * depth)
    | st.integers(0, 3_000).map(lambda depth: b'{"uuid":' * depth + b"1" + b"}" * depth)
)
@example(b'{"\\ud800": 1}')
def test_reading_raises_nothing_but_an_error_of_ours_whatever_the_bytes_are(data: bytes) -> None:
    try:
        read = DrainNotification.from_json(data)
    except InvalidNotification as error:
        str(error).encode()
    else:
        assert DrainNotification.from_json(read.to_json()) == read


# The store.


def test_a_notification_is_kept_under_its_uuid_in_the_namespace_of_samza(store: MetadataStore) -> None:
    written = write_notification(store, "r")
    assert NAMESPACE == "samza-drain-v1" and store.namespaces() == [NAMESPACE]
    assert store.all(NAMESPACE) == {str(written.uuid): written.to_json()}
    assert read_notifications(store).valid == [written]


@pytest.mark.parametrize("run_id", ["", " \t"])
def test_without_a_run_id_nothing_is_written(store: MetadataStore, run_id: str) -> None:
    with pytest.raises(InvalidNotification, match="this run id is empty"):
        write_notification(store, run_id)
    assert store.all(NAMESPACE) == {}


def test_notifications_come_oldest_first_and_those_without_a_time_last(store: MetadataStore) -> None:
    order = [(3, 10), (1, 20), (2, 20), (0, 30)]
    for number, requested in reversed(order):
        write_notification(store, "r", uuid=uuid(number), now_ms=requested)
    store.put(NAMESPACE, "samza's", SAMZA)
    read = read_notifications(store)
    assert [(n.uuid.int, n.requested) for n in read.valid[:-1]] == order
    assert read.valid[-1] == DrainNotification.from_json(SAMZA)
    assert [n.uuid.int for n in read.of_run("r")] == [3, 1, 2, 0] and read.of_run("other") == []


def test_one_unreadable_notification_harms_none_of_the_others(store: MetadataStore) -> None:
    store.put(NAMESPACE, "0-bad", b"\xff")
    store.put(NAMESPACE, "z-bad", samza(drainMode="FAST"))
    good = write_notification(store, "r")
    read = read_notifications(store)
    assert read.valid == [good]
    assert [unreadable.key for unreadable in read.unreadable] == ["0-bad", "z-bad"]
    assert "'FAST' is not a drain mode" in read.unreadable[1].why


def _through_the_store(log: StreamLog, run_id: str) -> int:
    return clean_up(log.metadata, run_id)


def _inside_a_transaction(log: StreamLog, run_id: str) -> int:
    with log.transaction() as connection:
        return clean_up_in(connection, run_id)


@pytest.mark.parametrize("clean", [_through_the_store, _inside_a_transaction])
class TestCleaningUp:
    def test_removes_all_notifications_of_the_run_and_no_others(self, log: StreamLog, clean: CleanUp) -> None:
        for number in range(3):
            write_notification(log.metadata, "mine", uuid=uuid(number))
        theirs = write_notification(log.metadata, "mine too", uuid=uuid(9))
        log.metadata.put(NAMESPACE, "bad", b"?")
        log.metadata.put("another namespace", str(uuid(0)), samza(runId="mine"))
        assert clean(log, "mine") == 3
        left = read_notifications(log.metadata)
        assert left.valid == [theirs] and [unreadable.key for unreadable in left.unreadable] == ["bad"]
        assert log.metadata.get("another namespace", str(uuid(0))) is not None
        assert clean(log, "mine") == 0

    def test_finds_a_notification_under_a_key_that_is_not_its_uuid(self, log: StreamLog, clean: CleanUp) -> None:
        log.metadata.put(NAMESPACE, "by hand", samza(runId="r"))
        assert clean(log, "r") == 1 and log.metadata.all(NAMESPACE) == {}


def test_cleaning_up_is_undone_with_the_commit_that_it_is_part_of(log: StreamLog) -> None:
    write_notification(log.metadata, "r")

    def clean_and_fail(connection: sqlite3.Connection) -> None:
        assert clean_up_in(connection, "r") == 1
        raise RuntimeError("the commit fails")

    with pytest.raises(RuntimeError, match="the commit fails"):
        log.commit("writer", 0, [], also=clean_and_fail)
    assert len(read_notifications(log.metadata).valid) == 1
    cleaned: list[int] = []
    assert log.commit("writer", 0, [], also=lambda connection: cleaned.append(clean_up_in(connection, "r")))
    assert cleaned == [1]
    assert log.metadata.all(NAMESPACE) == {}


def test_cleaning_up_everything_removes_also_what_can_not_be_read(store: MetadataStore) -> None:
    write_notification(store, "r")
    write_notification(store, "s")
    store.put(NAMESPACE, "bad", b"")
    store.put("other", "k", b"v")
    assert clean_up_all(store) == 3
    assert store.namespaces() == ["other"]


# The monitor.


def test_a_notification_is_noticed_at_the_next_poll(store: MetadataStore) -> None:
    monitor = DrainMonitor(store, "r")
    assert monitor.poll() is None
    written = write_notification(store, "r")
    assert monitor.poll() == written


def test_a_notification_written_before_the_run_starts_is_noticed_at_the_first_poll(store: MetadataStore) -> None:
    written = write_notification(store, "r")
    assert DrainMonitor(store, "r").poll() == written


def test_a_drain_once_noticed_stays_noticed(store: MetadataStore) -> None:
    first = write_notification(store, "r", now_ms=20)
    monitor = DrainMonitor(store, "r")
    assert [monitor.poll(), monitor.poll()] == [first, first]
    write_notification(store, "r", now_ms=10)
    assert monitor.poll() == first
    clean_up(store, "r")
    assert monitor.poll() == first


def test_two_notifications_at_once_are_one_drain_and_both_are_cleaned_up(store: MetadataStore) -> None:
    write_notification(store, "r", uuid=uuid(1), now_ms=20)
    older = write_notification(store, "r", uuid=uuid(2), now_ms=10)
    assert DrainMonitor(store, "r").poll() == older
    assert clean_up(store, "r") == 2
    assert DrainMonitor(store, "r").poll() is None


def test_a_notification_for_another_run_is_ignored_and_shown(store: MetadataStore) -> None:
    other = write_notification(store, "r2")
    monitor = DrainMonitor(store, "r")
    assert monitor.poll() is None and monitor.ignored == [other]
    mine = write_notification(store, "r")
    assert monitor.poll() == mine and monitor.ignored == [other]
    clean_up(store, "r2")
    assert monitor.poll() == mine and monitor.ignored == []


def test_an_unreadable_notification_is_reported_once_and_keeps_no_drain_from_being_noticed(
    store: MetadataStore,
) -> None:
    store.put(NAMESPACE, "bad", b"?")
    monitor = DrainMonitor(store, "r")
    assert monitor.poll() is None
    [reported] = monitor.take_unreadable()
    assert reported.key == "bad"
    written = write_notification(store, "r")
    store.put(NAMESPACE, "worse", b"??")
    assert monitor.poll() == written
    assert [unreadable.key for unreadable in monitor.unreadable] == ["bad", "worse"]
    assert [unreadable.key for unreadable in monitor.take_unreadable()] == ["worse"]
    assert monitor.poll() == written and monitor.take_unreadable() == []


def test_what_was_mended_and_then_damaged_again_is_reported_again(store: MetadataStore) -> None:
    monitor = DrainMonitor(store, "r")
    for _ in range(2):
        store.put(NAMESPACE, "k", b"?")
        monitor.poll()
        assert len(monitor.take_unreadable()) == 1
        store.put(NAMESPACE, "k", SAMZA)
        monitor.poll()
        assert monitor.unreadable == monitor.take_unreadable() == []


def test_a_process_without_spark_can_ask_a_run_to_drain(log: StreamLog) -> None:
    script = (
        "import sys; from workbench.drain import write_notification; from workbench.systems.log import StreamLog\n"
        "write_notification(StreamLog(sys.argv[1], create=False).metadata, 'r')\n"
        "print(sorted({'pyspark', 'pandas'} & set(sys.modules)))"
    )
    monitor = DrainMonitor(log.metadata, "r")
    assert monitor.poll() is None
    command = [sys.executable, "-c", script, str(log.directory)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
    assert monitor.poll() is not None


def test_the_pure_part_imports_the_standard_library_only() -> None:
    script = (
        "import sys; import workbench.drain\n"
        "print(sorted({m.split('.')[0] for m in sys.modules} - sys.stdlib_module_names - {'workbench', '__main__'}))\n"
        "print(sorted(m for m in sys.modules if m.startswith(('workbench.engine', 'workbench.systems'))))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", script], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.split("\n")[:2] == ["[]", "[]"]


def test_a_drain_that_was_stopped_says_who_goes_on_with_it() -> None:
    def said(**how: bool) -> str:
        return str(DrainTimeout.owing("monday", 2, ["Partition 0 waits"], **how))

    assert "The drain goes on" in said(stopped=False, begun=False)
    assert "the next deployment goes on with the drain" in said(stopped=True, begun=True)
    assert "before the drain began: deploy with run_id='monday'" in said(stopped=True, begun=False)
