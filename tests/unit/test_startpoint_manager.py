"""The manager: what is written, what a start takes, what a commit removes. `S` marks rows of the reference's section 7."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import (
    InvalidName,
    InvalidStartpoint,
    InvalidStartpointRequest,
    LogUnavailable,
    UnresolvableStartpoint,
)
from workbench.metadata import MetadataStore, SqliteMetadataStore
from workbench.names import SSP
from workbench.startpoints import (
    FAN_OUT_NAMESPACE,
    STALE_AFTER,
    WRITTEN_NAMESPACE,
    FanOut,
    Receipt,
    Request,
    StartpointManager,
    StartpointOldest,
    StartpointSpecific,
    StartpointUpcoming,
    remove_consumed_in,
)
from workbench.systems.log import StreamLog
from workbench.systems.log.startpoints import resolve_on

NOW = 1_700_000_000_000
T0, T1 = "Partition 0", "Partition 1"
S0, S1, B = SSP("log", "s", 0), SSP("log", "s", 1), SSP("log", "b", 0)
BOTH = {T0: [S0, B], T1: [S1, B]}


class Clock:
    def __init__(self) -> None:
        self.at = NOW

    def __call__(self) -> int:
        return self.at


@pytest.fixture
def log(log_dir: Path) -> StreamLog:
    return StreamLog(log_dir)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def manager(log: StreamLog, clock: Clock) -> StartpointManager:
    return StartpointManager(log, "app", clock)


def at(offset: int, created: int = NOW) -> StartpointSpecific:
    return StartpointSpecific(offset, created=created)


def offsets(taken: FanOut) -> dict[tuple[str, SSP], int]:
    """(task, SSP) → the specific offset that applies."""
    found = {}
    for each in taken:
        assert isinstance(each.startpoint, StartpointSpecific)
        found[each.task, each.ssp] = each.startpoint.offset
    return found


def contents(log: StreamLog) -> dict[str, dict[str, bytes]]:
    return {name: log.metadata.all(name) for name in (WRITTEN_NAMESPACE, FAN_OUT_NAMESPACE)}


# What people do.


def test_what_is_written_is_read_until_it_is_replaced_or_deleted(manager: StartpointManager) -> None:
    assert manager.read(S0) is None
    manager.write(S0, at(1))
    manager.write(S0, at(2))
    assert manager.read(S0) == at(2)
    assert manager.delete(S0) is True
    assert manager.delete(S0) is False
    assert manager.read(S0) is None


def test_an_ssp_and_the_same_ssp_in_a_task_do_not_touch_each_other(manager: StartpointManager) -> None:
    manager.write(S0, at(1))
    manager.write(S0, at(2), T0)
    assert (manager.read(S0), manager.read(S0, T0), manager.read(S0, T1)) == (at(1), at(2), None)
    manager.delete(S0, T0)
    assert (manager.read(S0), manager.read(S0, T0)) == (at(1), None)
    manager.write(S0, at(2), T0)
    manager.delete(S0)
    assert (manager.read(S0), manager.read(S0, T0)) == (None, at(2))


def test_the_twelfth_hour_is_too_late_and_nothing_is_deleted_by_reading(
    manager: StartpointManager, clock: Clock
) -> None:
    manager.write(S0, at(1))
    clock.at = NOW + STALE_AFTER - 1
    assert manager.read(S0) == at(1)
    clock.at = NOW + STALE_AFTER
    assert manager.read(S0) is None
    stored = manager.all()
    assert stored.fresh == () and stored.stale == (Request(S0, at(1)),)


def test_a_startpoint_that_would_never_be_applied_is_not_written(manager: StartpointManager) -> None:
    with pytest.raises(InvalidStartpoint, match="12 h ago or more"):
        manager.write(S0, at(1, NOW - STALE_AFTER))
    with pytest.raises(InvalidStartpoint, match="12 h ahead"):
        manager.write(S0, at(1, NOW * 1_000))
    with pytest.raises(InvalidStartpoint, match="one of the four kinds"):
        manager.write(S0, 17)  # type: ignore[arg-type]
    assert manager.all().requests == ()


def test_several_are_written_all_or_none(manager: StartpointManager) -> None:
    with pytest.raises(InvalidStartpoint):
        manager.write_all([Request(S0, at(1)), Request(S1, at(1, 0))])
    assert manager.all().requests == ()
    manager.write_all([Request(S0, at(1)), Request(S1, at(2), T1)])
    assert manager.all().fresh == (Request(S0, at(1)), Request(S1, at(2), T1))


@pytest.mark.parametrize("name", ["", " ", "a\nb", 5])
def test_names_that_name_nothing_are_refused(manager: StartpointManager, log: StreamLog, name: Any) -> None:
    for call in (
        lambda: manager.write(SSP(name, "s", 0), at(1)),
        lambda: manager.write(SSP("log", name, 0), at(1)),
        lambda: manager.write(S0, at(1), name),
        lambda: manager.read(SSP("log", name, 0)),
        lambda: manager.fan_out({name: [S0]}),
        lambda: manager.fan_out({T0: [SSP("log", name, 0)]}),
        lambda: StartpointManager(log, name),
    ):
        with pytest.raises(InvalidName):
            call()
    for partition in (-1, None, "0", True):
        with pytest.raises(InvalidStartpoint, match="partition"):
            manager.write(SSP("log", "s", partition), at(1))  # type: ignore[arg-type]


def test_applications_do_not_see_each_other(log: StreamLog, clock: Clock) -> None:
    ours, theirs = StartpointManager(log, "app", clock), StartpointManager(log.metadata, "app 2", clock)
    ours.write(S0, at(1))
    theirs.write(S0, at(2))
    theirs.fan_out({T0: [S1]})
    assert offsets(ours.fan_out(BOTH)) == {(T0, S0): 1}
    assert theirs.read(S0) == at(2)
    assert offsets(theirs.fan_out(BOTH)) == {(T0, S0): 2}
    assert ours.remove_all_fan_outs() == 1 and ours.delete_all() == 0
    assert [each.startpoint for each in theirs.fan_outs()[0]] == [at(2)]


def test_delete_all_leaves_what_is_taken_and_the_other_way_round(manager: StartpointManager) -> None:
    manager.write(S0, at(1))
    manager.fan_out(BOTH)
    manager.write(S1, at(2))
    manager.write(S1, at(3), T1)
    assert manager.delete_all() == 2
    assert manager.all().requests == () and len(manager.fan_outs()[0]) == 1
    manager.write(S1, at(2))
    assert manager.remove_all_fan_outs() == 1
    assert manager.fan_outs()[0] == () and manager.read(S1) == at(2)


def test_a_store_that_can_not_be_written_says_so(manager: StartpointManager, log: StreamLog) -> None:
    log.metadata.put("x", "y", "z")
    log.connection().execute("PRAGMA query_only = ON")
    with pytest.raises(LogUnavailable):
        manager.write(S0, at(1))
    log.connection().execute("PRAGMA query_only = OFF")
    assert manager.read(S0) is None


# Names (S 7.2: dots collide, and can not be read back).


def test_names_with_dots_never_collide(manager: StartpointManager) -> None:
    manager.write(SSP("log", "s", 1), at(1), "2")
    manager.write(SSP("log", "s.1", 2), at(2))
    manager.write(SSP("log.s", "1", 2), at(3))
    assert len(manager.all().fresh) == 3
    assert manager.read(SSP("log", "s", 1), "2") == at(1)
    assert manager.read(SSP("log", "s.1", 2)) == at(2)
    taken = manager.fan_out({"2": [SSP("log", "s", 1), SSP("log", "s.1", 2), SSP("log.s", "1", 2)]})
    assert sorted(offsets(taken).values()) == [1, 2, 3]


@pytest.mark.parametrize(
    "name", ["a.b", "a.1", "a/b", "..", '["x"]', 'say "hi"', "it's", "'; DROP TABLE metadata; --", "🌊", "a\\b", "%s {0}", "é"]
)  # fmt: skip
def test_any_name_makes_the_whole_way(log: StreamLog, clock: Clock, name: str) -> None:
    ssp = SSP(name, name, 3)
    manager = StartpointManager(log, name, clock)
    manager.write(ssp, at(1))
    manager.write(ssp, at(2, NOW + 1), name)
    taken = manager.fan_out({name: [ssp], T1: [ssp]})
    assert offsets(taken) == {(name, ssp): 2, (T1, ssp): 1}
    assert manager.fan_out_of(name)[ssp].startpoint == at(2, NOW + 1)
    assert manager.remove_consumed([Receipt(*saved) for saved in json.loads(json.dumps(taken.receipts))]) == 2
    assert contents(log) == {WRITTEN_NAMESPACE: {}, FAN_OUT_NAMESPACE: {}}


def test_other_tools_can_rely_on_where_and_how_startpoints_lie(manager: StartpointManager, log: StreamLog) -> None:
    manager.write(SSP("log", "grün", 3), at(1))
    manager.write(S0, at(2), T0)
    specific = '{"@type":"StartpointSpecific","creationTimestamp":1700000000000,"specificOffset":"%d"}'
    assert log.metadata.all("tidemark-startpoint-v1") == {
        '["app","log","grün",3]': (specific % 1).encode(),
        '["app","log","s",0,"Partition 0"]': (specific % 2).encode(),
    }
    taken = manager.fan_out(BOTH)
    [(key, value)] = log.metadata.all("tidemark-startpoint-v1-fan-out").items()
    assert key == '["app","Partition 0","log","s",0]'
    assert json.loads(value) == {
        "id": taken.receipts[0].id, "timestamp": NOW, "source": "task", "startpoint": at(2).to_json(),
    }  # fmt: skip


# Fan-out.


@pytest.mark.parametrize(
    ("for_ssp", "for_task", "wins"),
    [(NOW, NOW + 1, "task"), (NOW, NOW, "task"), (NOW + 1, NOW, "ssp")],
    ids=["task's is later", "tie", "SSP's is later"],
)
def test_the_one_made_later_wins_and_a_tie_goes_to_the_task(
    manager: StartpointManager, for_ssp: int, for_task: int, wins: str
) -> None:
    manager.write(B, at(1, for_ssp))
    manager.write(B, at(2, for_task), T1)
    taken = manager.fan_out(BOTH)
    assert offsets(taken) == {(T0, B): 1, (T1, B): 2 if wins == "task" else 1}
    assert taken.applies[T1][B].source == wins and taken.applies[T0][B].source == "ssp"
    [lost] = taken.decision.overridden
    assert lost.task == T1 and lost.startpoint.source != wins and lost.by.source == wins
    assert any("is overridden in Partition 1 by" in notice for notice in taken.notices())
    assert manager.all().requests == ()


def test_a_broadcast_ssp_is_taken_by_every_task_that_consumes_it(manager: StartpointManager) -> None:
    manager.write(B, at(4))
    assert offsets(manager.fan_out(BOTH)) == {(T0, B): 4, (T1, B): 4}
    assert manager.remove_fan_out(T0, [B]) == 1
    assert offsets(manager.fan_out(BOTH)) == {(T1, B): 4}, "one task's commit does not speak for the others"


def test_nothing_written_is_nothing_taken(manager: StartpointManager) -> None:
    taken = manager.fan_out(BOTH)
    assert not taken and taken.applies == {} and taken.receipts == [] and taken.notices() == []
    assert taken.resolved(lambda ssp, startpoint: 1) == {}


def test_an_assignment_without_tasks_is_refused_and_tasks_without_ssps_are_not(manager: StartpointManager) -> None:
    manager.write(S0, at(1))
    with pytest.raises(InvalidStartpointRequest, match="no task"):
        manager.fan_out({})
    assert offsets(manager.fan_out({T0: [S0], T1: []})) == {(T0, S0): 1}


def test_an_unconsumed_startpoint_is_kept_when_another_one_is_taken(manager: StartpointManager) -> None:
    """S 7.4, 11.15: the original overwrites the task's record, and the first startpoint is lost."""
    manager.write(S0, at(1))
    manager.fan_out(BOTH)
    manager.write(B, at(2), T0)
    assert offsets(manager.fan_out(BOTH)) == {(T0, S0): 1, (T0, B): 2}
    assert offsets(manager.fan_out(BOTH)) == {(T0, S0): 1, (T0, B): 2}


def test_a_newer_startpoint_takes_the_place_of_an_unconsumed_one_and_an_older_does_not(
    manager: StartpointManager,
) -> None:
    manager.write(S0, at(1))
    first = manager.fan_out(BOTH)
    manager.write(S0, at(2, NOW + 5))
    second = manager.fan_out(BOTH)
    assert offsets(second) == {(T0, S0): 2} and second.receipts != first.receipts
    manager.write(S0, at(3, NOW + 4))
    third = manager.fan_out(BOTH)
    assert offsets(third) == {(T0, S0): 2} and third.receipts == second.receipts
    assert any("offset 3" in notice and "overridden" in notice for notice in third.notices())
    manager.write(S0, at(4, NOW + 5))
    assert offsets(manager.fan_out(BOTH)) == {(T0, S0): 4}, "written anew in the same millisecond"
    manager.write(S0, at(5, NOW + 5), T0)
    assert offsets(manager.fan_out(BOTH)) == {(T0, S0): 5}
    manager.write(S0, at(6, NOW + 5))
    assert offsets(manager.fan_out(BOTH)) == {(T0, S0): 5}, "a tie goes to the task, also when it was taken before"


def test_stale_ones_are_ignored_deleted_and_told(manager: StartpointManager, log: StreamLog, clock: Clock) -> None:
    """S 7.3, 7.4: in the original they stay for ever, those of nobody as well."""
    gone = SSP("log", "gone", 0)
    for ssp, task in ((S0, None), (B, T1), (gone, None), (gone, "Partition 9")):
        manager.write(ssp, at(1), task)
    clock.at = NOW + STALE_AFTER
    taken = manager.fan_out(BOTH)
    assert not taken and len(taken.decision.stale) == 4
    assert sum("not within 12 h of the start" in notice for notice in taken.notices()) == 4
    assert contents(log)[WRITTEN_NAMESPACE] == {}


def test_one_that_claims_to_be_made_years_ahead_does_not_win(manager: StartpointManager, log: StreamLog) -> None:
    in_microseconds = StartpointOldest(created=NOW * 1_000)
    log.metadata.put(WRITTEN_NAMESPACE, '["app","log","s",0]', json.dumps(in_microseconds.to_json()))
    manager.write(S0, at(1), T0)
    taken = manager.fan_out(BOTH)
    assert offsets(taken) == {(T0, S0): 1}
    assert taken.decision.stale == (Request(S0, in_microseconds),)


def test_what_is_taken_never_goes_stale(manager: StartpointManager, clock: Clock) -> None:
    manager.write(S0, at(1))
    manager.fan_out(BOTH)
    clock.at = NOW + 10 * STALE_AFTER
    assert offsets(manager.fan_out(BOTH)) == {(T0, S0): 1}, "the run may have been there already"


def test_startpoints_of_other_jobs_wait_for_those(manager: StartpointManager) -> None:
    other = SSP("log", "other", 0)
    manager.write(other, at(7))
    manager.write(S1, at(8), T0)
    taken = manager.fan_out(BOTH)
    assert not taken
    assert set(taken.decision.unclaimed) == {Request(other, at(7)), Request(S1, at(8), T0)}
    assert sum("no task of this job consumes that" in notice for notice in taken.notices()) == 2
    assert offsets(manager.fan_out({T0: [other]})) == {(T0, other): 7}
    assert offsets(manager.fan_out({T0: [S1]})) == {(T0, S1): 8}
    assert manager.fan_out({T0: [S1]}, consumed=[S1, other]).decision.orphaned == ()
    assert len(manager.fan_outs()[0]) == 2, "each job of an application leaves what the others have taken"


def test_what_was_taken_for_a_task_that_does_not_consume_it_any_more_is_given_up(manager: StartpointManager) -> None:
    manager.write(B, at(1))
    manager.write(S0, at(2))
    manager.fan_out(BOTH)
    fewer = manager.fan_out({T0: [B]})
    assert offsets(fewer) == {(T0, B): 1}
    assert [each.task for each in fewer.decision.orphaned] == [T1]
    assert any("Partition 1 does not consume log/b[0] any more" in notice for notice in fewer.notices())
    assert {(each.task, each.ssp) for each in manager.fan_outs()[0]} == {(T0, B), (T0, S0)}
    only = manager.fan_out({T0: [B]}, consumed={B})
    assert [each.ssp for each in only.decision.orphaned] == [S0]
    assert {(each.task, each.ssp) for each in manager.fan_outs()[0]} == {(T0, B)}


def test_a_stream_that_has_more_partitions_than_before_is_taken_as_it_is_now(manager: StartpointManager) -> None:
    grown = {f"Partition {number}": [SSP("log", "s", number)] for number in range(5)}
    manager.write_all([Request(SSP("log", "s", number), at(number)) for number in range(5)])
    assert len(offsets(manager.fan_out(BOTH))) == 2
    assert sorted(offsets(manager.fan_out(grown)).values()) == [0, 1, 2, 3, 4]


# What can not be read (S 7.4, 11.15: one bad entry stops the coordinator).

BROKEN = {
    "no JSON": (b'["app","log","s",1]', b"{"),
    "no UTF-8": (b'["app","log","s",1]', b"\xff\xfe"),
    "deep": (b'["app","log","s",1]', b"[" * 100_000),
    "no creation time": (b'["app","log","s",1]', b'{"@type":"StartpointOldest"}'),
    "a new kind": (b'["app","log","s",1]', b'{"@type":"StartpointMiddle","creationTimestamp":1}'),
    "not a key": (b"app.log.s.1", b'{"@type":"StartpointOldest","creationTimestamp":1}'),
    "another spelling": (b'["app", "log", "s", 1]', b'{"@type":"StartpointOldest","creationTimestamp":1700000000000}'),
    "no partition": (b'["app","log","s"]', b'{"@type":"StartpointOldest","creationTimestamp":1}'),
    "a partition as text": (b'["app","log","s","1"]', b'{"@type":"StartpointOldest","creationTimestamp":1}'),
    "a blank task": (b'["app","log","s",1,""]', b'{"@type":"StartpointOldest","creationTimestamp":1}'),
}


@pytest.mark.parametrize(("key", "value"), BROKEN.values(), ids=BROKEN.keys())
def test_an_unreadable_entry_is_told_and_skipped(
    manager: StartpointManager, log: StreamLog, key: bytes, value: bytes
) -> None:
    manager.write(S0, at(1))
    log.metadata.put(WRITTEN_NAMESPACE, key.decode(), value)
    for _ in range(2):
        taken = manager.fan_out(BOTH)
        assert offsets(taken) == {(T0, S0): 1}
        [entry] = taken.unreadable
        assert entry.key == key.decode() and len(entry.reason) > 20
        assert any(entry.reason in notice for notice in taken.notices())
    assert manager.all().unreadable == (entry,)
    if key.startswith(b'["app"'):
        assert manager.delete_unreadable() == 1
        assert manager.all().unreadable == ()


def test_an_unreadable_entry_of_another_application_is_not_ours(manager: StartpointManager, log: StreamLog) -> None:
    log.metadata.put(WRITTEN_NAMESPACE, '["other","log","s",0]', b"{")
    assert manager.all().unreadable == ()
    assert manager.delete_all() == 0


def test_reading_an_unreadable_entry_by_name_says_why(manager: StartpointManager, log: StreamLog) -> None:
    log.metadata.put(WRITTEN_NAMESPACE, '["app","log","s",0]', b'{"@type":"StartpointOldest"}')
    with pytest.raises(InvalidStartpoint, match="when it was made"):
        manager.read(S0)
    manager.write(S0, at(1))
    assert manager.read(S0) == at(1)


@pytest.mark.parametrize("value", [b"{", b"[]", b'{"id":1}', b'{"id":"x","timestamp":1,"source":"ssp"}'])
def test_an_unreadable_record_of_a_taken_one_is_told_and_skipped(
    manager: StartpointManager, log: StreamLog, value: bytes
) -> None:
    log.metadata.put(FAN_OUT_NAMESPACE, '["app","Partition 0","log","s",0]', value)
    manager.write(B, at(1))
    taken = manager.fan_out(BOTH)
    assert offsets(taken) == {(T0, B): 1, (T1, B): 1}
    assert [entry.namespace for entry in taken.unreadable] == [FAN_OUT_NAMESPACE]
    assert manager.remove_consumed([Receipt(T0, *S0, "x")]) == (b'"x"' in value)
    log.metadata.put(FAN_OUT_NAMESPACE, '["app","Partition 0","log","s",0]', value)
    manager.write(S0, at(9))
    again = manager.fan_out(BOTH)
    assert again.unreadable == () and offsets(again)[T0, S0] == 9, "a new one takes its place"


def test_a_key_by_another_tool_in_ascii_is_refused_rather_than_a_second_one(
    manager: StartpointManager, log: StreamLog
) -> None:
    ssp = SSP("log", "grün", 0)
    manager.write(ssp, at(1))
    log.metadata.put(WRITTEN_NAMESPACE, json.dumps(["app", *ssp]), json.dumps(at(2, NOW + 1).to_json()))
    taken = manager.fan_out({T0: [ssp]})
    assert offsets(taken) == {(T0, ssp): 1}
    assert 'must be written ["app"' in taken.unreadable[0].reason


# Transactions.


def test_a_start_that_is_refused_has_taken_nothing(manager: StartpointManager, log: StreamLog) -> None:
    """S 7.6: the original starts from the checkpoint instead, and deletes the startpoint as if it were consumed."""
    log.create("s", 2)
    manager.write(S0, at(5))
    manager.write(S1, StartpointUpcoming(created=NOW))
    before = contents(log)
    with pytest.raises(UnresolvableStartpoint, match=r"offset 5 of log/s\[0\].*0 to 0"), log.transaction():
        manager.fan_out(BOTH).resolved(resolve_on(log))
    assert contents(log) == before
    manager.delete(S0)
    with log.transaction():
        assert manager.fan_out(BOTH).resolved(resolve_on(log)) == {T1: {S1: 0}}


def test_all_that_can_not_be_resolved_is_told_at_once(manager: StartpointManager, log: StreamLog) -> None:
    log.create("s", 2)
    log.create("b", 1)
    manager.write_all([Request(S0, at(5)), Request(S1, at(6)), Request(B, at(7))])
    with pytest.raises(UnresolvableStartpoint, match="3 startpoints can not") as error:
        manager.fan_out(BOTH).resolved(resolve_on(log))
    assert all(f"offset {offset} of" in str(error.value) for offset in (5, 6, 7))


class Crash(Exception):
    pass


class CrashingStore:
    """A metadata store whose process dies before its n-th change."""

    def __init__(self, store: SqliteMetadataStore, lives: int) -> None:
        self.store, self.lives = store, lives

    def _change(self) -> None:
        self.lives -= 1
        if self.lives < 0:
            raise Crash

    def get(self, namespace: str, key: str) -> bytes | None:
        return self.store.get(namespace, key)

    def all(self, namespace: str) -> dict[str, bytes]:
        return self.store.all(namespace)

    def put(self, namespace: str, key: str, value: bytes | str) -> None:
        self._change()
        self.store.put(namespace, key, value)

    def put_all(self, namespace: str, values: Mapping[str, bytes | str]) -> None:
        for key, value in values.items():
            self.put(namespace, key, value)

    def delete(self, namespace: str, key: str) -> bool:
        self._change()
        return self.store.delete(namespace, key)

    def delete_all(self, namespace: str) -> int:
        raise NotImplementedError

    def namespaces(self) -> list[str]:
        return self.store.namespaces()

    @contextmanager
    def transaction(self) -> Iterator[MetadataStore]:
        with self.store.transaction():
            yield self
            self._change()


def test_a_crash_between_any_two_steps_of_a_fan_out_changes_nothing(
    manager: StartpointManager, log: StreamLog, clock: Clock
) -> None:
    """S 7.4: the original writes, then deletes one by one, and applies again what it had consumed."""
    manager.write(B, at(3))
    manager.fan_out({**BOTH, "Partition 2": [B]})
    manager.write_all([Request(S0, at(1)), Request(S1, at(2), T1), Request(B, at(4, NOW + 1))])
    manager.write(SSP("log", "stale", 0), at(9, NOW - STALE_AFTER + 1))
    clock.at = NOW + 1
    before = contents(log)
    for lives in range(100):
        try:
            taken = StartpointManager(CrashingStore(log.metadata, lives), "app", clock).fan_out(BOTH)
        except Crash:
            assert contents(log) == before
            continue
        break
    assert lives == 4 + 4 + 1 + 1, "every change was interrupted once: 4 taken, 4 deleted, 1 orphan, the commit"
    assert offsets(taken) == {(T0, S0): 1, (T1, S1): 2, (T0, B): 4, (T1, B): 4}
    assert contents(log)[WRITTEN_NAMESPACE] == {} and len(contents(log)[FAN_OUT_NAMESPACE]) == 4


@pytest.mark.parametrize("committed", [False, True])
def test_a_process_that_dies_within_or_after_a_fan_out_leaves_all_or_nothing(
    manager: StartpointManager, log: StreamLog, committed: bool
) -> None:
    manager.write_all([Request(S0, at(1)), Request(B, at(2))])
    before = contents(log)
    script = f"""
import os, sys
from workbench.names import SSP
from workbench.startpoints import StartpointManager
from workbench.systems.log import StreamLog
log = StreamLog(sys.argv[1], create=False)
manager = StartpointManager(log, "app", lambda: {NOW})
with log.transaction():
    assert len(list(manager.fan_out({{"Partition 0": [SSP("log", "s", 0), SSP("log", "b", 0)]}}))) == 2
    if not {committed}:
        os._exit(9)
os._exit(9)
"""
    died = subprocess.run([sys.executable, "-c", script, str(log.directory)], cwd=Path(__file__).parents[2])
    assert died.returncode == 9
    assert (contents(log) == before) is not committed
    assert offsets(manager.fan_out({T0: [S0, B]})) == {(T0, S0): 1, (T0, B): 2}


def test_a_commit_removes_what_it_covers_or_is_not(manager: StartpointManager, log: StreamLog) -> None:
    manager.write_all([Request(S0, at(1)), Request(S1, at(2))])
    taken = manager.fan_out(BOTH)
    covered = [receipt for receipt in taken.receipts if receipt.task == T0]
    with pytest.raises(Crash), log.transaction() as connection:
        assert remove_consumed_in(connection, "app", covered) == 1
        raise Crash
    assert len(manager.fan_outs()[0]) == 2

    def also(connection: sqlite3.Connection) -> None:
        remove_consumed_in(connection, "app", covered)

    assert log.commit("checkpoint", 1, [], also=also)
    assert offsets(manager.fan_out(BOTH)) == {(T1, S1): 2}
    manager.write(S0, at(1, NOW + 1))
    manager.fan_out(BOTH)
    assert not log.commit("checkpoint", 1, [], also=also), "the same batch, replayed"
    assert offsets(manager.fan_out(BOTH)) == {(T0, S0): 1, (T1, S1): 2}


def test_a_late_commit_does_not_remove_a_startpoint_written_and_taken_meanwhile(manager: StartpointManager) -> None:
    """S 7.6: removal goes by partition there, so a commit of the old run takes the next start's startpoint."""
    manager.write(S0, at(1))
    old = manager.fan_out(BOTH)
    manager.write(S0, at(1))  # the very same again, in the same millisecond
    new = manager.fan_out(BOTH)
    assert old.receipts != new.receipts
    assert manager.remove_consumed(old.receipts) == 0
    assert offsets(manager.fan_out(BOTH)) == {(T0, S0): 1}
    assert manager.remove_consumed(new.receipts) == 1
    assert manager.remove_consumed(new.receipts) == 0


def test_removal_outside_a_transaction_is_a_mistake_that_is_told(log: StreamLog) -> None:
    with pytest.raises(sqlite3.ProgrammingError, match="no transaction"):
        remove_consumed_in(log.connection(), "app", [])


def test_fan_outs_are_removed_by_task_and_ssps(manager: StartpointManager) -> None:
    manager.write_all([Request(S0, at(1)), Request(B, at(2))])
    manager.fan_out(BOTH)
    assert manager.remove_fan_out(T0, []) == 0
    assert manager.remove_fan_out(T0, [S1]) == 0
    assert manager.remove_fan_out(T0, [S0, S1]) == 1
    assert set(manager.fan_out_of(T0)) == {B} and set(manager.fan_out_of(T1)) == {B}
    assert manager.remove_fan_out(T0) == 1
    assert manager.fan_out_of(T0) == {} and set(manager.fan_out_of(T1)) == {B}


def test_the_tie_between_two_writers_is_one_whole_startpoint_and_a_start_loses_none(log: StreamLog) -> None:
    """Writers and a start at once: each startpoint ends up written or taken, exactly once."""
    writers, each = 3, 15
    streams = [[SSP("log", f"{writer}", number) for number in range(each)] for writer in range(writers)]
    shared = SSP("log", "shared", 0)
    assignment = {T0: [ssp for of_writer in streams for ssp in of_writer] + [shared]}
    errors: list[BaseException] = []
    done = threading.Event()

    def write(writer: int) -> None:
        try:
            manager = StartpointManager(StreamLog(log.directory), "app")
            for number, ssp in enumerate(streams[writer]):
                manager.write_all(
                    [Request(ssp, StartpointSpecific(number)), Request(shared, StartpointSpecific(writer))]
                )
        except BaseException as error:
            errors.append(error)

    def start() -> None:
        try:
            manager = StartpointManager(StreamLog(log.directory), "app")
            while not done.is_set():
                manager.fan_out(assignment)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
    starter = threading.Thread(target=start)
    for thread in (*threads, starter):
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    starter.join()
    assert errors == []
    manager = StartpointManager(log, "app")
    found = offsets(manager.fan_out(assignment))
    assert found.pop((T0, shared)) in range(writers)
    assert found == {(T0, ssp): number for of_writer in streams for number, ssp in enumerate(of_writer)}
    assert manager.all().requests == ()
