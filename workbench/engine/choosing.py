"""The chooser at work in a job's source: what each task takes of what waits, in which order, and why.

Without a chooser, priorities or bootstrap streams nothing is chosen: each lane advances by an even share (`planning`), and
a task processes its lanes one after the other.
"""

from __future__ import annotations

import base64
import pickle
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from pyspark import cloudpickle

from workbench.choosers import (
    HIGHEST_PRIORITY,
    ChooserDriver,
    ChooserOption,
    ChooserPolicy,
    LaneArrivals,
    LanePosition,
    MakeChooser,
    Runs,
    admitted_lanes,
    encode_runs,
    lane_of_entries,
    plan_runs,
)
from workbench.choosers.policy import OWN, TIME_ALIGNED
from workbench.engine.batch_plan import BatchPlan, Positions
from workbench.engine.lanes import InputLanes
from workbench.engine.planning import advance
from workbench.messages import ControlRun
from workbench.names import LOG_SYSTEM, SSP
from workbench.systems.log import StreamLog
from workbench.systems.log.segments import read_ref
from workbench.times import NO_TIME, event_times

_TURNS = 100
"""So many turns a lane has in a batch at most, where lanes are aligned by how far they have come."""


@dataclass(frozen=True)
class ChooserSettings:
    """`chooser=` and `batch_size=` of a deployment, as JSON can hold them. `own` is a pickled maker of choosers."""

    kind: str
    name: str
    batch_size: int | None
    """None: long turns where only their order matters, single messages where that decides (time, a chooser of one's own)."""
    own: str = ""

    @classmethod
    def from_options(cls, chooser: ChooserPolicy | ChooserOption, batch_size: int | None) -> ChooserSettings:
        """Raises `InvalidChooser`."""
        policy = ChooserPolicy.from_option(chooser, 1 if batch_size is None else batch_size)
        own = "" if policy.own is None else base64.b64encode(cloudpickle.dumps(policy.own)).decode()  # type: ignore[no-untyped-call]
        size = policy.batch_size if isinstance(chooser, ChooserPolicy) else batch_size
        return cls(policy.kind, policy.name, size, own)

    @cached_property
    def _own(self) -> MakeChooser | None:
        made: MakeChooser | None = pickle.loads(base64.b64decode(self.own)) if self.own else None
        return made

    def policy(self, share: int) -> ChooserPolicy:
        """`share` is the size of batches where none was asked for."""
        return ChooserPolicy(self.kind, self.batch_size or self._default_size(share), self.name, self._own)

    def _default_size(self, share: int) -> int:
        """Each run costs a task about a millisecond. So turns are as long as can be, unless the order is the point."""
        match self.kind:
            case "round_robin":
                return max(1, share)
            case "starting_alignment":
                return max(1, share // _TURNS)
        return 1


@dataclass(frozen=True)
class Chosen:
    """Where a batch ends, and, task by task, the order (`choosers.encode_runs`) and the state of the chooser."""

    positions: Positions
    order: dict[str, str]
    choosers: dict[str, Any]


@dataclass(frozen=True)
class _Batch:
    """What is known of a batch that is to be planned."""

    before: BatchPlan
    positions: Positions
    heads: Positions
    """How far it may read: behind the gate of the bootstrap streams, where that is closed."""
    shares: Positions
    """How far it would come without a chooser. A task takes as many messages of its lanes, but others."""
    bootstrapping: bool
    draining: bool

    def waiting(self, read: InputLanes, lane: int) -> int:
        return self.heads[read.stream][lane] - self.positions[read.stream][lane]

    def share(self, read: InputLanes, lane: int) -> int:
        return self.shares[read.stream][lane] - self.positions[read.stream][lane]


class Choosing:
    """Plans the order of the batches of one job."""

    def __init__(self, log: StreamLog, inputs: Sequence[InputLanes], settings: ChooserSettings) -> None:
        self._log = log
        self._inputs = inputs
        self._settings = settings
        self._drivers: dict[tuple[int, str], ChooserDriver] = {}
        self._lanes_of_task: dict[int, list[tuple[InputLanes, int]]] = {}
        """Task → its lanes (input, lane) in the order of the inputs: `Run.lane` is an index of this list."""
        for read in inputs:
            for lane, (task, _) in enumerate(read.lanes):
                self._lanes_of_task.setdefault(task, []).append((read, lane))

    def plan(self, before: BatchPlan, positions: Positions, heads: Positions, *, limit: int, draining: bool) -> Chosen:
        """The next batch from `positions` on, at most `limit` source messages over all tasks (see `planning.advance`).

        Raises as the chooser does, if it is a user's own, and `ChooserFailed` if that raises something else.
        """
        bootstrapping = not draining and self._bootstraps(before, positions)
        open_heads = heads if not bootstrapping else self._behind_the_gate(positions, heads)
        intermediate = frozenset(read.stream for read in self._inputs if read.intermediate)
        shares = advance(positions, open_heads, intermediate=intermediate, limit=limit, draining=draining)
        batch = _Batch(before, positions, open_heads, shares, bootstrapping, draining)
        ahead = {stream: list(offsets) for stream, offsets in positions.items()}
        order: dict[str, str] = {}
        choosers: dict[str, Any] = {}
        for task, lanes in self._lanes_of_task.items():
            runs, state = self._plan_task(task, lanes, batch)
            if state:
                choosers[str(task)] = state
            if not len(runs):
                continue
            order[str(task)] = encode_runs(runs)
            for (read, lane), count in zip(lanes, runs.taken(len(lanes)), strict=True):
                ahead[read.stream][lane] += count
        return Chosen(ahead, order, choosers)

    def _bootstraps(self, before: BatchPlan, positions: Positions) -> bool:
        """Whether other sources wait for a bootstrap stream: in no task are they read before it has been, in every task."""
        lanes = []
        for read in self._inputs:
            oldest = self._log.stream(read.stream).oldest() if read.bootstrap else []
            for lane, (_, partition) in enumerate(read.lanes if read.bootstrap else []):
                ssp = SSP(LOG_SYSTEM, read.stream, lane)
                head = before.heads_at_start[read.stream][lane]
                position = positions[read.stream][lane]
                lanes.append(LanePosition(ssp, position, True, oldest[partition], head))
        return not admitted_lanes(lanes).all_admitted

    def _behind_the_gate(self, positions: Positions, heads: Positions) -> Positions:
        """The heads, with the sources that have to wait for a bootstrap stream held at where they are."""
        return {
            read.stream: heads[read.stream] if read.intermediate or read.bootstrap else positions[read.stream]
            for read in self._inputs
        }

    def _plan_task(self, task: int, lanes: list[tuple[InputLanes, int]], batch: _Batch) -> tuple[Runs, dict[str, Any]]:
        """Intermediate streams first, as they have the highest priority and an allowance of their own."""
        parts: list[Runs] = []
        states = dict(batch.before.choosers.get(str(task), {}))
        for key, inner in (("inner", True), ("outer", False)):
            indexes = [index for index, (read, _) in enumerate(lanes) if read.intermediate is inner]
            allowance = sum(batch.share(*lanes[index]) for index in indexes)
            if not allowance:
                continue
            waiting = sum(batch.waiting(*lanes[index]) > 0 for index in indexes)
            policy = self._policy(allowance // waiting, inner=inner, lanes=len(indexes), draining=batch.draining)
            arrivals = [self._arrivals(lanes[index], batch, allowance, policy) for index in indexes]
            if policy.kind == OWN:
                driver = self._drivers.setdefault((task, key), ChooserDriver(policy))
                choice = driver.plan(arrivals, allowance)
            else:
                choice = plan_runs(policy, arrivals, allowance, states.pop(key, None))
                if kept := self._kept(choice.state):
                    states[key] = kept
            parts.append(choice.runs.on_lanes(indexes))
        return Runs.joined(parts), states

    def _policy(self, share: int, *, inner: bool, lanes: int, draining: bool) -> ChooserPolicy:
        """A user's own chooser is not asked about the one intermediate stream of a task, and no more once the job drains:
        what is in flight has to get through, whatever it would wait for."""
        policy = self._settings.policy(share)
        if policy.kind == OWN and inner and (lanes == 1 or draining):
            return ChooserPolicy(batch_size=max(1, share))
        return policy

    def _kept(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Whose turn is next, so that small batches starve nobody; and turns that are begun, if their size was asked for,
        as otherwise it is another in each batch."""
        return {key: value for key, value in state.items() if key != "begun" or self._settings.batch_size}

    def _arrivals(
        self, of: tuple[InputLanes, int], batch: _Batch, allowance: int, policy: ChooserPolicy
    ) -> LaneArrivals:
        read, lane = of
        partition = read.lanes[lane][1]
        ssp = SSP(LOG_SYSTEM, read.stream, partition)
        first, head = batch.positions[read.stream][lane], batch.heads[read.stream][lane]
        options: dict[str, Any] = {
            "priority": HIGHEST_PRIORITY if read.bootstrap and not read.priority else read.priority,
            "bootstrap": read.bootstrap and batch.bootstrapping,
            "started_at": batch.before.started_at[read.stream][lane],
            "head_at_start": batch.before.heads_at_start[read.stream][lane],
            "head": head,
        }
        if policy.kind == OWN:
            last = min(head, first + allowance + 1)
            entries = self._entries(read.stream, partition, first, last) if last > first else []
            return lane_of_entries(ssp, first, entries, time_column=read.event_time, **options)
        return LaneArrivals(
            ssp,
            head - first,
            first,
            event_times=lambda count: self._times(read, partition, first, count),
            **options,
        )

    def _entries(self, stream: str, partition: int, first: int, last: int) -> list[Any]:
        return [
            ControlRun.from_json(ref["ctl"]) if "ctl" in ref else read_ref(self._log.segments_directory, ref)
            for ref in self._log.resolve(stream, partition, first, last)
        ]

    def _times(self, read: InputLanes, partition: int, first: int, count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Event times of the first `count` messages; those of control messages and of rows without one are `NO_TIME`."""
        found = [np.empty(0, np.int64)]
        for entry in self._entries(read.stream, partition, first, first + count):
            there = not isinstance(entry, ControlRun) and read.event_time in entry.column_names
            assert read.event_time is not None or not there
            found.append(
                event_times(entry.column(read.event_time), str(read.event_time))
                if there
                else np.full(len(entry), NO_TIME)
            )
        return np.concatenate(found)


def settings_for(settings: ChooserSettings | None, inputs: Sequence[InputLanes]) -> ChooserSettings | None:
    """The settings to choose by, or None where there is nothing to choose: no chooser, no priorities, no bootstrap.

    Warns of sources without event times where these decide: beside others of the same priority.
    """
    sources = [read for read in inputs if not read.intermediate]
    if settings is None and any(read.priority or read.bootstrap for read in sources):
        return ChooserSettings.from_options(None, None)
    tiers = Counter((read.priority, read.bootstrap) for read in sources)
    timeless = [read.stream for read in sources if read.event_time is None and tiers[read.priority, read.bootstrap] > 1]
    if settings is not None and settings.kind == TIME_ALIGNED and timeless:
        named = ", ".join(map(repr, timeless))
        warnings.warn(
            f"chooser='time_aligned' orders inputs by event time, but none is named for {named}: messages without one go"
            " first. Say which column it is: app.input(…, event_time=…).",
            stacklevel=5,
        )
    return settings
