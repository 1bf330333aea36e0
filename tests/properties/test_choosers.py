"""A whole batch at once is taken in the order that the choosers give message by message."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.choosers import Feed, Message, Round, both
from workbench.choosers import ChooserPolicy
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
@settings(max_examples=400, deadline=None)
@given(situations(), st.sampled_from([1, 1, 2, 3, 7]))
def test_a_whole_batch_is_taken_in_the_order_of_the_chooser_message_by_message(
    kind: str, situation: tuple[list[Feed], list[Round]], batch_size: int
) -> None:
    planned, asked = both(ChooserPolicy(kind, batch_size), *situation)
    for at_once, one_by_one in zip(planned, asked, strict=True):
        assert at_once.runs.order().tolist() == one_by_one.runs.order().tolist()
        assert list(at_once.runs) == list(one_by_one.runs)
