"""Whatever is written, taken, crashed, consumed and written again, in whatever order: no startpoint is lost or comes twice."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from workbench.errors import InvalidStartpoint
from workbench.names import SSP
from workbench.startpoints import (
    FAN_OUT_NAMESPACE,
    STALE_AFTER,
    WRITTEN_NAMESPACE,
    Receipt,
    Startpoint,
    StartpointManager,
    StartpointOldest,
    StartpointSpecific,
    StartpointTimestamp,
    StartpointUpcoming,
    startpoint_from_json,
)
from workbench.systems.log import StreamLog

NOW = 1_000 * STALE_AFTER
TASKS = ["Partition 0", "Partition 1"]
SSPS = [SSP("log", "s", 0), SSP("log", "s", 1), SSP("log", "s.1", 1), SSP("log", "b", 0)]
ASSIGNMENTS = [
    {TASKS[0]: [SSPS[0], SSPS[3]], TASKS[1]: [SSPS[1], SSPS[3]]},
    {TASKS[0]: [SSPS[0], SSPS[3]], TASKS[1]: []},
    {TASKS[0]: [SSPS[2]]},
    {TASKS[0]: [SSPS[0], SSPS[2], SSPS[3]], TASKS[1]: [SSPS[1], SSPS[3]]},
]
whole = st.integers(-(2**63), 2**63 - 1)
startpoints = st.one_of(
    st.builds(StartpointSpecific, st.integers(0, 2**63 - 1), created=whole),
    st.builds(StartpointTimestamp, whole, st.sampled_from(["event", "append"]), created=whole),
    st.builds(StartpointOldest, created=whole),
    st.builds(StartpointUpcoming, created=whole),
)


@given(startpoints)
def test_every_startpoint_survives_its_json(startpoint: Startpoint) -> None:
    assert startpoint_from_json(json.loads(json.dumps(startpoint.to_json()))) == startpoint
    assert str(startpoint)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=5,
)
KEYS = ["@type", "creationTimestamp", "specificOffset", "timestampOffset", "by"]
KINDS = ["StartpointSpecific", "StartpointTimestamp", "StartpointOldest", "StartpointUpcoming"]


@given(
    st.dictionaries(st.sampled_from(KEYS), json_values | st.just("7") | st.just(7), max_size=5),
    st.sampled_from(KINDS) | json_values,
)
def test_any_json_is_a_startpoint_or_a_sentence(data: dict[str, Any], kind: Any) -> None:
    try:
        read = startpoint_from_json({**data, "@type": kind})
    except InvalidStartpoint as error:
        assert str(error).endswith((".", "?", "applied."))
    else:
        assert read.created == data["creationTimestamp"]


class Crash(Exception):
    pass


@dataclass
class Taken:
    """What the model knows of a startpoint that a start has taken."""

    startpoint: Startpoint
    of_task: bool


class FanOutIsAMerge(RuleBasedStateMachine):
    """The manager against two dictionaries and the rule in words: the last made wins, of two at once the task's."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.log = StreamLog(self.directory.name)
        self.now = NOW
        self.manager = StartpointManager(self.log, "app", lambda: self.now)
        self.other = StartpointManager(self.log, "app.2", lambda: self.now)
        self.written: dict[tuple[SSP, str | None], Startpoint] = {}
        self.taken: dict[tuple[str, SSP], Taken] = {}
        self.receipts: list[tuple[Receipt, Taken]] = []
        self.number = 0

    @rule(
        ssp=st.sampled_from(SSPS),
        task=st.none() | st.sampled_from(TASKS),
        age=st.integers(-2, 2) | st.just(STALE_AFTER - 1),
        other=st.booleans(),
    )
    def write(self, ssp: SSP, task: str | None, age: int, other: bool) -> None:
        self.number += 1
        startpoint = StartpointSpecific(self.number, created=self.now - age)
        if other:
            self.other.write(ssp, startpoint, task)
        else:
            self.manager.write(ssp, startpoint, task)
            self.written[ssp, task] = startpoint

    @rule(ssp=st.sampled_from(SSPS), task=st.none() | st.sampled_from(TASKS))
    def delete(self, ssp: SSP, task: str | None) -> None:
        assert self.manager.delete(ssp, task) == (self.written.pop((ssp, task), None) is not None)

    @rule(by=st.sampled_from([1, 1, 2, STALE_AFTER // 2, STALE_AFTER]))
    def time_passes(self, by: int) -> None:
        self.now += by

    @rule(assignment=st.sampled_from(ASSIGNMENTS), refused=st.booleans())
    def start(self, assignment: dict[str, list[SSP]], refused: bool) -> None:
        if refused:
            try:
                with self.log.transaction():
                    self.manager.fan_out(assignment)
                    raise Crash
            except Crash:
                return
        fan_out = self.manager.fan_out(assignment)
        fresh = {key: each for key, each in self.written.items() if self.now - each.created < STALE_AFTER}
        claimed = set()
        for task, ssps in assignment.items():
            for ssp in ssps:
                ranked: list[tuple[int, int, int, Taken]] = []
                if (task, ssp) in self.taken:
                    old = self.taken[task, ssp]
                    ranked.append((old.startpoint.created, int(old.of_task), 0, old))
                for key in ((ssp, None), (ssp, task)):
                    if key in fresh:
                        claimed.add(key)
                        new = Taken(fresh[key], key[1] is not None)
                        ranked.append((new.startpoint.created, int(new.of_task), 1, new))
                if ranked:
                    self.taken[task, ssp] = sorted(ranked, key=lambda each: each[:3])[-1][3]
        ours = {ssp for ssps in assignment.values() for ssp in ssps}
        for task, ssp in list(self.taken):
            if ssp in ours and ssp not in assignment.get(task, []):
                del self.taken[task, ssp]
        self.written = {key: each for key, each in fresh.items() if key not in claimed}
        expected = {
            (task, ssp): self.taken[task, ssp]
            for task, ssps in assignment.items()
            for ssp in ssps
            if (task, ssp) in self.taken
        }
        found = {(each.task, each.ssp): Taken(each.startpoint, each.source == "task") for each in fan_out}
        assert found == expected
        self.receipts = [
            *((each.receipt, self.taken[each.task, each.ssp]) for each in fan_out),
            *self.receipts,
        ][:8]

    @rule(data=st.data(), crashed=st.booleans())
    def commit(self, data: st.DataObject, crashed: bool) -> None:
        """A commit covers some of what some start, perhaps an earlier one, has taken."""
        if not self.receipts:
            return
        covered = data.draw(st.lists(st.sampled_from(self.receipts), max_size=3))
        saved = [Receipt(*json.loads(json.dumps(receipt))) for receipt, _ in covered]
        if crashed:
            try:
                with self.log.transaction():
                    self.manager.remove_consumed(saved)
                    raise Crash
            except Crash:
                return
        self.manager.remove_consumed(saved)
        for receipt, taken in covered:
            # `is`: the very startpoint that was taken then, not one written and taken since.
            if self.taken.get((receipt.task, receipt.ssp)) is taken:
                del self.taken[receipt.task, receipt.ssp]

    @invariant()
    def the_store_holds_what_is_neither_consumed_nor_stale_and_nothing_else(self) -> None:
        stored = self.manager.all()
        assert {(each.ssp, each.task): each.startpoint for each in stored.requests} == self.written
        assert stored.unreadable == ()
        for (ssp, task), startpoint in self.written.items():
            fresh = self.now - startpoint.created < STALE_AFTER
            assert self.manager.read(ssp, task) == (startpoint if fresh else None)
        standing, unreadable = self.manager.fan_outs()
        assert unreadable == ()
        assert {(each.task, each.ssp): each.startpoint for each in standing} == {
            key: taken.startpoint for key, taken in self.taken.items()
        }
        counts = [
            sum(json.loads(key)[0] == "app" for key in self.log.metadata.all(namespace))
            for namespace in (WRITTEN_NAMESPACE, FAN_OUT_NAMESPACE)
        ]
        assert counts == [len(self.written), len(self.taken)]

    def teardown(self) -> None:
        self.log.close()
        self.directory.cleanup()


FanOutIsAMerge.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
test_fan_out_is_a_merge_that_loses_nothing = FanOutIsAMerge.TestCase
