"""Splitting an application: one job for each of its stages, connected by nothing but the log.

Source: "Control messages" design document: the task count travels in the message, so an application still works when its
stages are deployed as jobs of their own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from workbench.errors import SplitConflict
from workbench.graph.application import Application
from workbench.graph.job_plan import plan_job, sources_of
from workbench.graph.nodes import Input, Node
from workbench.graph.stages import InputStream, JobPlan, OutputStream, Stage, split_into_stages
from workbench.names import task_name


class Part(Application):
    """One stage of an application as a job of its own, called `<application> stage <n>`. Made by `Application.split`.

    It has the whole graph, so that it knows who else writes and reads its streams, and runs the operators of its stage
    only. Its graph is closed: declare all operators before the split.
    """

    def __init__(self, whole: Application, stage: Stage) -> None:
        super().__init__(part_name(whole.name, stage.index))
        self.nodes = list(whole.nodes)
        self.family = whole.name
        self.stage = stage.index

    def split(self) -> list[Application]:
        """It is split already: the part itself."""
        return [self]

    def _add(self, node: Node) -> NoReturn:
        raise SplitConflict.closed(self.name, self.family, node.label)


def part_name(application: str, stage: int) -> str:
    """The name of the job that runs the stage of this index (from 0)."""
    return f"{application} stage {stage + 1}"


def parts_of(application: Application) -> list[Application]:
    """One part for each stage, in their order."""
    return [Part(application, stage) for stage in split_into_stages(application.nodes)]


def plan_parts(
    application: str, application_nodes: list[Node], partitions_in_log: dict[str, int], stage: int
) -> list[JobPlan]:
    """`plan_job` for each of the jobs, as the one that runs `stage` sees them.

    Streams have the partitions that they have where all is one job. What lies between two other jobs may not have them
    yet: it is for those to see that it does. A job has as many tasks as its widest input has partitions, and a stage that reads only broadcast streams has one.
    """
    own = {getattr(node, "stream", "") for node in split_into_stages(application_nodes)[stage].operators}
    between = {node.stream for node in application_nodes if isinstance(node, Input) and node.is_intermediate}
    known = {stream: count for stream, count in partitions_in_log.items() if stream in own or stream not in between}
    whole = plan_job(application, application_nodes, known)
    sources = sources_of(application_nodes)
    tasks = {
        stage.index: max([1, *(read.partitions for read in whole.inputs if _is_wide(read, stage))])
        for stage in whole.stages
    }
    stage_of = {node.id: stage.index for stage in whole.stages for node in stage.operators}
    writer_of = {node.stream: node.produced_by for node in application_nodes if isinstance(node, Input)}
    readers = {read.stream: read.stage for read in whole.inputs}

    def writers(writer: Node) -> int:
        """As in `plan_job`: the tasks of its job that consume something of what it writes."""
        if any(source.is_broadcast for source in sources[writer.id]):
            return tasks[stage_of[writer.id]]
        return max(whole.input(source.stream).partitions for source in sources[writer.id])

    def as_input(read: InputStream) -> InputStream:
        writer = writer_of[read.stream]
        if writer is None:
            return replace(read, stage=0)
        other = stage_of[writer.id]
        return replace(
            read,
            stage=0,
            upstream_tasks=tuple(task_name(task) for task in range(writers(writer))),
            writer="" if other == read.stage else part_name(application, other),
        )

    def as_output(written: OutputStream, stage: int) -> OutputStream:
        writer = writer_of.get(written.stream)
        if writer is None:
            return written
        reader = readers[written.stream]
        return replace(
            written, writers=writers(writer), reader="" if reader == stage else part_name(application, reader)
        )

    return [
        JobPlan(
            part_name(application, stage.index),
            (replace(stage, index=0, number=stage.index),),
            tuple(as_input(read) for read in whole.inputs if read.stage == stage.index),
            tuple(
                as_output(written, stage.index) for written in whole.outputs if stage_of[written.writer] == stage.index
            ),
            tasks[stage.index],
        )
        for stage in whole.stages
    ]


def _is_wide(read: InputStream, stage: Stage) -> bool:
    return read.stage == stage.index and not read.broadcast
