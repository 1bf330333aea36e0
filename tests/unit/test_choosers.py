"""Each chooser, message by message. Where Samza's is known to fail, the test says so and would fail there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest

from workbench.choosers import (
    BatchingChooser,
    BootstrappingChooser,
    FunctionChooser,
    IncomingEnvelope,
    MessageChooser,
    RoundRobinChooser,
    SortKeyChooser,
    StartingAlignmentChooser,
    TieredPriorityChooser,
    TimeAlignedChooser,
    compose,
)
from workbench.errors import InvalidChoice, InvalidChooser
from workbench.messages import MessageType
from workbench.names import SSP

A, B, C = SSP("log", "a", 0), SSP("log", "b", 0), SSP("log", "c.with.dots", 0)
TABLE, TABLE_1 = SSP("log", "table", 0), SSP("log", "table", 1)


def row(ssp: SSP, offset: int | None = 0, time: int | None = None, **payload: object) -> IncomingEnvelope:
    return IncomingEnvelope.of(ssp, offset, event_time=time, payload=payload)


def control(ssp: SSP, offset: int | None, kind: MessageType = MessageType.WATERMARK) -> IncomingEnvelope:
    return IncomingEnvelope.of(ssp, offset, kind=kind)


def chosen(chooser: MessageChooser) -> list[IncomingEnvelope]:
    return list(iter(chooser.choose, None))


def started(chooser: MessageChooser, **offsets: int | None) -> MessageChooser:
    for ssp in (A, B, C, TABLE, TABLE_1):
        name = f"{ssp.stream}_{ssp.partition}" if ssp.partition else ssp.stream
        if name in offsets:
            chooser.register(ssp, offsets[name])
    chooser.start()
    return chooser


def order(chooser: MessageChooser, *lanes: Iterable[IncomingEnvelope]) -> str:
    """The streams' initials in the order chosen, each lane giving its next message as soon as one is chosen."""
    feeds: dict[SSP, Iterator[IncomingEnvelope]] = {}
    for lane in map(iter, lanes):
        first = next(lane)
        feeds[first.ssp] = lane
        chooser.update(first)
    found = ""
    while (envelope := chooser.choose()) is not None:
        found += envelope.ssp.stream[0]
        following = next(feeds.get(envelope.ssp, iter(())), None)
        if following is not None:
            chooser.update(following)
    return found


def rows(ssp: SSP, count: int, first: int = 0) -> list[IncomingEnvelope]:
    return [row(ssp, offset) for offset in range(first, first + count)]


CHOOSERS: list[Callable[[], MessageChooser]] = [
    RoundRobinChooser,
    TimeAlignedChooser,
    lambda: StartingAlignmentChooser(lambda ssp: 10),
    lambda: FunctionChooser(lambda envelopes: envelopes[0]),
    lambda: SortKeyChooser(lambda envelope: envelope.offset),
    lambda: TieredPriorityChooser({A: 5}, RoundRobinChooser),
    lambda: BatchingChooser(RoundRobinChooser(), 3),
    lambda: BootstrappingChooser(RoundRobinChooser(), {TABLE: 5}),
    lambda: compose(TimeAlignedChooser, batch_size=2, priority_of={A: 1}, bootstrap_heads={A: 5}),
]


@pytest.mark.parametrize("make", CHOOSERS)
@pytest.mark.parametrize("first", [row(A, 3), control(A, 3)], ids=["row", "control"])
def test_a_second_update_for_an_ssp_is_refused_by_name_and_loses_nothing(
    make: Callable[[], MessageChooser], first: IncomingEnvelope
) -> None:
    """Samza's round robin queues it, and its batching loses the first one."""
    chooser = started(make(), a=3, table=0)
    chooser.update(first)
    with pytest.raises(InvalidChoice, match=r"second message of log/a\[0\] \(offset 4\).* offset 3 has not"):
        chooser.update(row(A, 4))
    if isinstance(chooser, BootstrappingChooser):
        chooser.reached(TABLE, 5)
    assert chosen(chooser) == [first]


@pytest.mark.parametrize("make", CHOOSERS)
def test_nothing_is_chosen_where_nothing_is_outstanding(make: Callable[[], MessageChooser]) -> None:
    chooser = started(make(), a=0)
    assert chooser.choose() is None
    chooser.stop()


def test_round_robin_takes_the_inputs_in_turn_and_who_was_away_comes_last() -> None:
    assert order(RoundRobinChooser(), rows(A, 3), rows(B, 1), rows(C, 4)) == "abcacacc"


def test_a_higher_priority_goes_first_and_equal_ones_take_turns() -> None:
    chooser = started(TieredPriorityChooser({A: 1, B: 7, C: 1}, RoundRobinChooser))
    assert order(chooser, rows(A, 2), rows(B, 2), rows(C, 2)) == "bbacac"


def test_an_input_without_a_priority_has_priority_0_and_is_not_below_all_others() -> None:
    """In Samza it goes last of all, after negative priorities too."""
    chooser = started(TieredPriorityChooser({A: -1}, RoundRobinChooser), a=0, b=0)
    assert order(chooser, rows(A, 2), rows(B, 2)) == "bbaa"


def test_a_tier_hears_only_of_its_own_inputs_and_one_that_comes_late_is_started() -> None:
    calls: list[tuple[object, ...]] = []

    class Told(RoundRobinChooser):
        def register(self, ssp: SSP, offset: int | None) -> None:
            calls.append(("register", ssp.stream, offset))

        def start(self) -> None:
            calls.append(("start",))

        def stop(self) -> None:
            calls.append(("stop",))

    chooser = started(TieredPriorityChooser({A: 1, B: 2}, Told), a=3)
    chooser.register(B, 4)
    chooser.stop()
    assert calls == [("register", "a", 3), ("start",), ("start",), ("register", "b", 4), ("stop",), ("stop",)]


@pytest.mark.parametrize(
    ("size", "expected"), [(1, "abababab"), (2, "aabbaabb"), (3, "aaabbbab"), (4, "aaaabbbb"), (9, "aaaabbbb")]
)
def test_a_batch_has_its_size_and_a_size_of_one_makes_runs_of_one(size: int, expected: str) -> None:
    """Samza's size of one makes runs of two."""
    assert order(BatchingChooser(RoundRobinChooser(), size), rows(A, 4), rows(B, 4)) == expected


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "3", None])
def test_a_batch_size_that_is_none_is_refused(size: object) -> None:
    with pytest.raises(InvalidChooser, match="at least 1"):
        BatchingChooser(RoundRobinChooser(), size)  # type: ignore[arg-type]
    with pytest.raises(InvalidChooser, match="at least 1"):
        compose(RoundRobinChooser, batch_size=size)  # type: ignore[arg-type]


def test_a_batch_goes_on_after_a_pause_but_not_after_another_input() -> None:
    chooser = BatchingChooser(RoundRobinChooser(), 3)
    assert order(chooser, rows(A, 2)) == "aa"
    assert order(chooser, rows(B, 1), rows(A, 3, 2)) == "abaa", "one is left of the batch of A, then its turn is over"
    assert order(chooser, rows(C, 1)) == "c"
    assert order(chooser, rows(C, 3, 1), rows(A, 1)) == "ccac"


def test_a_batch_of_low_priority_is_interrupted_by_a_higher_one_and_then_goes_on() -> None:
    """In Samza the batch is finished first: low, low, low, high."""
    chooser = started(compose(RoundRobinChooser, batch_size=3, priority_of={A: 9}), a=0, b=0, c=0)
    low, other = iter(rows(B, 9)), iter(rows(C, 9))
    chooser.update(next(low))
    chooser.update(next(other))
    found = ""
    for at in range(8):
        if at == 2:
            chooser.update(row(A))
        envelope = chooser.choose()
        assert envelope is not None
        found += envelope.ssp.stream[0]
        if envelope.ssp != A:
            chooser.update(next(low if envelope.ssp == B else other))
    assert found == "bbabcccb"


def bootstrapping(oldest: dict[SSP, int] | None = None, **heads: int) -> BootstrappingChooser:
    names = {"table": TABLE, "table_1": TABLE_1}
    return BootstrappingChooser(RoundRobinChooser(), {names[name]: head for name, head in heads.items()}, oldest)


def test_nothing_else_goes_before_a_bootstrap_stream_has_reached_its_head_at_the_start() -> None:
    chooser = started(bootstrapping(table=3, table_1=2), a=0, table=0, table_1=0)
    assert order(chooser, rows(A, 2), rows(TABLE, 5), rows(TABLE_1, 2)) == "tttttatat"


def test_others_that_came_first_or_have_a_higher_priority_wait_all_the_same() -> None:
    """Samza only opens a gate: what is queued first, or of higher priority, then goes before the bootstrap stream."""
    for priorities in ({}, {A: 5, TABLE: 0}):
        chooser = compose(RoundRobinChooser, priority_of=priorities, bootstrap_heads={TABLE: 3})
        assert order(started(chooser, a=0, table=0), rows(A, 2), rows(TABLE, 3)) == "tttaa"


def test_a_caught_up_partition_of_a_lagging_stream_does_not_let_others_in() -> None:
    chooser = started(bootstrapping(table=3, table_1=3), a=0, table=3, table_1=0)
    assert order(chooser, rows(A, 1), rows(TABLE, 2, 3)) == "tt"
    assert order(chooser, rows(TABLE_1, 3)) == "ttta"


@pytest.mark.parametrize(
    ("start", "oldest", "head"),
    [(6, 10, 10), (0, 4, 4), (0, 0, 0), (3, 0, 3), (9, 0, 3), (None, 7, 7)],
    ids=[
        "emptied by retention",
        "emptied before it was read",
        "never filled",
        "at its head",
        "beyond",
        "start unknown",
    ],
)
def test_an_empty_partition_never_blocks(start: int | None, oldest: int, head: int) -> None:
    """Samza waits for ever for a partition that retention has emptied (SAMZA-720 and its successors)."""
    chooser = started(bootstrapping({TABLE: oldest}, table=head), a=0, table=start)
    assert order(chooser, rows(A, 2)) == "aa"


def test_a_partition_that_nobody_reads_or_that_appears_later_never_blocks() -> None:
    chooser = started(bootstrapping(table=2, table_1=5), a=0, table=0)
    assert order(chooser, rows(A, 1), rows(TABLE, 2)) == "tta"
    chooser.register(TABLE_1, 0)
    assert order(chooser, rows(A, 1)) == "a"


def test_messages_that_retention_takes_while_the_job_runs_are_not_waited_for() -> None:
    chooser = started(bootstrapping(table=5, table_1=5), a=0, table=0, table_1=0)
    assert isinstance(chooser, BootstrappingChooser)
    chooser.update(row(A))
    chooser.update(row(TABLE, 0))
    assert chosen(chooser) == [row(TABLE, 0)]
    chooser.reached(TABLE_1, 9)
    assert chooser.lagging == {TABLE}
    chooser.update(row(TABLE, 7))  # what was before it is gone
    assert [envelope.ssp for envelope in chosen(chooser)] == [A, TABLE]


def test_gaps_in_offsets_are_no_lag() -> None:
    chooser = started(bootstrapping(table=8), a=0, table=0)
    assert order(chooser, rows(A, 1), [row(TABLE, 2), row(TABLE, 7)]) == "tta"


@pytest.mark.parametrize("kind", [MessageType.END_OF_STREAM, MessageType.DRAIN])
def test_a_marker_without_an_offset_ends_the_lag_so_that_a_drain_completes(kind: MessageType) -> None:
    """In Samza the marker passes, the partition keeps lagging, and the markers of others never come out."""
    chooser = started(bootstrapping(table=9), a=0, table=0)
    markers = [[row(A), control(A, None, kind)], [row(TABLE, 0), control(TABLE, None, kind)]]
    assert order(chooser, *markers) == "ttaa"


def test_a_watermark_without_an_offset_passes_and_says_nothing_about_the_lag() -> None:
    chooser = started(bootstrapping(table=2), a=0, table=0)
    lane = [control(TABLE, None), row(TABLE, 0), control(TABLE, None), row(TABLE, 1)]
    assert order(chooser, rows(A, 1), lane) == "tttta"


def test_of_several_starts_of_one_partition_the_lowest_counts() -> None:
    """As for a broadcast input that several tasks read (SAMZA-1100)."""
    chooser = bootstrapping(table=5)
    for offset in (5, 3, 9):
        chooser.register(TABLE, offset)
    started(chooser, a=0)
    assert chooser.lagging == {TABLE}


def test_once_caught_up_a_bootstrap_stream_is_an_input_like_others() -> None:
    chooser = started(bootstrapping(table=1), a=0, table=0)
    assert order(chooser, rows(A, 3), rows(TABLE, 4)) == "tatatat"


def test_time_aligned_takes_the_earliest_before_1970_too_and_equal_ones_by_ssp() -> None:
    lanes = ([row(B, 0, -5), row(B, 1, 7)], [row(A, 0, -4), row(A, 1, -9), row(A, 2, 7)], [row(C, 0, 0)])
    assert order(TimeAlignedChooser(), *lanes) == "baacab"


def test_control_messages_and_rows_without_a_time_do_not_wait() -> None:
    lanes = ([row(A, 0, 5), control(A, 1), row(A, 2, 9)], [row(B, 0, 6), row(B, 1), row(B, 2, 7)])
    assert order(TimeAlignedChooser(), *lanes) == "aabbba"


@pytest.mark.parametrize(
    ("a", "b", "first"),
    [
        (890, 0, "b"),  # both behind: A lags by 110 (10 more than at the start), B by 1000 + 20
        (900, -10, "b"),  # A as at the start, B behind
        (910, 100, "a"),  # both ahead, by 10 and by 100: the one that is nearer to its alignment
        (990, 50, "b"),
        (900, 0, "a"),  # both as at the start
    ],
)
def test_starting_alignment_takes_who_lags_most_compared_with_the_start(a: int, b: int, first: str) -> None:
    """The document's example: 100 and 1000 messages behind at the start."""
    heads = {A: 1000, B: 1000}
    chooser = StartingAlignmentChooser(heads.__getitem__)
    chooser.register(A, 900)
    chooser.register(B, 0)
    chooser.start()
    if (a, b) == (890, 0):
        heads.update({A: 1000, B: 1020})
    chooser.update(row(B, b))
    chooser.update(row(A, a))
    envelope = chooser.choose()
    assert envelope is not None and envelope.ssp.stream == first


def test_starting_alignment_keeps_the_distance_while_heads_move() -> None:
    heads = {A: 10, B: 100}
    chooser = StartingAlignmentChooser(heads.__getitem__)
    for ssp in (A, B):
        chooser.register(ssp, 0)
    heads[A] = 14  # four were appended to A, so four of A go first
    assert order(chooser, rows(A, 7), rows(B, 3)) == "aaaaababab"


def test_a_function_picks_among_rows_while_control_messages_pass() -> None:
    shown: list[list[int | None]] = []

    def latest(envelopes: list[IncomingEnvelope]) -> IncomingEnvelope:
        shown.append([envelope.offset for envelope in envelopes])
        return max(envelopes, key=lambda envelope: envelope.payload["delay"])

    chooser = FunctionChooser(latest)
    assert order(chooser, [row(A, 1, delay=5), row(A, 2, delay=9)], [control(B, 3), row(B, 4, delay=7)]) == "bbaa"
    assert shown == [[1, 4], [1], [2]]


def test_a_function_may_hold_everything_back() -> None:
    chooser = FunctionChooser(lambda envelopes: envelopes[0] if len(envelopes) > 1 else None)
    assert order(chooser, rows(A, 2), rows(B, 1)) == "ab"
    assert chooser.choose() is None


@pytest.mark.parametrize("wrong", [row(B, 1), row(A, 9), "a", 0])
def test_what_a_function_returns_must_be_outstanding(wrong: object) -> None:
    def mine(envelopes: list[IncomingEnvelope]) -> IncomingEnvelope:
        return wrong  # type: ignore[return-value]

    chooser = FunctionChooser(mine)
    chooser.update(row(A, 4))
    with pytest.raises(InvalidChoice, match=r"mine returned .* not outstanding.* log/a\[0\] at offset 4"):
        chooser.choose()


@pytest.mark.parametrize(("highest_first", "expected"), [(False, "cab"), (True, "bac")])
def test_by_a_key_the_lowest_or_highest_goes_first(highest_first: bool, expected: str) -> None:
    chooser = SortKeyChooser(lambda envelope: envelope.payload["n"], highest_first=highest_first)
    assert order(chooser, [row(A, n=2)], [row(B, n=3)], [row(C, n=1)]) == expected


@pytest.mark.parametrize("highest_first", [False, True])
@pytest.mark.parametrize("nothing", [None, float("nan")])
def test_a_row_without_a_key_goes_at_once_and_equal_keys_in_the_order_they_came(
    nothing: float | None, highest_first: bool
) -> None:
    chooser = SortKeyChooser(lambda envelope: envelope.payload["n"], highest_first=highest_first)
    assert order(chooser, [row(B, n=2)], [row(A, n=2)], [row(C, n=nothing)]) == "cba"


def test_an_envelope_can_not_be_changed_and_says_where_it_is_from() -> None:
    envelope = row(A, 3, 7)
    with pytest.raises(AttributeError):
        envelope.offset = 4  # type: ignore[misc]
    assert repr(envelope) == "<message 3 of log/a[0], event time 7>"
    end = control(A, 4, MessageType.END_OF_STREAM)
    assert (end.is_control, end.is_end, end.is_drain) == (True, True, False)
    assert (envelope.is_control, envelope.key, dict(envelope.payload)) == (False, None, {})
