"""Startpoints at a start: what each task consumes first, what a rewind does to results, and crashes until the commit."""

from __future__ import annotations

import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.jobs import EPOCH_MS
from tests.support.local import LocalJob
from tests.support.startpoint_jobs import (
    COPIES,
    EVERYWHERE,
    MINUTE_MS,
    NAME,
    SOURCE,
    append_rows,
    copied,
    copier,
    copies,
    held,
    ssp,
    until_idle,
)
from workbench.drain import write_notification
from workbench.errors import LogInUse, RewindUndecided, UnresolvableStartpoint
from workbench.names import task_name
from workbench.startpoints import (
    STALE_AFTER,
    WRITTEN_NAMESPACE,
    Startpoint,
    StartpointManager,
    StartpointOldest,
    StartpointSpecific,
    StartpointTimestamp,
    StartpointUpcoming,
)
from workbench.startpoints.model import now
from workbench.systems.log import StreamLog

PIECE = 20
"""Rows that each partition gets at a time; three times before the startpoints, once after."""

TRIMMED = 3
"""Offset of the oldest message that is kept."""

KINDS = ["specific", "event time", "append time", "oldest", "upcoming"]


@pytest.fixture
def log(tmp_path: Path) -> StreamLog:
    return StreamLog(tmp_path / "log")


def manager(log: StreamLog) -> StartpointManager:
    return StartpointManager(log, NAME)


def nothing_is_left(log: StreamLog) -> bool:
    stored, taken = manager(log).all(), manager(log).fan_outs()
    return not (stored.requests or stored.unreadable or taken[0] or taken[1])


@dataclass
class Past:
    """What there was after each piece: the time in between, and how far the streams had come."""

    times: list[int] = field(default_factory=list)
    heads: dict[str, list[list[int]]] = field(default_factory=lambda: {SOURCE: [], EVERYWHERE: []})


def with_a_past(log: StreamLog, partitions: int) -> Past:
    """Three pieces in the log, all consumed by a first run; what is oldest is gone."""
    log.create(SOURCE, partitions)
    append_rows(log, PIECE)
    job, past = until_idle(LocalJob(copier(), log)), Past()
    for _ in range(2):
        for stream, heads in past.heads.items():
            heads.append(log.stream(stream).heads())
        time.sleep(0.003)
        past.times.append(now())
        append_rows(log, PIECE)
        until_idle(job)
    job.release()
    for stream in (SOURCE, EVERYWHERE):
        for partition in range(log.stream(stream).partitions):
            log.stream(stream).trim(partition, TRIMMED)
    return past


def chosen(kind: str, log: StreamLog, stream: str, partition: int, past: Past) -> tuple[Startpoint, int]:
    """A startpoint of a kind, and the first offset that it means."""
    head = log.stream(stream).heads()[partition]
    match kind:
        case "specific":
            offset = TRIMMED + 7 * (partition + 1) % 40
            return StartpointSpecific(offset), offset
        case "event time":
            time_ = EPOCH_MS + (PIECE + partition % 5) * MINUTE_MS - 1
            rows = log.stream(stream).to_pandas(partition, position=True)
            offset = rows.loc[rows["offset"] >= PIECE + partition % 5, "_offset"].min()
            return StartpointTimestamp(time_), int(offset)
        case "append time":
            which = partition % 2
            return StartpointTimestamp(past.times[which], "append"), past.heads[stream][which][partition]
        case "oldest":
            return StartpointOldest(), TRIMMED
    return StartpointUpcoming(), head


@pytest.mark.parametrize("has_checkpoint", [True, False], ids=["checkpoint", "no checkpoint"])
@pytest.mark.parametrize("stream", [SOURCE, EVERYWHERE], ids=["partitioned", "broadcast"])
@pytest.mark.parametrize(
    ("partitions", "kinds"), [*((width, [kind]) for width in (1, 3) for kind in KINDS), (16, KINDS)], ids=str
)
def test_each_task_consumes_from_the_startpoint_on_and_nothing_before_it(
    log: StreamLog, tmp_path: Path, kinds: list[str], stream: str, partitions: int, has_checkpoint: bool
) -> None:
    past = with_a_past(log, partitions)
    for kind in kinds:
        checkpoint = None if has_checkpoint else tmp_path / kind
        first: dict[int, int] = {}
        for partition in range(log.stream(stream).partitions):
            startpoint, first[partition] = chosen(kind, log, stream, partition, past)
            manager(log).write(ssp(partition, stream), startpoint)
        before, heads = copies(log), log.stream(SOURCE).heads()
        job = LocalJob(copier(), log, on_rewind="keep", checkpoint=checkpoint)
        append_rows(log, PIECE)
        until_idle(job)
        for task in range(partitions):
            own = 0 if stream == EVERYWHERE else task
            seen = copied(log, stream, task, since=before[stream][task])
            assert seen == held(log, stream, own, first[own]), (
                f"{task_name(task)} began at {seen[:1]}, not {first[own]}"
            )
            if stream == EVERYWHERE:
                default = heads[task] if has_checkpoint else TRIMMED
                untouched = copied(log, SOURCE, task, since=before[SOURCE][task])
                assert untouched == held(log, SOURCE, task, default), "the other stream goes on by the checkpoint"
        assert nothing_is_left(log)
        job.release()
        again = LocalJob(copier(), log, checkpoint=checkpoint)
        assert again.step() == [], "a startpoint is for one start"
        again.release()


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_preview_tells_is_what_the_start_does(log: StreamLog, kind: str) -> None:
    past = with_a_past(log, 3)
    append_rows(log, PIECE)  # waits, so that startpoints may lead ahead too
    wanted = {ssp(partition): chosen(kind, log, SOURCE, partition, past)[0] for partition in (0, 2)}
    record, before = LocalJob(copier(), log), copies(log)[SOURCE]
    preview = record.record.preview_startpoints(wanted)
    record.release()
    assert nothing_is_left(log), "a preview writes nothing"
    for each, startpoint in wanted.items():
        manager(log).write(each, startpoint)
    pd.testing.assert_frame_equal(record.record.preview_startpoints(), preview)
    assert preview["task"].tolist() == ["Partition 0", "Partition 2"] and set(preview["state"]) == {"applies"}

    until_idle(LocalJob(copier(), log, on_rewind="keep"))
    told = preview.set_index("partition")
    for partition in (0, 2):
        seen = copied(log, SOURCE, partition, since=before[partition])
        current, resolved = told.loc[partition, "current"], told.loc[partition, "resolved"]
        assert current == 3 * PIECE
        assert seen == held(log, SOURCE, partition, resolved)
        assert told.loc[partition, "replayed"] == sum(offset < current for _, offset in seen)
        assert told.loc[partition, "skipped"] == PIECE - sum(offset >= current for _, offset in seen)
    assert copied(log, SOURCE, 1, since=before[1]) == held(log, SOURCE, 1, 3 * PIECE)


def test_the_preview_tells_of_what_was_taken_and_of_what_can_not_be(log: StreamLog) -> None:
    with_a_past(log, 2)
    manager(log).write(ssp(0), StartpointSpecific(10))
    job = LocalJob(copier(), log, on_rewind="keep")
    job.release()
    manager(log).write(ssp(5), StartpointOldest())
    log.metadata.put(WRITTEN_NAMESPACE, '["copier"]', b"{}")
    preview = job.record.preview_startpoints({ssp(1): StartpointSpecific(1)})
    states = preview["state"].str.partition(":")[0].tolist()
    assert sorted(states) == ["applies", "not consumed", "unreadable", "unresolvable"]
    assert preview.loc[preview["state"] == "applies", ["partition", "taken", "replayed"]].values.tolist() == [
        [0, True, 50]
    ]


def test_an_application_that_never_ran_begins_at_its_startpoints(log: StreamLog) -> None:
    log.create(SOURCE, 3)
    append_rows(log, PIECE)
    manager(log).write(ssp(0), StartpointSpecific(5))
    manager(log).write(ssp(1), StartpointUpcoming())
    job = LocalJob(copier(), log)
    append_rows(log, PIECE)
    until_idle(job)
    assert [copied(log, SOURCE, task)[0] for task in range(3)] == [(0, 5), (1, PIECE), (2, 0)]
    assert nothing_is_left(log)


def test_each_task_takes_its_own_startpoint_of_a_broadcast_stream(log: StreamLog) -> None:
    with_a_past(log, 4)
    everywhere, head = ssp(0, EVERYWHERE), log.stream(EVERYWHERE).heads()[0]
    manager(log).write(everywhere, StartpointSpecific(100))
    manager(log).write(everywhere, StartpointOldest(), task_name(1))
    manager(log).write(everywhere, StartpointSpecific(50), task_name(3))
    before = copies(log)[EVERYWHERE]
    with pytest.warns(UserWarning, match=r"offset 100 for log/everywhere\[0\] is overridden in Partition [13] by"):
        until_idle(LocalJob(copier(), log, on_rewind="keep"))
    for task, first in enumerate([100, TRIMMED, 100, 50]):
        assert copied(log, EVERYWHERE, task, since=before[task]) == held(log, EVERYWHERE, 0, first)
    assert log.stream(EVERYWHERE).heads()[0] >= head
    assert nothing_is_left(log)


@pytest.mark.parametrize(
    ("of_ssp", "of_task", "first"), [(0, 1, 40), (1, 0, 30), (0, 0, 40)], ids=["task later", "ssp later", "at once"]
)
def test_of_two_startpoints_the_one_made_later_wins_and_of_two_made_at_once_the_task_s(
    log: StreamLog, of_ssp: int, of_task: int, first: int
) -> None:
    with_a_past(log, 2)
    made, before = now() - 1_000, copies(log)[SOURCE]
    manager(log).write(ssp(1), StartpointSpecific(30, created=made + of_ssp))
    manager(log).write(ssp(1), StartpointSpecific(40, created=made + of_task), task_name(1))
    with pytest.warns(UserWarning, match=r"is overridden in Partition 1 by"):
        job = LocalJob(copier(), log, on_rewind="keep")
    until_idle(job)
    assert copied(log, SOURCE, 1, since=before[1])[0] == (1, first)
    assert copied(log, SOURCE, 0, since=before[0]) == []
    assert nothing_is_left(log)


def test_a_stale_startpoint_is_not_applied_and_the_start_says_so(log: StreamLog) -> None:
    with_a_past(log, 2)
    StartpointManager(log, NAME, lambda: now() - STALE_AFTER).write(
        ssp(0), StartpointSpecific(10, created=now() - STALE_AFTER)
    )
    before = copies(log)[SOURCE]
    with pytest.warns(UserWarning, match=r"offset 10 for log/events\[0\] was not applied: it was made at"):
        job = LocalJob(copier(), log)
    assert job.step() == []
    assert copies(log)[SOURCE] == before
    assert nothing_is_left(log), "it is cleaned up"


def test_what_can_not_be_resolved_refuses_the_start_with_the_valid_range_and_takes_nothing(log: StreamLog) -> None:
    with_a_past(log, 2)
    manager(log).write(ssp(0), StartpointSpecific(10))
    manager(log).write(ssp(1), StartpointSpecific(1))
    written = manager(log).all()
    for _ in range(2):
        with pytest.raises(UnresolvableStartpoint, match=r"log/events\[1\]") as refused:
            LocalJob(copier(), log, on_rewind="keep")
        assert "offset 1" in str(refused.value) and "3" in str(refused.value) and "60" in str(refused.value)
        assert manager(log).all() == written and manager(log).fan_outs() == ((), ())
    manager(log).delete(ssp(1))
    before = copies(log)[SOURCE]
    until_idle(LocalJob(copier(), log, on_rewind="keep"))
    assert copied(log, SOURCE, 0, since=before[0])[0] == (0, 10), (
        "the lock was let go of, and the other one is still meant"
    )


def test_a_rewind_that_nobody_has_decided_about_takes_nothing(log: StreamLog) -> None:
    with_a_past(log, 2)
    manager(log).write(ssp(0), StartpointSpecific(10))
    with pytest.raises(RewindUndecided, match=r"log/events\[0\] in Partition 0: from 60 back to 10"):
        LocalJob(copier(), log)
    assert len(manager(log).all().fresh) == 1 and manager(log).fan_outs() == ((), ())


def test_an_entry_that_is_no_startpoint_is_told_and_left(log: StreamLog) -> None:
    with_a_past(log, 1)
    log.metadata.put(WRITTEN_NAMESPACE, '["copier","log","events",0]', b'{"@type":"StartpointYesterday"}')
    with pytest.warns(UserWarning, match=r"was skipped.*StartpointYesterday"):
        job = LocalJob(copier(), log)
    assert job.step() == []
    assert len(manager(log).all().unreadable) == 1


def test_a_partition_that_is_new_begins_at_its_startpoint_which_waited_for_it(log: StreamLog) -> None:
    """The partitions of a source may become more after a drain, when all that was read of it is done with."""
    app = copier(broadcast=False)
    log.create(SOURCE, 2)
    append_rows(log, PIECE)
    job = until_idle(LocalJob(app, log))
    write_notification(log.metadata, job.deployment.run_id)
    job.run_to_end()
    manager(log).write(ssp(2), StartpointSpecific(6))
    manager(log).write(ssp(0), StartpointUpcoming())
    log.renew(SOURCE, 3)
    log.renew(COPIES[SOURCE], 3)
    append_rows(log, PIECE)
    begun = log.stream(SOURCE).heads()
    grown = LocalJob(app, log)
    append_rows(log, PIECE)
    until_idle(grown)
    for task, first in enumerate([begun[0], grown.deployment.source.initial.positions[SOURCE][1], 6]):
        assert copied(log, SOURCE, task) == held(log, SOURCE, task, first)
    assert nothing_is_left(log)


def test_a_startpoint_for_a_partition_that_is_not_there_yet_waits(log: StreamLog) -> None:
    with_a_past(log, 2)
    manager(log).write(ssp(2), StartpointSpecific(6))
    with pytest.warns(UserWarning, match=r"log/events\[2\] waits: no task of this job consumes that"):
        job = LocalJob(copier(), log)
    assert job.step() == []
    assert [request.ssp for request in manager(log).all().fresh] == [ssp(2)]


# Crashes.


@pytest.mark.parametrize("again", ["", "fan-out", "plan", "tasks", "commit"])
@pytest.mark.parametrize("step", ["fan-out", "plan", "tasks", "commit"])
def test_a_crash_before_the_commit_applies_it_again_and_after_that_never(log: StreamLog, step: str, again: str) -> None:
    with_a_past(log, 2)
    manager(log).write(ssp(1), StartpointSpecific(10))
    before, committed = copies(log), False
    for crash in [step, again] if again else [step]:
        job = LocalJob(copier(), log, on_rewind="keep")
        if crash == "fan-out":
            job.release()
        else:
            job.crash(crash)
        committed = committed or crash == "commit"
        assert manager(log).all().requests == ()
        assert len(manager(log).fan_outs()[0]) == (not committed), "removed with the commit, and with nothing else"
    needs_no_choice = {step, again} & {"plan", "tasks", "commit"}
    job = LocalJob(copier(), log, on_rewind=None if needs_no_choice else "keep")
    append_rows(log, 1)
    until_idle(job).release()
    assert copied(log, SOURCE, 1, since=before[SOURCE][1]) == held(log, SOURCE, 1, 10)
    assert copied(log, SOURCE, 0, since=before[SOURCE][0]) == [(0, 60)]
    assert nothing_is_left(log)


writes = st.tuples(st.just("write"), st.integers(0, 1), st.integers(0, 30))
deploys = st.sampled_from([("fan-out",), ("plan",), ("tasks",), ("commit",), ("run",)])


@pytest.mark.filterwarnings("ignore:The startpoint offset .* is overridden")
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(writes, deploys, deploys, st.just(("append",))), min_size=2, max_size=10))
def test_whatever_is_written_and_wherever_it_crashes_each_startpoint_is_applied_once(
    doings: list[tuple[str | int, ...]],
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = StreamLog(directory)
        log.create(SOURCE, 2)
        append_rows(log, 30)
        model = Model()
        for doing in doings:
            match doing:
                case ("append",):
                    append_rows(log, 5)
                    model.heads = [head + 5 for head in model.heads]
                case ("write", int(partition), int(offset)):
                    manager(log).write(ssp(partition), StartpointSpecific(offset))
                    model.written[partition] = offset
                case (str(step),):
                    job = LocalJob(copier(broadcast=False), log, on_rewind="keep")
                    model.deploy()
                    if step == "run":
                        until_idle(job)
                        model.run()
                    elif step != "fan-out" and model.crash(step):
                        job.crash(step)
                    job.release()
            model.assert_same(log)
        until_idle(LocalJob(copier(broadcast=False), log, on_rewind="keep")).release()
        model.deploy()
        model.run()
        model.assert_same(log)
        assert nothing_is_left(log)


@dataclass
class Batch:
    ranges: list[range]
    consumes: dict[int, int]
    committed: bool = False


@dataclass
class Model:
    """What the text of the design says, for two partitions and startpoints that name an offset."""

    heads: list[int] = field(default_factory=lambda: [30, 30])
    positions: list[int] = field(default_factory=lambda: [0, 0])
    written: dict[int, int] = field(default_factory=dict)
    taken: dict[int, int] = field(default_factory=dict)
    out: list[list[int]] = field(default_factory=lambda: [[], []])
    unfinished: Batch | None = None

    def deploy(self) -> None:
        self.taken |= self.written
        if self.unfinished is not None:
            for partition in self.written:
                self.unfinished.consumes.pop(partition, None)
        self.written = {}

    def run(self) -> None:
        while (batch := self._next()) is not None:
            self._commit(batch)
            self.unfinished = None

    def crash(self, step: str) -> bool:
        """False if there is nothing to do in which it could."""
        batch = self._next()
        if batch is None:
            return False
        self.unfinished = batch
        if step == "commit":
            self._commit(batch)
        return True

    def assert_same(self, log: StreamLog) -> None:
        out = [copied(log, SOURCE, task) for task in (0, 1)] if COPIES[SOURCE] in log else [[], []]
        assert out == [[(task, offset) for offset in offsets] for task, offsets in enumerate(self.out)]
        pending = {taken.ssp.partition for taken in manager(log).fan_outs()[0]}
        assert pending == set(self.taken)
        assert {request.ssp.partition for request in manager(log).all().fresh} == set(self.written)

    def _next(self) -> Batch | None:
        if self.unfinished is not None:
            return self.unfinished
        ranges = [range(self.taken.get(p, self.positions[p]), self.heads[p]) for p in (0, 1)]
        if not self.taken and not any(ranges):
            return None
        self.positions = list(self.heads)
        return Batch(ranges, dict(self.taken))

    def _commit(self, batch: Batch) -> None:
        if not batch.committed:
            for partition, offsets in enumerate(batch.ranges):
                self.out[partition] += offsets
            for partition in batch.consumes:
                del self.taken[partition]
        batch.committed = True


# Several at once.


def test_what_writers_set_while_starts_go_on_is_applied_once_each_and_in_order(log: StreamLog) -> None:
    log.create(SOURCE, 2)
    append_rows(log, 200)
    until_idle(LocalJob(copier(broadcast=False), log)).release()
    before, offsets = copies(log)[SOURCE], range(199, 99, -1)

    def write(partition: int) -> None:
        for offset in offsets:
            StartpointManager(log, NAME).write(ssp(partition), StartpointSpecific(offset))
            time.sleep(0.002)

    writers = [threading.Thread(target=write, args=(partition,)) for partition in (0, 1)]
    for writer in writers:
        writer.start()
    starts = 0
    while any(writer.is_alive() for writer in writers):
        until_idle(LocalJob(copier(broadcast=False), log, on_rewind="keep")).release()
        starts += 1
    for writer in writers:
        writer.join()
    until_idle(LocalJob(copier(broadcast=False), log, on_rewind="keep")).release()
    assert starts > 2
    for partition in (0, 1):
        seen = [offset for _, offset in copied(log, SOURCE, partition, since=before[partition])]
        begins = [offset for place, offset in enumerate(seen) if place == 0 or seen[place - 1] == 199]
        assert begins == sorted(begins, reverse=True) and len(set(begins)) == len(begins) >= 2
        assert begins[-1] == offsets[-1], "the last one that was written is the last that was applied"
        assert seen == [offset for begin in begins for offset in range(begin, 200)]
    assert nothing_is_left(log)


def test_of_two_starts_at_once_one_takes_them(log: StreamLog) -> None:
    with_a_past(log, 2)
    manager(log).write(ssp(0), StartpointSpecific(10))
    job = LocalJob(copier(), log, on_rewind="keep")
    manager(log).write(ssp(1), StartpointSpecific(20))
    with pytest.raises(LogInUse):
        LocalJob(copier(), log, on_rewind="keep")
    assert [taken.ssp for taken in manager(log).fan_outs()[0]] == [ssp(0)]
    assert [request.ssp for request in manager(log).all().fresh] == [ssp(1)], (
        "written while the job runs: for the next start"
    )
    before = copies(log)[SOURCE]
    until_idle(job).release()
    assert [len(copied(log, SOURCE, task, since=before[task])) for task in (0, 1)] == [50, 0]
    until_idle(LocalJob(copier(), log, on_rewind="keep"))
    assert [len(copied(log, SOURCE, task, since=before[task])) for task in (0, 1)] == [50, 40]
