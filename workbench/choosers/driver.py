"""Asks a chooser message by message: for choosers of a user's own, and as the reference for the order of the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from workbench.choosers.base import MakeChooser, MessageChooser
from workbench.choosers.bootstrapping import BootstrappingChooser
from workbench.choosers.composition import compose
from workbench.choosers.envelope import IncomingEnvelope
from workbench.choosers.lanes import LaneArrivals, checked_lanes
from workbench.choosers.policy import STARTING_ALIGNMENT, TIME_ALIGNED, ChooserPolicy
from workbench.choosers.reasons import with_reasons
from workbench.choosers.round_robin import RoundRobinChooser
from workbench.choosers.runs import BatchChoice
from workbench.choosers.starting_alignment import StartingAlignmentChooser
from workbench.choosers.time_aligned import TimeAlignedChooser
from workbench.errors import ChooserFailed, InvalidChoice, TidemarkError
from workbench.names import SSP


class ChooserDriver:
    """The chooser of one task, composed as its policy and lanes say, and kept from batch to batch.

    Its first batch registers the SSPs and starts it. If positions go back (a batch was planned and never ran) it is made
    anew. `close` stops it.
    """

    def __init__(self, policy: ChooserPolicy) -> None:
        self._policy = policy
        self._forget()

    def _forget(self) -> None:
        self._chooser: MessageChooser | None = None
        self._lanes: dict[SSP, LaneArrivals] = {}
        """As they were given last."""
        self._outstanding: dict[SSP, IncomingEnvelope] = {}
        self._aside: dict[SSP, IncomingEnvelope] = {}
        """Chosen while its SSP was not among the lanes; given to the chooser again when it is."""
        self._reached: dict[SSP, int] = {}
        """The offset after the last message that was chosen."""

    def plan(self, lanes: Sequence[LaneArrivals], limit: int) -> BatchChoice:
        """As `plan_runs`, but the state is in the chooser.

        Ends early when the chooser gives nothing. Raises `InvalidChoice` if it breaks its contract, `ChooserFailed` if
        it raises an exception, `InvalidChooser` as `plan_runs`. After one of the first two it is made anew.
        """
        checked_lanes(lanes, limit)
        if any(lane.start_offset < self._reached.get(lane.ssp, lane.start_offset) for lane in lanes):
            self.close()
        order: list[int] = []
        try:
            bootstrapped = self._choose(self._prepared(lanes), lanes, limit, order)
        except Exception as error:
            there = [(ssp, envelope.offset) for ssp, envelope in self._outstanding.items()]
            self._forget()
            if isinstance(error, TidemarkError):
                raise
            raise ChooserFailed.raised(self._policy.name or self._policy.kind, error, len(order), there) from error
        chosen = np.array(order, dtype=np.int64)
        pieces = [(chosen, np.ones_like(chosen))] if order else []
        return BatchChoice(with_reasons(pieces, lanes, self._policy.word, bootstrapped), {})

    def close(self) -> None:
        """Stop the chooser. May be called again."""
        if self._chooser is not None:
            self._chooser.stop()
        self._forget()

    def _prepared(self, lanes: Sequence[LaneArrivals]) -> MessageChooser:
        new = [lane for lane in lanes if lane.ssp not in self._lanes]
        first = self._chooser is None
        self._lanes.update((lane.ssp, lane) for lane in lanes)
        chooser = self._chooser = self._chooser or self._composed(lanes)
        for lane in new:
            chooser.register(lane.ssp, lane.first_offset)
        if first:
            chooser.start()
        if isinstance(chooser, BootstrappingChooser):
            there = {lane.ssp: lane for lane in lanes}
            for ssp in chooser.lagging:
                if ssp not in there or not there[ssp].missing:
                    chooser.reached(ssp, self._lanes[ssp].starting_head)
        return chooser

    def _composed(self, lanes: Sequence[LaneArrivals]) -> MessageChooser:
        heads = {lane.ssp: lane.starting_head for lane in lanes if lane.bootstrap}
        return compose(
            self._tie_breaker(),
            batch_size=self._policy.batch_size,
            priority_of=lambda ssp: self._lanes[ssp].priority,
            bootstrap_heads=heads,
        )

    def _tie_breaker(self) -> MakeChooser:
        if self._policy.own is not None:
            return self._policy.own
        if self._policy.kind == TIME_ALIGNED:
            return TimeAlignedChooser
        if self._policy.kind == STARTING_ALIGNMENT:
            return lambda: StartingAlignmentChooser(
                lambda ssp: self._lanes[ssp].current_head, lambda ssp: self._lanes[ssp].starting_head
            )
        return RoundRobinChooser

    def _choose(self, chooser: MessageChooser, lanes: Sequence[LaneArrivals], limit: int, order: list[int]) -> int:
        """Adds the lanes of the messages chosen to `order`; returns how many went while others were kept back."""
        waiting = self._fed(chooser, lanes, limit)
        bootstrapping = chooser if isinstance(chooser, BootstrappingChooser) and chooser.lagging else None
        bootstrapped = 0
        outstanding = self._outstanding
        while len(order) < limit:
            envelope = chooser.choose()
            if envelope is None:
                break
            if not isinstance(envelope, IncomingEnvelope) or outstanding.get(envelope.ssp) is not envelope:
                there = [(ssp, each.offset) for ssp, each in outstanding.items()]
                raise InvalidChoice.not_outstanding(self._policy.name or self._policy.kind, envelope, there)
            ssp, offset = envelope.ssp, envelope.offset
            if ssp not in waiting:
                self._aside[ssp] = outstanding.pop(ssp)
                continue
            lane, start, following = waiting[ssp]
            after = next(following, None)
            if after is None:
                del outstanding[ssp]
            else:
                outstanding[ssp] = after
                chooser.update(after)
            if offset is not None and offset < start:
                continue  # retention took it after it was shown to the chooser
            order.append(lane)
            if bootstrapping is not None:
                bootstrapped = len(order)
                if not bootstrapping.lagging:
                    bootstrapping = None
        for lane_arrivals, count in zip(lanes, np.bincount(order, minlength=len(lanes)).tolist(), strict=True):
            self._reached[lane_arrivals.ssp] = lane_arrivals.start_offset + count
        return bootstrapped

    def _fed(
        self, chooser: MessageChooser, lanes: Sequence[LaneArrivals], limit: int
    ) -> dict[SSP, tuple[int, int, Iterator[IncomingEnvelope]]]:
        """Give the chooser one message of each lane; returns lane, first offset and further messages of each SSP."""
        waiting = {}
        for index, lane in enumerate(lanes):
            shown = self._outstanding.get(lane.ssp) or self._aside.get(lane.ssp)
            first = 0 if shown is None or shown.offset is None else max(0, shown.offset - lane.start_offset + 1)
            following = lane.envelopes(limit + 1, first)
            waiting[lane.ssp] = index, lane.start_offset, following
            if lane.ssp in self._outstanding:
                continue
            envelope = self._aside.pop(lane.ssp, None) or next(following, None)
            if envelope is not None:
                self._outstanding[lane.ssp] = envelope
                chooser.update(envelope)
        return waiting


def slow_runs(policy: ChooserPolicy, batches: Iterable[tuple[Sequence[LaneArrivals], int]]) -> Iterator[BatchChoice]:
    """The reference for `plan_runs`: the choosers themselves, asked message by message, over batches of (lanes, limit).

    Lazy, so that the lanes of a batch may depend on what the one before took.
    """
    driver = ChooserDriver(policy)
    for lanes, limit in batches:
        yield driver.plan(lanes, limit)
    driver.close()
