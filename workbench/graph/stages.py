"""Stages between intermediate streams, and what is known of a job that was laid over a log."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from workbench.graph import nodes


@dataclass(frozen=True)
class Stage:
    """Operators that run together in one task without a stream between them, in topological order."""

    index: int
    """Its place in the job."""
    operators: tuple[nodes.Node, ...]
    number: int | None = None
    """Its place in the application, where the job is only a part of that."""

    @property
    def inputs(self) -> tuple[nodes.Input, ...]:
        return tuple(node for node in self.operators if isinstance(node, nodes.Input))

    @property
    def name(self) -> str:
        """For people: `stage 1: flights`."""
        place = self.index if self.number is None else self.number
        return f"stage {place + 1}: {', '.join(node.stream for node in self.inputs)}"


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
    """Names of the tasks that write to it; empty for a source."""
    writer: str = ""
    """The job of the same application that writes to it, where that is another one."""

    @property
    def external(self) -> bool:
        """Whether it comes from another job of the same, split, application."""
        return bool(self.writer)

    @property
    def entering(self) -> bool:
        """Whether its messages come from outside of the job: of a source, or of another job."""
        return self.external or not self.intermediate

    def lanes(self, tasks: int) -> list[tuple[int, int]]:
        """(task, partition) for each partition that one of the job's `tasks` reads, in the order of `BatchPlan.positions`."""
        if self.broadcast:
            return [(task, 0) for task in range(tasks)]
        return [(partition, partition) for partition in range(self.partitions)]

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
    writers: int = 0
    """How many tasks write to an intermediate stream: the task count in their control messages."""
    reader: str = ""
    """The job of the same application that reads it, where that is another one."""
    writer: int = -1
    """The operator."""


@dataclass(frozen=True)
class JobOutline:
    """What stays to be known of a job when its code is gone: enough to read its record and its checkpoint."""

    tasks: int
    stages: tuple[str, ...]
    """The stages' names, in order."""
    inputs: tuple[InputStream, ...]
    written: tuple[str, ...] = ()
    """The intermediate streams that the job writes."""

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
        written = saved.get("written", [read["stream"] for read in saved["inputs"] if read["intermediate"]])
        return cls(saved["tasks"], tuple(saved["stages"]), tuple(inputs), tuple(written))


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
        written = tuple(output.stream for output in self.outputs if output.intermediate)
        return JobOutline(self.tasks, tuple(stage.name for stage in self.stages), self.inputs, written)

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
    """Connected groups of operators, ordered so that a stage comes after the stages it reads from, where that can be."""
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
        # Where stages read from each other (a stream that meets its own re-partitioning, say), the first declared is first.
        group = next((group for group in waiting if _writers(group) <= placed), waiting[0])
        waiting.remove(group)
        placed.update(node.id for node in group)
        ordered.append(Stage(len(ordered), tuple(group)))
    return tuple(ordered)


def _writers(group: list[nodes.Node]) -> set[int]:
    """The operators of other stages whose streams this one reads."""
    own = {node.id for node in group}
    return {node.produced_by.id for node in group if isinstance(node, nodes.Input) and node.produced_by} - own
