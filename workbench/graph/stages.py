"""From an application to a job: stages between intermediate streams, tasks, and who produces for whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from workbench.errors import InvalidGraph
from workbench.graph import nodes
from workbench.names import task_name


@dataclass(frozen=True)
class Stage:
    """Operators that run together in one task without a stream between them, in topological order."""

    index: int
    operators: tuple[nodes.Node, ...]

    @property
    def inputs(self) -> tuple[nodes.Input, ...]:
        return tuple(node for node in self.operators if isinstance(node, nodes.Input))

    @property
    def name(self) -> str:
        """For people: `stage 1: flights`."""
        return f"stage {self.index + 1}: {', '.join(node.stream for node in self.inputs)}"


@dataclass(frozen=True)
class InputStream:
    """A stream that the job reads: `partitions` as in the log, the stage that reads it, who writes it."""

    stream: str
    partitions: int
    stage: int
    node: int
    broadcast: bool
    intermediate: bool
    upstream_tasks: tuple[str, ...]
    """Names of the tasks of this job that write to it; empty for a source."""

    def partition_of(self, task: int) -> int | None:
        """The partition that a task consumes, or None where it consumes none of this stream."""
        if self.broadcast:
            return 0
        return task if task < self.partitions else None


@dataclass(frozen=True)
class OutputStream:
    """A stream that the job writes."""

    stream: str
    partitions: int
    intermediate: bool


@dataclass(frozen=True)
class JobOutline:
    """What stays to be known of a job when its code is gone: enough to read its record and its checkpoint."""

    tasks: int
    stages: tuple[str, ...]
    """The stages' names, in order."""
    inputs: tuple[InputStream, ...]

    def inputs_of(self, task: int) -> list[InputStream]:
        """The streams of which this task consumes a partition."""
        return [stream for stream in self.inputs if stream.partition_of(task) is not None]

    def input(self, stream: str) -> InputStream:
        return next(read for read in self.inputs if read.stream == stream)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> JobOutline:
        inputs = (InputStream(**{**read, "upstream_tasks": tuple(read["upstream_tasks"])}) for read in saved["inputs"])
        return cls(saved["tasks"], tuple(saved["stages"]), tuple(inputs))


@dataclass(frozen=True)
class JobPlan:
    """Everything about a job that follows from the application and the log's partition counts."""

    application: str
    stages: tuple[Stage, ...]
    inputs: tuple[InputStream, ...]
    outputs: tuple[OutputStream, ...]
    tasks: int

    @property
    def outline(self) -> JobOutline:
        return JobOutline(self.tasks, tuple(stage.name for stage in self.stages), self.inputs)

    @property
    def sources(self) -> tuple[InputStream, ...]:
        return tuple(stream for stream in self.inputs if not stream.intermediate)

    def inputs_of(self, task: int) -> list[InputStream]:
        """The streams of which this task consumes a partition."""
        return [stream for stream in self.inputs if stream.partition_of(task) is not None]

    def input(self, stream: str) -> InputStream:
        return next(read for read in self.inputs if read.stream == stream)

    def output(self, stream: str) -> OutputStream:
        return next(written for written in self.outputs if written.stream == stream)

    def stage_of(self, node: int) -> Stage:
        return next(stage for stage in self.stages if any(member.id == node for member in stage.operators))


def split_into_stages(application_nodes: list[nodes.Node]) -> tuple[Stage, ...]:
    """Connected groups of operators, ordered so that a stage comes after the stages it reads from."""
    root: dict[int, int] = {node.id: node.id for node in application_nodes}

    def find(node: int) -> int:
        while root[node] != node:
            root[node] = root[root[node]]
            node = root[node]
        return node

    for node in application_nodes:
        for predecessor in node.inputs:
            root[find(node.id)] = find(predecessor.id)
    groups: dict[int, list[nodes.Node]] = {}
    for node in application_nodes:
        groups.setdefault(find(node.id), []).append(node)

    ordered: list[Stage] = []
    placed: set[int] = set()
    waiting = list(groups.values())
    while waiting:
        for group in waiting:
            writers = [node.produced_by for node in group if isinstance(node, nodes.Input) and node.produced_by]
            if all(writer.id in placed for writer in writers):
                break
        else:  # declared through handles, a stage can read only what an earlier operator wrote
            raise AssertionError("stages form a loop")
        waiting.remove(group)
        placed.update(node.id for node in group)
        ordered.append(Stage(len(ordered), tuple(group)))
    return tuple(ordered)


def plan_job(application: str, application_nodes: list[nodes.Node], partitions_in_log: Mapping[str, int]) -> JobPlan:
    """Lay an application over a log.

    `partitions_in_log` tells the partition counts of the streams that exist; every source must be among them. Raises
    `InvalidGraph` for a graph that can not run.
    """
    _check(application, application_nodes)
    stages = split_into_stages(application_nodes)
    written: dict[int, OutputStream] = {}
    inputs: list[InputStream] = []
    consumers: dict[int, set[int]] = {}
    broadcast_stages: list[int] = []
    unnumbered: list[nodes.SendTo] = []
    tasks = 1
    for stage in stages:
        widths = []
        consumers[stage.index] = set()
        for node in stage.inputs:
            partitions = written[node.produced_by.id].partitions if node.produced_by else partitions_in_log[node.stream]
            widths.append(partitions)
            if node.is_broadcast:
                broadcast_stages.append(stage.index)
            else:
                consumers[stage.index] |= set(range(partitions))
                tasks = max(tasks, partitions)
        for operator in stage.operators:
            match operator:
                case nodes.PartitionBy():
                    have = partitions_in_log.get(operator.stream)
                    wanted = operator.partitions or have or max(widths)
                    written[operator.id] = OutputStream(operator.stream, _agreed(operator, wanted, have), True)
                case nodes.Broadcast():
                    written[operator.id] = OutputStream(
                        operator.stream, _agreed(operator, 1, partitions_in_log.get(operator.stream)), True
                    )
                case nodes.SendTo():
                    unnumbered.append(operator)
                case nodes.Window() if operator.late is not None:
                    unnumbered.append(
                        nodes.SendTo(operator.id, f"late rows of {operator.label}", (), stream=operator.late)
                    )
    for index in broadcast_stages:
        consumers[index] = set(range(tasks))
    for output in unnumbered:
        have = partitions_in_log.get(output.stream)
        written[output.id] = OutputStream(
            output.stream, _agreed(output, output.partitions or have or tasks, have), False
        )

    for stage in stages:
        for node in stage.inputs:
            upstream = next((s for s in stages if node.produced_by in s.operators), None) if node.produced_by else None
            inputs.append(
                InputStream(
                    stream=node.stream,
                    partitions=written[node.produced_by.id].partitions
                    if node.produced_by
                    else partitions_in_log[node.stream],
                    stage=stage.index,
                    node=node.id,
                    broadcast=node.is_broadcast,
                    intermediate=node.is_intermediate,
                    upstream_tasks=tuple(task_name(task) for task in sorted(consumers[upstream.index]))
                    if upstream
                    else (),
                )
            )
    return JobPlan(application, stages, tuple(inputs), tuple(written.values()), tasks)


def source_streams(application_nodes: list[nodes.Node]) -> list[str]:
    """Names of the streams that the application reads and does not write itself."""
    return [node.stream for node in application_nodes if isinstance(node, nodes.Input) and not node.is_intermediate]


def _check(application: str, application_nodes: list[nodes.Node]) -> None:
    if not any(isinstance(node, nodes.SendTo | nodes.Sink) for node in application_nodes):
        raise InvalidGraph.without_operators(application)
    writers: dict[str, str] = {}
    for node in application_nodes:
        streams = []
        if isinstance(node, nodes.PartitionBy | nodes.Broadcast | nodes.SendTo):
            streams.append(node.stream)
        if isinstance(node, nodes.Window) and node.late is not None:
            streams.append(node.late)
        for stream in streams:
            if stream in writers:
                raise InvalidGraph.written_twice(stream, writers[stream], node.label)
            writers[stream] = node.label
    for stream in source_streams(application_nodes):
        if stream in writers:
            raise InvalidGraph.read_and_written(stream, writers[stream])


def _agreed(node: nodes.Node, wanted: int, have: int | None) -> int:
    if have is not None and have != wanted:
        stream = getattr(node, "stream", node.label)
        raise InvalidGraph.log_changes(stream, wanted, have, node.label)
    return wanted
