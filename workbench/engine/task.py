"""A task: reconciles the control messages of its SSPs and runs its operators on what they deliver.

No Spark here. State is behind `TaskStore`, input is a `WorkOrder`, output a `Report` and staged segments.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from workbench.choosers.runs import decode_runs
from workbench.engine.batch import Batch
from workbench.engine.failures import TaskFailed, of_platform
from workbench.engine.operator import Operator, OperatorState
from workbench.engine.operators import OPERATORS, InputOperator
from workbench.engine.outbox import Outbox
from workbench.engine.reading import Lane, Part, joined
from workbench.engine.work import Report, Step, WorkOrder
from workbench.errors import UnknownColumn
from workbench.graph.nodes import Input
from workbench.graph.stages import InputStream, JobPlan
from workbench.messages import (
    MAX_TIMESTAMP,
    ControlMessage,
    ControlRun,
    DrainMessage,
    EndOfStreamMessage,
    WatermarkMessage,
)
from workbench.names import LOG_SYSTEM, SSP, task_name
from workbench.reconciliation import Aggregator, Reconciliation, aggregate_partition
from workbench.systems.log.segments import SegmentWriter
from workbench.times import NO_TIME, event_times
from workbench.windows import ChunkStore


class TaskStore(Protocol):
    """A task's part of the checkpoint: one text, and chunks by operator and id."""

    def load(self) -> str | None: ...
    def save(self, state: str) -> None: ...
    def chunks(self, operator: int) -> ChunkStore: ...


@dataclass(frozen=True)
class Routing:
    """How each kind of control message reaches the partitions of an intermediate stream.

    "broadcast": each upstream task writes to every partition, n·m messages. "aggregate": each writes to one partition,
    whose task tells the others when it has heard all, n + m − 1 messages and one batch more.
    """

    watermark: str = "broadcast"
    end_of_stream: str = "broadcast"
    drain: str = "aggregate"

    def of(self, message: ControlMessage) -> str:
        match message:
            case WatermarkMessage():
                return self.watermark
            case EndOfStreamMessage():
                return self.end_of_stream
            case _:
                return self.drain


@dataclass(frozen=True)
class TaskSettings:
    """What all tasks of a job share. Pickled into the query."""

    plan: JobPlan
    segments: Path
    run_id: str
    routing: Routing = field(default_factory=Routing)


class Task:
    """Task *i* of a job for the length of one batch: restored from its store, run once, saved."""

    def __init__(self, settings: TaskSettings, order: WorkOrder, store: TaskStore) -> None:
        self.settings = settings
        self.plan = settings.plan
        self.order = order
        self.index = order.task
        self.name = task_name(order.task)
        self.store = store
        self.outbox = Outbox()
        self.late_rows = 0
        self.rows_out = 0
        self._watermarks: dict[str, int] = {}
        self._ends: list[str] = []
        self._drains: list[str] = []
        self.inputs = {stream.stream: stream for stream in self.plan.inputs_of(self.index)}
        self._restore(json.loads(store.load() or "{}"))

    def run(self) -> Report:
        """Process the work order, save the state, stage the output."""
        started = time.perf_counter()
        drain = None if self.order.drain is None else asdict(self.order.drain)
        report = Report(
            self.index, self.order.batch, generation=self.order.generation, restarted=self.order.restarted, drain=drain
        )
        messages = dict.fromkeys(self.inputs, 0)
        for step, parts in self._in_order():
            before = report.input_messages
            self._process(step, parts, report)
            messages[step.stream] += report.input_messages - before
        if self.order.runs:
            lanes = [[step.stream, step.partition, step.first] for step in self.order.steps]
            report.choices = {"lanes": lanes, "runs": self.order.runs}
        self._send_control_messages()
        for operator in self.operators.values():
            operator.finish_batch()
        self.store.save(json.dumps(self._state(), separators=(",", ":")))
        report.staged = self._stage()
        report.controls = [
            [stream, partition, message.to_json()] for stream, partition, message in self.outbox.controls
        ]
        report.late_messages, report.output_messages = self.late_rows, self.rows_out
        report.open_rows = sum(
            operator.store.open_rows for operator in self.operators.values() if hasattr(operator, "store")
        )
        if all(reconciliation.finished for reconciliation in self.reconciliations.values()):
            ended = all(reconciliation.ended for reconciliation in self.reconciliations.values())
            report.done = "ended" if ended else "drained"
        report.inputs = {
            stream: {
                "state": str(reconciliation.state),
                "watermark": reconciliation.watermark,
                "bookkeeping": reconciliation.to_json(),
                "messages": messages[stream],
                "ends": sorted(_ends(reconciliation) - self._heard_before[stream][0]),
                "drains": sorted(_drains(reconciliation) - self._heard_before[stream][1]),
                "drained": reconciliation.drained,
            }
            for stream, reconciliation in self.reconciliations.items()
        }
        report.seconds = time.perf_counter() - started
        return report

    # What operators may use of their task (operators.Context).

    def partitions(self, stream: str) -> int:
        return self.plan.output(stream).partitions

    def own_partition(self, partitions: int) -> int:
        return self.index % partitions

    def announce_watermark(self, stream: str, watermark: int) -> None:
        """Say at the end of the batch how far this task's output to an intermediate stream has come."""
        self._watermarks[stream] = watermark

    def announce_end(self, stream: str) -> None:
        self._ends.append(stream)

    def announce_drain(self, stream: str) -> None:
        self._drains.append(stream)

    def by_drain(self, operator: int) -> bool:
        """Whether it is a drain, and not the end of all streams, that raises an operator's watermark to its maximum."""
        sources = [self.reconciliations[source] for source in self._sources_of(operator) if source in self.inputs]
        if self.order.drain is None and not any(source.drained for source in sources):
            return False  # Of another job the markers may come before the notification is seen here.
        return not all(source.ended for source in sources)

    def chunks(self, operator: int) -> ChunkStore:
        return self.store.chunks(operator)

    def columns_of(self, stream: str) -> pa.Schema | None:
        """The columns of an input stream, where the work order tells them."""
        text = self.order.schemas.get(stream)
        return None if text is None else pa.ipc.read_schema(pa.BufferReader(base64.b64decode(text)))

    def where(self, operator: int) -> dict[str, str]:
        """Where an error happened, in words."""
        stage = self.plan.stage_of(operator)
        label = next(node.label for node in stage.operators if node.id == operator)
        return {
            "operator": label,
            "stage": stage.name,
            "task": self.name,
            "stream": ", ".join(node.stream for node in stage.inputs),
        }

    # Input: rows and control messages of one SSP.

    def _in_order(self) -> Iterator[tuple[Step, Iterable[Part]]]:
        """What is to be processed, step by step, or as it was chosen; then what the source itself says at the end."""
        segments = self.settings.segments
        if not self.order.runs:
            yield from ((step, joined(segments, step)) for step in self.order.steps)
            return
        lanes = [Lane(segments, step) for step in self.order.steps]
        for run in decode_runs(self.order.runs):
            yield self.order.steps[run.lane], lanes[run.lane].take(run.count)
        yield from ((step, lane.rest()) for step, lane in zip(self.order.steps, lanes, strict=True))

    def _process(self, step: Step, parts: Iterable[Part], report: Report) -> None:
        stream = self.inputs[step.stream]
        try:
            for part in parts:
                if isinstance(part, pa.Table):
                    report.input_messages += len(part)
                    self._process_rows(stream, part)
                else:
                    report.control_messages += len(part)
                    self._process_controls(stream, part)
        except TaskFailed:
            raise
        except Exception as error:
            raise TaskFailed(of_platform(error, **self.where(stream.node))) from error

    def _process_rows(self, stream: InputStream, rows: pa.Table) -> None:
        operator = self.operators[stream.node]
        operator.receive(Batch(rows, stream.stream))
        node = operator.node
        if isinstance(node, Input) and node.event_time is not None and not stream.intermediate:
            watermark = self._source_watermark(node, rows)
            if watermark is not None:
                self._act(stream, self.reconciliations[stream.stream].apply(WatermarkMessage(watermark)))

    def _source_watermark(self, node: Input, rows: pa.Table) -> int | None:
        """Bounded out-of-orderness: the largest event time so far less the bound; `max_ahead` guards against the future."""
        assert node.event_time is not None
        if node.event_time not in rows.column_names:
            raise UnknownColumn.from_known(node.event_time, rows.column_names, f"the stream {node.stream!r}")
        times = event_times(rows.column(node.event_time), node.event_time)
        times = times[times != NO_TIME]
        if not len(times):
            return None
        known = self.reconciliations[node.stream].watermark
        if known is not None and node.max_ahead is not None:
            furthest = known + node.out_of_orderness + node.max_ahead
            plausible = times[times <= furthest]
            return int(plausible.max()) - node.out_of_orderness if len(plausible) else known
        return int(np.max(times)) - node.out_of_orderness

    def _process_controls(self, stream: InputStream, run: ControlRun) -> None:
        reconciliation = self.reconciliations[stream.stream]
        self._act(stream, reconciliation.apply_run(_without_last_times(run) if stream.external else run))

    def _act(self, stream: InputStream, reconciled: list[ControlMessage]) -> None:
        operator = self.operators[stream.node]
        for message in reconciled:
            match message:
                case WatermarkMessage(timestamp=timestamp):
                    operator.pass_on_watermark(timestamp)
                case EndOfStreamMessage():
                    operator.end()
                case DrainMessage():
                    operator.drain()

    # Output.

    def _send_control_messages(self) -> None:
        for name, aggregator in self.aggregators.items():
            own = self.inputs[name].partition_of(self.index)
            for message in aggregator.to_rebroadcast():
                if self._is_relayed(message):
                    for other in range(self.inputs[name].partitions):
                        if other != own:
                            self.outbox.send(name, other, message)
        for stream, watermark in self._watermarks.items():
            self._announce(stream, WatermarkMessage(watermark, self.name, self._task_count(stream)))
        for stream in self._ends:
            self._announce(stream, EndOfStreamMessage(stream, self.name, self._task_count(stream)))
        for stream in self._drains:
            self._announce(stream, DrainMessage(self._run_of_drains(), self.name, self._task_count(stream)))

    def _is_relayed(self, message: ControlMessage) -> bool:
        """Whether the other partitions hear of it from the owner of the aggregate partition only.

        Of a drain they lack what they need if they have not heard the ends of those tasks that ended instead.
        """
        routing = self.settings.routing
        aggregate_end = isinstance(message, DrainMessage) and routing.end_of_stream == "aggregate"
        return routing.of(message) == "aggregate" or aggregate_end

    def _announce(self, stream: str, message: ControlMessage) -> None:
        if self.index >= self._task_count(stream):
            return  # it consumes nothing of what is written there, so nobody waits for it
        partitions = self.partitions(stream)
        broadcast = self.settings.routing.of(message) == "broadcast"
        self.outbox.send(stream, None if broadcast else aggregate_partition(stream, partitions), message)

    def _run_of_drains(self) -> str:
        """The run whose drains count. A run that goes on with another's drain, after a crash, finishes that."""
        return self.settings.run_id if self.order.drain is None else self.order.drain.run_id

    def _sources_of(self, operator: int) -> set[str]:
        """The input streams whose messages can reach an operator within its stage."""
        node = self.operators[operator].node
        if isinstance(node, Input):
            return {node.stream}
        return set().union(*(self._sources_of(predecessor.id) for predecessor in node.inputs))

    def _task_count(self, stream: str) -> int:
        return self.plan.output(stream).writers

    def _stage(self) -> list[dict[str, Any]]:
        rows = self.outbox.rows()
        if not rows:
            return []
        with SegmentWriter(self.settings.segments) as writer:
            for stream, partition, table, time_column in rows:
                writer.add(stream, partition, table, time_column)
            return [staged.to_json() for staged in writer.close()]

    # State.

    def _restore(self, state: dict[str, Any]) -> None:
        saved = state.get("inputs", {})
        generation = state.get("generation", 0)
        begins = generation < self.order.generation
        reset = generation < self.order.reset
        run_id = self._run_of_drains()
        self.reconciliations = {
            name: Reconciliation.from_json(saved[name]).in_run(run_id)
            if name in saved
            else Reconciliation(SSP(LOG_SYSTEM, name, stream.partition_of(self.index) or 0), run_id)
            for name, stream in self.inputs.items()
        }
        if begins:
            for reconciliation in self.reconciliations.values():
                reconciliation.start_generation()
        self._heard_before = {name: (_ends(known), _drains(known)) for name, known in self.reconciliations.items()}
        self.aggregators = {
            name: Aggregator(self.reconciliations[name])
            for name, stream in self.inputs.items()
            if stream.intermediate and stream.partition_of(self.index) == aggregate_partition(name, stream.partitions)
        }
        operators = state.get("operators", {})
        self.operators: dict[int, Operator] = {}
        active = {stream.stage for stream in self.inputs.values()}
        for stage in self.plan.stages:
            if stage.index not in active:
                continue
            for node in stage.operators:
                kept = operators.get(str(node.id))
                operator = OPERATORS[type(node)](node, self, OperatorState(*kept) if kept else OperatorState())
                if begins:
                    operator.start_generation(reset=reset)
                self.operators[node.id] = operator
                for predecessor in node.inputs:
                    operator.predecessors.append(self.operators[predecessor.id])
                    self.operators[predecessor.id].successors.append(operator)
        self._end_absent_inputs()

    def _end_absent_inputs(self) -> None:
        """A stream of which this task has no partition must not hold back those it has, here and behind other operators."""
        for operator in self.operators.values():
            absent = isinstance(operator, InputOperator) and operator.node.stream not in self.inputs
            if absent and not operator.state.ended:
                operator.pass_on_watermark(MAX_TIMESTAMP)
                operator.end()

    def _state(self) -> dict[str, Any]:
        return {
            "task": self.index,
            "generation": self.order.generation,
            "inputs": {name: reconciliation.to_json() for name, reconciliation in self.reconciliations.items()},
            "operators": {str(id): operator.state.to_json() for id, operator in self.operators.items()},
        }


def _without_last_times(run: ControlRun) -> ControlRun:
    """Of another job, without watermarks at the maximum: the end or the drain behind it says that, and which it was.

    A drain of that job alone is no end of time here, where the stream goes on after it.
    """
    if MAX_TIMESTAMP not in run.timestamps:
        return run
    return ControlRun.from_messages(
        message
        for message in run
        if message.direct or not isinstance(message, WatermarkMessage) or message.timestamp < MAX_TIMESTAMP
    )


def _ends(reconciliation: Reconciliation) -> set[str]:
    """Upstream tasks whose end was heard; "source" for a direct end."""
    return reconciliation.ends.tasks | ({"source"} if reconciliation.ends.direct else set())


def _drains(reconciliation: Reconciliation) -> set[str]:
    """Upstream tasks whose drain was heard; "source" for a direct one."""
    return reconciliation.drains.tasks | ({"source"} if reconciliation.drains.direct else set())
