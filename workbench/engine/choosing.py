"""The chooser at work in a job's source: what each task takes of what waits, in which order, and why.

Without a chooser, priorities or bootstrap streams nothing is chosen: each lane advances by an even share (`planning`), and
a task processes its lanes one after the other.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark import cloudpickle

from workbench.choosers import (
    ChooserDriver,
    ChooserOption,
    ChooserPolicy,
    LaneArrivals,
    LanePosition,
    Runs,
    admitted_lanes,
    encode_runs,
    lane_of_entries,
    plan_runs,
)
from workbench.choosers.policy import OWN
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

    def policy(self, share: int) -> ChooserPolicy:
        """`share` is the size of batches where none was asked for."""
        own = pickle.loads(base64.b64decode(self.own)) if self.own else None
        return ChooserPolicy(self.kind, self.batch_size or self._default_size(share), self.name, own)

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


class Choosing:
    """Plans the order of the batches of one job."""

    def __init__(self, log: StreamLog, inputs: Sequence[InputLanes], settings: ChooserSettings) -> None:
        self._log = log
        self._inputs = inputs
        self._settings = settings
        self._drivers: dict[int, ChooserDriver] = {}
        self._lanes_of_task: dict[int, list[tuple[InputLanes, int]]] = {}
        """Task → its lanes (input, lane) in the order of the inputs: `Run.lane` is an index of this list."""
        for read in inputs:
            for lane, (task, _) in enumerate(read.lanes):
                self._lanes_of_task.setdefault(task, []).append((read, lane))

    def plan(self, before: BatchPlan, positions: Positions, heads: Positions, *, limit: int, draining: bool) -> Chosen:
        """The next batch from `positions` on, at most `limit` source messages over all tasks (see `planning.advance`)."""
        open_heads = heads if draining else self._behind_the_gate(before, positions, heads)
        intermediate = frozenset(read.stream for read in self._inputs if read.intermediate)
        shares = advance(positions, open_heads, intermediate=intermediate, limit=limit, draining=draining)
        ahead = {stream: list(offsets) for stream, offsets in positions.items()}
        order: dict[str, str] = {}
        choosers: dict[str, Any] = {}
        for task, lanes in self._lanes_of_task.items():
            runs, state = self._plan_task(task, lanes, before, positions, open_heads, shares)
            if not len(runs):
                continue
            order[str(task)] = encode_runs(runs)
            if state:
                choosers[str(task)] = state
            for (read, lane), count in zip(lanes, runs.taken(len(lanes)), strict=True):
                ahead[read.stream][lane] += count
        return Chosen(ahead, order, choosers)

    def _behind_the_gate(self, before: BatchPlan, positions: Positions, heads: Positions) -> Positions:
        """The heads, with the sources that have to wait for a bootstrap stream held at where they are."""
        bootstrap = [read for read in self._inputs if read.bootstrap]
        if not bootstrap:
            return heads
        oldest = {read.stream: self._log.stream(read.stream).oldest() for read in bootstrap}
        lanes = [
            LanePosition(
                SSP(LOG_SYSTEM, read.stream, lane),
                positions[read.stream][lane],
                bootstrap=True,
                oldest=oldest[read.stream][partition],
                head_at_start=before.heads_at_start[read.stream][lane],
            )
            for read in bootstrap
            for lane, (_, partition) in enumerate(read.lanes)
        ]
        if admitted_lanes(lanes).all_admitted:
            return heads
        return {
            read.stream: heads[read.stream] if read.intermediate or read.bootstrap else positions[read.stream]
            for read in self._inputs
        }

    def _plan_task(
        self,
        task: int,
        lanes: list[tuple[InputLanes, int]],
        before: BatchPlan,
        positions: Positions,
        heads: Positions,
        shares: Positions,
    ) -> tuple[Runs, dict[str, Any]]:
        """Intermediate streams first, as they have the highest priority and an allowance of their own."""
        parts: list[Runs] = []
        states: dict[str, Any] = {}
        for inner in (True, False):
            indexes = [index for index, (read, _) in enumerate(lanes) if read.intermediate is inner]
            allowance = sum(
                shares[lanes[index][0].stream][lanes[index][1]] - positions[lanes[index][0].stream][lanes[index][1]]
                for index in indexes
            )
            if not allowance:
                continue
            waiting = [index for index in indexes if self._waits(lanes[index], positions, heads)]
            policy = self._settings.policy(allowance // len(waiting))
            arrivals = [self._arrivals(lanes[index], before, positions, heads, allowance) for index in indexes]
            if policy.kind == OWN:
                driver = self._drivers.setdefault(2 * task + inner, ChooserDriver(policy))
                choice = driver.plan(arrivals, allowance)
            else:
                key = "inner" if inner else "outer"
                kept = before.choosers.get(str(task), {}).get(key) if self._settings.batch_size else None
                choice = plan_runs(policy, arrivals, allowance, kept)
                if choice.state and self._settings.batch_size:
                    states[key] = choice.state
            parts.append(choice.runs.on_lanes(indexes))
        return Runs.joined(parts), states

    def _waits(self, of: tuple[InputLanes, int], positions: Positions, heads: Positions) -> bool:
        read, lane = of
        return heads[read.stream][lane] > positions[read.stream][lane]

    def _arrivals(
        self, of: tuple[InputLanes, int], before: BatchPlan, positions: Positions, heads: Positions, allowance: int
    ) -> LaneArrivals:
        read, lane = of
        partition = read.lanes[lane][1]
        ssp = SSP(LOG_SYSTEM, read.stream, partition)
        first, head = positions[read.stream][lane], heads[read.stream][lane]
        options: dict[str, Any] = {
            "priority": read.priority,
            "started_at": before.started_at[read.stream][lane],
            "head_at_start": before.heads_at_start[read.stream][lane],
            "head": head,
        }
        if self._settings.kind == OWN:
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
    """The settings to choose by, or None where there is nothing to choose: no chooser, no priorities, no bootstrap."""
    if settings is None and any(read.priority or read.bootstrap for read in inputs if not read.intermediate):
        return ChooserSettings.from_options(None, None)
    return settings
