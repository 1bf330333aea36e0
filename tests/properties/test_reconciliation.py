"""However control messages are interleaved, repeated, reordered or cut into runs, the reconciliation is the same."""

from __future__ import annotations

import json
import random
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.messages import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    ControlMessage,
    ControlRun,
    DrainMessage,
    EndOfStreamMessage,
    WatermarkMessage,
)
from workbench.names import SSP
from workbench.reconciliation import Aggregator, Reconciliation

HERE = SSP("log", "s", 1)

times = st.one_of(st.integers(-20, 20), st.sampled_from([MIN_TIMESTAMP, -1, 0, MAX_TIMESTAMP - 1, MAX_TIMESTAMP]))
# Few tasks and small counts that contradict each other: producers too many, too few, unknown counts, direct ones.
senders = st.one_of(
    st.just((None, 0)),
    st.tuples(st.sampled_from(["A", "B", "C", "D", "E"]), st.sampled_from([None, 1, 2, 3, 3, 3, 4])),
)
watermarks = st.builds(lambda time, of: WatermarkMessage(time, *of), times, senders)
ends = st.builds(lambda of: EndOfStreamMessage("s", *of), senders)
drains = st.builds(lambda run, of: DrainMessage(run, *of), st.sampled_from(["now", "now", "before"]), senders)
anything = st.one_of(watermarks, watermarks, watermarks, ends, drains)
runs = st.lists(st.lists(anything, max_size=8), max_size=6)
options = st.fixed_dictionaries(
    {
        "idle_timeout_ms": st.sampled_from([None, 1, 10]),
        "quorum": st.sampled_from([0.1, 0.5, 0.7, 1.0]),
        "expected_tasks": st.sampled_from([0, 0, 2, 5]),
    }
)


def restored(reconciliation: Reconciliation) -> Reconciliation:
    return Reconciliation.from_json(json.loads(json.dumps(reconciliation.to_json())))


@settings(max_examples=1_000)
@given(runs, options, st.lists(st.integers(0, 12), min_size=6, max_size=6), st.booleans())
def test_a_whole_run_ends_where_its_messages_one_by_one_do(
    batches: list[list[ControlMessage]], chosen: dict[str, object], pauses: list[int], restarting: bool
) -> None:
    one_by_one = Reconciliation(HERE, "now", **chosen)  # type: ignore[arg-type]
    at_once = Reconciliation(HERE, "now", **chosen)  # type: ignore[arg-type]
    now = 1_000
    for batch, pause in zip(batches, pauses, strict=False):
        now += pause
        each = [completed for message in batch for completed in one_by_one.apply(message, now_ms=now)]
        whole = at_once.apply_run(ControlRun.from_messages(batch), now_ms=now)
        assert whole[-1:] == each[-1:]
        assert [m for m in whole if m.type != 1] == [m for m in each if m.type != 1]
        assert not any(first.type == second.type == 1 for first, second in pairwise(whole))
        assert set(whole) <= set(each)
        assert one_by_one.tick(now) == at_once.tick(now)
        assert at_once == one_by_one
        assert at_once.state is one_by_one.state
        if restarting:
            at_once = restored(at_once).in_run("now", **chosen)  # type: ignore[arg-type]
            assert at_once == one_by_one


@given(runs, options, st.lists(st.integers(0, 12), min_size=6, max_size=6))
def test_what_is_emitted_rises_and_nothing_follows_the_end(
    batches: list[list[ControlMessage]], chosen: dict[str, object], pauses: list[int]
) -> None:
    reconciliation = Reconciliation(HERE, "now", **chosen)  # type: ignore[arg-type]
    emitted: list[ControlMessage] = []
    now = 0
    for batch, pause in zip(batches, pauses, strict=False):
        emitted += reconciliation.apply_run(ControlRun.from_messages(batch), now_ms=now)
        now += pause
        emitted += reconciliation.tick(now)
    timestamps = [message.timestamp for message in emitted if isinstance(message, WatermarkMessage)]
    assert all(first < second for first, second in pairwise(timestamps))
    assert timestamps[-1:] == ([] if reconciliation.watermark is None else [reconciliation.watermark])
    assert all(message.direct for message in emitted)
    for kind in (EndOfStreamMessage, DrainMessage):
        assert sum(isinstance(message, kind) for message in emitted) <= 1
    if any(isinstance(message, EndOfStreamMessage) for message in emitted):
        assert isinstance(emitted[-1], EndOfStreamMessage)
        assert timestamps[-1] == MAX_TIMESTAMP


@given(st.integers(1, 6), st.data())
def test_the_watermark_is_the_minimum_of_what_each_task_said_last_once_all_have(
    tasks: int, data: st.DataObject
) -> None:
    """The truth, computed another way: per task the largest of all it said, then the minimum over the tasks."""
    said = {
        task: data.draw(st.lists(times, min_size=0 if data.draw(st.booleans()) else 1, max_size=4))
        for task in range(tasks)
    }
    sent = [WatermarkMessage(time, f"Partition {task}", tasks) for task, all_of in said.items() for time in all_of]
    sent += data.draw(st.lists(st.sampled_from(sent), max_size=5)) if sent else []
    shuffled = data.draw(st.permutations(sent))
    reconciliation = Reconciliation(HERE)
    reconciliation.apply_run(ControlRun.from_messages(shuffled))
    everybody = all(said.values())
    assert reconciliation.watermark == (min(max(all_of) for all_of in said.values()) if everybody else None)


@given(st.integers(1, 6), st.integers(0, 3), st.randoms(use_true_random=False))
def test_any_order_with_duplicates_and_producers_too_many_ends_and_drains_once(
    tasks: int, extra: int, shuffler: random.Random
) -> None:
    for make, kind in (
        (lambda name: EndOfStreamMessage("s", name, tasks), EndOfStreamMessage),
        (lambda name: DrainMessage("now", name, tasks), DrainMessage),
    ):
        sent = [make(f"Partition {task}") for task in range(tasks + extra)] * 2
        shuffler.shuffle(sent)
        reconciliation = Reconciliation(HERE, "now")
        heard: set[str | None] = set()
        for message in sent:
            before = len(heard)
            heard.add(message.task_name)
            emitted = [each for each in reconciliation.apply(message) if isinstance(each, kind)]
            assert len(emitted) == (before < tasks == len(heard))
        assert reconciliation.finished


@given(runs, st.lists(st.booleans(), min_size=6, max_size=6))
def test_the_aggregate_partition_tells_the_others_each_agreement_once(
    batches: list[list[ControlMessage]], restarts: list[bool]
) -> None:
    """Where nothing is direct, a partition that hears only the re-broadcasts knows as much as the aggregate one."""
    owner, other = Reconciliation(HERE, "now"), Reconciliation(SSP("log", "s", 0), "now")
    aggregator = Aggregator(owner)
    told: list[ControlMessage] = []
    for batch, restart in zip(batches, restarts, strict=False):
        if restart:
            owner = restored(owner)
            aggregator = Aggregator(owner)
        owner.apply_run(ControlRun.from_messages([message for message in batch if not message.direct]))
        messages = aggregator.to_rebroadcast()
        assert aggregator.to_rebroadcast() == []
        other.apply_run(ControlRun.from_messages(messages))
        told += messages
        assert (other.watermark, other.ended, other.finished) == (owner.watermark, owner.ended, owner.finished)
    assert len(told) == len(set(told))
