"""A whole batch at once is taken in the order that the choosers give message by message."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.choosers import Feed, Message, Round, both
from workbench.choosers import ChooserPolicy, LaneArrivals, Run, Runs, decode_runs, encode_runs, plan_runs
from workbench.choosers.policy import BUILT_IN
from workbench.messages import MessageType
from workbench.names import SSP
from workbench.times import NO_TIME

# Few times, so that many are equal; controls, ends and drain markers in the middle; rows without a time.
times = st.integers(-5, 5)
messages: st.SearchStrategy[Message] = st.one_of(
    times, times, times, times, st.sampled_from([NO_TIME, *list(MessageType)[1:]])
)
some = st.lists(messages, max_size=12)
STREAMS = st.lists(
    st.tuples(st.sampled_from([0, 0, 5, 2**31 - 1, -3]), st.booleans(), st.integers(1, 3)), min_size=1, max_size=3
)


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[Feed], list[Round]]:
    """Streams with priorities, some to be bootstrapped; partitions that are empty, emptied, or appear later."""
    feeds = []
    for name, (priority, bootstrap, partitions) in enumerate(draw(STREAMS)):
        for partition in range(partitions):
            held = draw(some)
            oldest = draw(st.sampled_from([0, 0, 0, len(held), len(held) // 2]))
            start = draw(st.integers(0, len(held)))
            appears = draw(st.sampled_from([0, 0, 0, 1, 2])) if partition else 0
            if appears:
                held, oldest, start = [], 0, 0
            ssp = SSP("log", f"s{name}", partition)
            feeds.append(Feed(ssp, priority, bootstrap, start, held, appears, oldest=oldest))
    feeds = draw(st.permutations(feeds))
    rounds = [
        Round(draw(st.sampled_from([0, 1, 2, 3, 5, 8, 100])), [draw(some) if index else [] for _ in feeds])
        for index in range(draw(st.integers(1, 4)))
    ]
    return feeds, rounds


@pytest.mark.parametrize("kind", BUILT_IN)
@settings(max_examples=200, deadline=None)
@given(situations(), st.sampled_from([1, 1, 2, 3, 7]))
def test_a_whole_batch_is_taken_in_the_order_of_the_chooser_message_by_message(
    kind: str, situation: tuple[list[Feed], list[Round]], batch_size: int
) -> None:
    planned, asked = both(ChooserPolicy(kind, batch_size), *situation)
    for at_once, one_by_one in zip(planned, asked, strict=True):
        assert at_once.runs.order().tolist() == one_by_one.runs.order().tolist()
        assert at_once.runs == one_by_one.runs


@pytest.mark.parametrize("kind", BUILT_IN)
@settings(max_examples=60, deadline=None)
@given(situations(), st.sampled_from([1, 2, 7]))
def test_nothing_is_lost_taken_twice_or_held_for_ever(
    kind: str, situation: tuple[list[Feed], list[Round]], batch_size: int
) -> None:
    feeds, rounds = situation
    last = Round(10_000, [[] for _ in feeds])
    for choices in both(ChooserPolicy(kind, batch_size), feeds, [*rounds, last]):
        taken = [0] * len(feeds)
        for index, (choice, round_) in enumerate(zip(choices, [*rounds, last], strict=True)):
            assert choice.runs.messages <= round_.limit
            present = [at for at, feed in enumerate(feeds) if feed.appears <= index]
            for at, count in zip(present, choice.runs.taken(len(present)), strict=True):
                taken[at] += count
        for at, feed in enumerate(feeds):
            if feed.appears < len(rounds):
                appended = sum(len(round_.appended[at]) for round_ in rounds)
                assert taken[at] == len(feed.messages) + appended - max(feed.start, feed.oldest)


@settings(max_examples=200, deadline=None)
@given(situations(), st.sampled_from([10, 30]), st.integers(0, 3))
def test_each_run_tells_what_waits_behind_it(
    situation: tuple[list[Feed], list[Round]], limit: int, appended: int
) -> None:
    """The truth, message by message, from what is left of each lane."""
    feeds, _ = situation
    for feed in feeds:
        feed.begin()
        feed.messages += [0] * appended
    waiting = [feed.lane() for feed in feeds]
    choice = plan_runs(ChooserPolicy(), waiting, limit)
    left = [lane.count for lane in waiting]
    missing = [lane.missing for lane in waiting]
    before: tuple[int, str] | None = None
    for run in choice.runs:
        assert (run.lane, run.why) != before, "runs are as long as they can be"
        before = run.lane, run.why
        for _ in range(run.count):
            left[run.lane] -= 1
            ranks = [lane.priority for lane, count in zip(waiting, left, strict=True) if count]
            own = waiting[run.lane].priority
            rank = "highest priority" if own == 2**31 - 1 else f"priority {own}"
            ties = sum(lane.priority == own and count > 0 for lane, count in zip(waiting, left, strict=True))
            ties -= left[run.lane] > 0
            reasons = [rank] * any(each < own for each in ranks) + ["round robin"] * (ties > 0)
            assert run.why == ("bootstrap" if any(missing) else ", ".join(reasons) or "alone")
            missing[run.lane] = max(0, missing[run.lane] - 1)


@st.composite
def lanes(draw: st.DrawFn) -> list[LaneArrivals]:
    found = []
    for index in range(draw(st.integers(1, 4))):
        waiting = draw(st.lists(times, max_size=15))
        start = draw(st.integers(0, 5))
        lane = LaneArrivals(
            SSP("log", "s", index),
            len(waiting),
            start,
            draw(st.sampled_from([0, 0, 3])),
            started_at=0,
            head_at_start=draw(st.integers(0, 20)),
            head=start + len(waiting),
            event_times=np.array(waiting, dtype=np.int64),
        )
        found.append(lane)
    return found


@pytest.mark.parametrize("kind", BUILT_IN)
@settings(max_examples=75, deadline=None)
@given(lanes(), st.lists(st.integers(1, 9), min_size=1, max_size=30), st.sampled_from([1, 2, 5]))
def test_a_smaller_limit_cuts_the_order_and_does_not_change_it(
    kind: str, waiting: list[LaneArrivals], limits: list[int], batch_size: int
) -> None:
    policy = ChooserPolicy(kind, batch_size)
    whole = plan_runs(policy, waiting, 1_000).runs.order().tolist()
    left, state, found = waiting, None, []
    for limit in [*limits, 1_000]:
        choice = plan_runs(policy, left, limit, state)
        state = choice.state
        found += choice.runs.order().tolist()
        left = [_after(lane, count) for lane, count in zip(left, choice.runs.taken(len(left)), strict=True)]
    assert found == whole


def _after(lane: LaneArrivals, taken: int) -> LaneArrivals:
    rest = lane.times(lane.count)
    assert rest is not None
    return replace(lane, count=lane.count - taken, start_offset=lane.start_offset + taken, event_times=rest[taken:])


words = st.text(max_size=5)


@given(st.lists(st.builds(Run, st.integers(0, 2**40), st.integers(1, 2**62), words), max_size=30))
def test_runs_come_back_from_their_text(runs: list[Run]) -> None:
    assert list(decode_runs(encode_runs(Runs.of(runs)))) == runs
