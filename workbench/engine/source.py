"""JobSource: the streaming source of a job. Its offsets are the plans; its rows are the tasks' work orders."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.datasource_internal import SimpleInputPartition, _SimpleStreamReaderWrapper
from pyspark.sql.types import StructType

from workbench.drain import DrainMonitor
from workbench.engine.batch_plan import BatchPlan, DrainOrder, Positions, Restart
from workbench.engine.choosing import ChooserSettings, Choosing
from workbench.engine.failures import TaskFailed, of_platform
from workbench.engine.hold import is_held, lift
from workbench.engine.lanes import InputLanes
from workbench.engine.other_jobs import OtherJob, from_upstream, has_ended, said_before
from workbench.engine.planning import advance
from workbench.engine.work import Step, WorkOrder
from workbench.errors import OffsetOutOfRange
from workbench.messages import MAX_TIMESTAMP, ControlRun, DrainMessage, EndOfStreamMessage, WatermarkMessage
from workbench.systems.log import StreamLog
from workbench.systems.log.index import Ref
from workbench.telemetry.recorder import Recorder


class JobSource(DataSource):
    """`format("tidemark-job")`. Its one option `job` is a `SourceSettings`."""

    @classmethod
    def name(cls) -> str:
        return "tidemark-job"

    def schema(self) -> str:
        return "slot int, work string"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return JobReader(SourceSettings.from_json(self.options["job"]))


@dataclass(frozen=True)
class SourceSettings:
    """What `JobSource` is told by the deployment."""

    job: str
    run_id: str
    log: str
    checkpoint_id: str
    epoch: int
    """Of the deployment: see `StreamLog.raise_epoch`."""
    slots: list[int]
    """Per task the value of `slot` that makes Spark put it into its container."""
    inputs: list[InputLanes]
    """In the order in which a task processes them."""
    initial: BatchPlan
    """Where a new checkpoint begins."""
    limit: int
    restart: Restart | None = None
    writers: dict[str, str] = field(default_factory=dict)
    """Streams of other jobs of the same application → the job."""
    chooser: ChooserSettings | None = None
    """None: nothing is to be chosen."""
    described: list[str] = field(default_factory=list)
    """Streams whose columns tasks are told (see `graph.joins.described_streams`)."""

    def options(self) -> dict[str, str]:
        return {"job": json.dumps({**asdict(self), "initial": self.initial.to_json()})}

    @classmethod
    def from_json(cls, text: str) -> SourceSettings:
        saved = json.loads(text)
        inputs = [InputLanes.from_json(read) for read in saved["inputs"]]
        chooser = None if saved["chooser"] is None else ChooserSettings(**saved["chooser"])
        restart = None if saved["restart"] is None else Restart.from_json(saved["restart"])
        return cls(
            **{
                **saved,
                "inputs": inputs,
                "initial": BatchPlan.from_json(saved["initial"]),
                "restart": restart,
                "chooser": chooser,
            }
        )


class JobReader(_SimpleStreamReaderWrapper):
    """Plans on the driver and hands the work orders to the JVM there, so that executors need no Python to read them.

    PySpark does this for "simple" readers, but on a replay it would have an executor make the rows again, and executors
    do not open the log's index. So this is one, with the rows always made on the driver from the two offsets.
    """

    def __init__(self, settings: SourceSettings) -> None:
        super().__init__(simple_reader=None)  # type: ignore[arg-type]
        self._settings = settings
        self._log = StreamLog(settings.log, create=False)
        self._monitor = DrainMonitor(self._log.metadata, settings.run_id)
        self._choosing = None if settings.chooser is None else Choosing(self._log, settings.inputs, settings.chooser)

    def initialOffset(self) -> dict[str, Any]:
        return self._settings.initial.to_json()

    def latestOffset(self, start: dict[str, Any], limit: object) -> dict[str, Any]:
        try:
            before = BatchPlan.from_json(start)
            plan = self._next_plan(before)
        except Exception as error:
            raise TaskFailed(of_platform(error)) from error
        return start if plan is before else plan.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [SimpleInputPartition(start, end)]

    def getCache(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
        try:
            return iter(self.work(start, end))
        except Exception as error:
            raise TaskFailed(of_platform(error)) from error

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: what was read is known from the offsets that Spark logs."""

    # Planning.

    def _next_plan(self, before: BatchPlan) -> BatchPlan:
        """The plan of the next batch, or `before` itself if there is nothing to do."""
        # First the heads: who has sent drain markers on has seen a notification that is then seen here, too.
        heads = self._heads()
        drain = before.drain or self._drain_order()
        if is_held(
            self._log.metadata, self._settings.job, self._settings.run_id, before.batch, draining=drain is not None
        ):
            return before
        restart = self._settings.restart
        if restart is not None and restart.token != before.restarted:
            anew = restart.generation != before.generation
            return self._restarted(before, restart, draining=(self._drain_order() if anew else drain) is not None)
        cut = before.cut if drain is None else self._cut(before.cut, drain, heads)
        plan = self._admitted(before, before.positions, _up_to(cut, heads), draining=drain is not None)
        if drain is not None and before.drain is None:
            lift(self._log.metadata, self._settings.job)
            upstream = {stream: self._writer_of(stream).generation for stream in self._settings.writers}
            return replace(plan, drain=drain, cut=cut, upstream=upstream)
        return before if plan.positions == before.positions and cut == before.cut else replace(plan, cut=cut)

    def _cut(self, cut: Positions, drain: DrainOrder, heads: Positions) -> Positions:
        """Where streams of other jobs are cut off, because no drain marker for this drain will come from there."""
        return cut | {
            stream: heads[stream]
            for stream in self._settings.writers
            if stream not in cut and not self._writer_of(stream).sends_drain_of(drain.run_id)
        }

    def _writer_of(self, stream: str) -> OtherJob:
        return OtherJob.find(self._log, self._settings.writers[stream])

    def _drain_order(self) -> DrainOrder | None:
        notification = self._monitor.poll()
        if notification is None:
            return None
        return DrainOrder(
            notification.run_id, str(notification.uuid), notification.requested, time.time_ns() // 1_000_000
        )

    def _restarted(self, before: BatchPlan, restart: Restart, *, draining: bool) -> BatchPlan:
        """The first batch of a deployment that begins anew, or elsewhere: every task takes part in it.

        In a new generation it hears again which of its sources have ended.
        """
        for name in restart.renew:
            self._log.renew(name, self._log.stream(name).partitions)
        heads = self._heads()
        intermediate = [read.stream for read in self._settings.inputs if read.intermediate]
        own = [read.stream for read in self._settings.inputs if read.intermediate and not read.external]
        began = {stream: list(positions) for stream, positions in before.positions.items()}
        began |= {name: list(heads[name]) for name in restart.renew if name in began}
        if restart.generation != before.generation:
            began |= self._not_renewed(began)
        if restart.reset:
            began |= {stream: list(heads[stream]) for stream in own}
        for stream, moves in restart.moves.items():
            for lane, offset in moves.items():
                began[stream][lane] = offset
        plan = replace(
            self._admitted(before, began, heads, draining=draining),
            began={stream: lanes for stream, lanes in began.items() if lanes != before.positions[stream]},
            restarted=restart.token,
            startpoints=restart.startpoints,
        )
        skipped = self._skipped_ends(restart.moves, heads)
        if restart.generation == before.generation:
            return replace(plan, ended=skipped)
        recorder = Recorder(self._log, self._settings.job, self._settings.checkpoint_id)
        bookkeeping = recorder.bookkeeping()
        return replace(
            plan,
            generation=restart.generation,
            reset=restart.generation if restart.reset else before.reset,
            drain=None,
            cut={},
            upstream={},
            ended=_both(self._ended_lanes(restart, before.positions, bookkeeping), skipped),
            said=said_lanes(self._settings.inputs, bookkeeping, restart) | restart.said,
            barrier={stream: heads[stream] for stream in intermediate},
        )

    def _not_renewed(self, positions: Positions) -> Positions:
        """Positions in streams of other jobs: those that were made new, when all had been read, begin where they do."""
        found: Positions = {}
        for read in self._settings.inputs:
            if read.external:
                oldest = self._log.stream(read.stream).oldest()
                found[read.stream] = [
                    max(offset, oldest[partition])
                    for offset, (_, partition) in zip(positions[read.stream], read.lanes, strict=True)
                ]
        return found

    def _ended_lanes(
        self, restart: Restart, positions: Positions, bookkeeping: dict[int, dict[str, Any]]
    ) -> dict[str, list[int]]:
        """Lanes whose end was heard and is not read again. Asked when all batches before are committed."""
        back = {
            stream: {lane for lane, offset in moves.items() if offset < positions[stream][lane]}
            for stream, moves in restart.moves.items()
        }
        carried = {
            stream: [lane for lane in lanes if lane not in back.get(stream, ())]
            for stream, lanes in restart.ended.items()
        }
        return _both(ended_lanes(self._settings.inputs, bookkeeping, back, restart.holds), carried)

    def _skipped_ends(self, moves: Mapping[str, Mapping[int, int]], heads: Positions) -> dict[str, list[int]]:
        """Source lanes that a startpoint has moved behind the end of their partition: it is said, as nobody reads it."""
        found: dict[str, list[int]] = {}
        for read in self._settings.inputs:
            at_head = [lane for lane, to in moves.get(read.stream, {}).items() if to == heads[read.stream][lane]]
            if at_head and not read.intermediate:
                ended = [lane for lane in at_head if self._ends_directly(read.stream, read.lanes[lane][1])]
                found[read.stream] = ended
        return found

    def _ends_directly(self, stream: str, partition: int) -> bool:
        """Whether the last message of a partition is an end for everybody, and not that of one of several writers."""
        oldest, head = self._log.stream(stream).oldest()[partition], self._log.stream(stream).heads()[partition]
        last = self._log.resolve(stream, partition, head - 1, head) if head > oldest else []
        if not last or "ctl" not in last[0]:
            return False
        message = ControlRun.from_json(last[0]["ctl"])[-1]
        return isinstance(message, EndOfStreamMessage) and message.task_name is None

    def _admitted(
        self, before: BatchPlan, positions: Positions, heads: Positions, *, draining: bool = False
    ) -> BatchPlan:
        """The plan of a batch that reads from `positions` on: how far each lane comes, and in which order.

        Raises `OffsetOutOfRange` where retention was faster than the job: a plan that can not be carried out is not logged.
        """
        self._check_kept(positions, heads)
        limit = self._settings.limit
        if self._choosing is None:
            intermediate = frozenset(read.stream for read in self._settings.inputs if read.intermediate)
            return before.then(advance(positions, heads, intermediate=intermediate, limit=limit, draining=draining))
        if before.epoch != self._settings.epoch:
            before = replace(
                before, epoch=self._settings.epoch, heads_at_start=heads, started_at=positions, choosers={}
            )
        chosen = self._choosing.plan(before, positions, heads, limit=limit, draining=draining)
        return before.then(chosen.positions, order=chosen.order, choosers=chosen.choosers)

    def _check_kept(self, positions: Positions, heads: Positions) -> None:
        for read in self._settings.inputs:
            if positions[read.stream] == heads[read.stream]:
                continue
            oldest = self._log.stream(read.stream).oldest()
            for lane, (_, partition) in enumerate(read.lanes):
                first, head = positions[read.stream][lane], heads[read.stream][lane]
                if first < min(oldest[partition], head):
                    raise OffsetOutOfRange.fallen_behind(read.stream, partition, first, oldest[partition], head)

    def _heads(self) -> Positions:
        """Per stream and lane the head of the partition that is read."""
        found: Positions = {}
        for read in self._settings.inputs:
            heads = self._log.stream(read.stream).heads()
            found[read.stream] = [heads[partition] for _, partition in read.lanes]
        return found

    # Work orders.

    def work(self, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, str]]:
        """One (slot, work order) for each task that has something to do between two offsets."""
        before, plan = BatchPlan.from_json(start), BatchPlan.from_json(end)
        slots = self._settings.slots
        drains = plan.drain is not None and before.drain is None
        everybody = drains or plan.restarted != before.restarted
        steps: dict[int, list[Step]] = {task: [] for task in range(len(slots))} if everybody else {}
        for read in self._settings.inputs:
            first, last = plan.first(read.stream, before), plan.positions[read.stream]
            for lane, (task, partition) in enumerate(read.lanes):
                refs = self._refs(read, partition, lane, first[lane], last[lane], plan)
                if str(lane) in plan.said.get(read.stream, {}):
                    refs.append({"ctl": plan.said[read.stream][str(lane)], "o": last[lane]})
                if lane in plan.ended.get(read.stream, ()):
                    refs.append(_control(last[lane], EndOfStreamMessage(read.stream)))
                if (drains and not read.intermediate) or _reaches_cut(read.stream, lane, before, plan):
                    assert plan.drain is not None
                    message = DrainMessage(plan.drain.run_id)
                    refs.append(_control(last[lane], WatermarkMessage(MAX_TIMESTAMP), message))
                if refs or str(task) in plan.order:
                    steps.setdefault(task, []).append(Step(read.stream, partition, refs, first[lane]))
        schemas = self._schemas()
        return [
            (
                slots[task],
                WorkOrder(
                    task,
                    before.batch,
                    steps[task],
                    plan.generation,
                    plan.reset,
                    plan.restarted,
                    plan.drain,
                    plan.order.get(str(task), ""),
                    schemas,
                ).to_json(),
            )
            for task in sorted(steps)
        ]

    def _schemas(self) -> dict[str, str]:
        """Of the streams that are to be described and have rows yet."""
        known = {stream: self._log.stream(stream).schema for stream in self._settings.described}
        return {
            stream: base64.b64encode(schema.serialize()).decode()
            for stream, schema in known.items()
            if schema is not None
        }

    def _refs(self, read: InputLanes, partition: int, lane: int, first: int, last: int, plan: BatchPlan) -> list[Ref]:
        """What lies between two offsets, without control messages of an earlier generation."""
        if last <= first:
            return []
        refs = self._log.resolve(read.stream, partition, first, last)
        barrier = plan.barrier[read.stream][lane] if read.stream in plan.barrier else 0
        if not read.external:
            return [ref for ref in refs if "ctl" not in ref or ref["o"] >= barrier]
        # What other jobs say holds. Only what this job's tasks told each other is of its last generation.
        return [
            {**ref, "ctl": from_upstream(ref).to_json()} if "ctl" in ref and ref["o"] < barrier else ref for ref in refs
        ]


def ended_lanes(
    inputs: Sequence[InputLanes],
    bookkeeping: dict[int, dict[str, Any]],
    back: Mapping[str, Collection[int]],
    holds: Collection[str] = (),
) -> dict[str, list[int]]:
    """Stream → lanes that have ended, by the tasks' bookkeeping, and are not moved back: of sources, and of those streams
    of other jobs where that holds on."""
    found: dict[str, list[int]] = {}
    for read in inputs:
        if read.intermediate and read.stream not in holds:
            continue
        for lane, (task, _) in enumerate(read.lanes):
            kept = bookkeeping.get(task, {}).get(read.stream, {})
            if has_ended(kept) and lane not in back.get(read.stream, ()):
                found.setdefault(read.stream, []).append(lane)
    return found


def said_lanes(
    inputs: Sequence[InputLanes], bookkeeping: dict[int, dict[str, Any]], restart: Restart
) -> dict[str, dict[str, Any]]:
    """Stream of another job → lane that is not moved and has not ended → what upstream tasks have said, and holds on."""
    found: dict[str, dict[str, Any]] = {}
    for read in inputs:
        if read.stream not in restart.holds:
            continue
        for lane, (task, _) in enumerate(read.lanes):
            kept = bookkeeping.get(task, {}).get(read.stream)
            run = None if kept is None or has_ended(kept) else said_before(kept)
            if run is not None and lane not in restart.moves.get(read.stream, {}):
                found.setdefault(read.stream, {})[str(lane)] = run.to_json()
    return found


def _up_to(cut: Positions, heads: Positions) -> Positions:
    """The heads, as far as they may be read."""
    return heads | {stream: [min(pair) for pair in zip(cut[stream], heads[stream], strict=True)] for stream in cut}


def _reaches_cut(stream: str, lane: int, before: BatchPlan, plan: BatchPlan) -> bool:
    """Whether it is in this batch that a lane has been read up to where its stream is cut off."""
    if stream not in plan.cut or plan.positions[stream][lane] != plan.cut[stream][lane]:
        return False
    return stream not in before.cut or before.positions[stream][lane] != plan.cut[stream][lane]


def _both(one: Mapping[str, list[int]], other: Mapping[str, list[int]]) -> dict[str, list[int]]:
    return {stream: sorted({*one.get(stream, ()), *other.get(stream, ())}) for stream in one.keys() | other.keys()}


def _control(offset: int, *messages: WatermarkMessage | EndOfStreamMessage | DrainMessage) -> Ref:
    """Control messages that the source itself says, at the place where it has come to."""
    return {"ctl": ControlRun.from_messages(messages).to_json(), "o": offset}
