"""From an application and a log to a job: partitions, tasks, and who produces for whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from workbench.errors import InvalidGraph
from workbench.graph import nodes
from workbench.graph.co_partitioning import check_joined
from workbench.graph.stages import InputStream, JobPlan, OutputStream, split_into_stages
from workbench.names import task_name


def plan_job(application: str, application_nodes: list[nodes.Node], partitions_in_log: Mapping[str, int]) -> JobPlan:
    """Lay an application over a log.

    `partitions_in_log` tells the partition counts of the streams that exist; every source must be among them. Raises
    `InvalidGraph` for a graph that can not run.
    """
    _check_streams(application, application_nodes)
    sources = sources_of(application_nodes)
    widths: dict[int, int] = {}
    """Input → the partitions of its stream."""
    written: dict[int, OutputStream] = {}
    for node in application_nodes:  # in the order of declaration, so a writer comes before the input that reads it
        have = partitions_in_log.get(getattr(node, "stream", ""))
        match node:
            case nodes.Input():
                widths[node.id] = (
                    written[node.produced_by.id].partitions if node.produced_by else partitions_in_log[node.stream]
                )
            case nodes.PartitionBy():
                wanted = node.partitions or have or max(widths[source.id] for source in sources[node.id])
                written[node.id] = OutputStream(node.stream, _agreed(node, node.stream, wanted, have), True)
            case nodes.Broadcast():
                written[node.id] = OutputStream(node.stream, _agreed(node, node.stream, 1, have), True)
            case nodes.Window() if node.spec.keys:
                _check_together(node, {source: widths[source.id] for source in sources[node.id]})
            case nodes.StreamJoin() | nodes.TableJoin():
                check_joined(node, widths)
    tasks = max([1, *(widths[node.id] for node in _inputs(application_nodes) if not node.is_broadcast)])
    for node in application_nodes:
        match node:
            case nodes.SendTo():
                written[node.id] = _output(node, node.stream, node.partitions, tasks, partitions_in_log)
            case nodes.Window() | nodes.JoinSide() if node.late is not None:
                written[node.id] = _output(node, node.late, None, tasks, partitions_in_log)

    def upstream_tasks(writer: nodes.Node) -> tuple[str, ...]:
        """The tasks that consume something of what the writer writes: others never run it, and have nothing to say."""
        sees_all = any(source.is_broadcast for source in sources[writer.id])
        count = tasks if sees_all else max(widths[source.id] for source in sources[writer.id])
        return tuple(task_name(task) for task in range(count))

    stages = split_into_stages(application_nodes)
    inputs = tuple(
        InputStream(
            stream=node.stream,
            partitions=widths[node.id],
            stage=stage.index,
            node=node.id,
            broadcast=node.is_broadcast,
            intermediate=node.is_intermediate,
            upstream_tasks=upstream_tasks(node.produced_by) if node.produced_by else (),
        )
        for stage in stages
        for node in stage.inputs
    )
    outputs = tuple(
        replace(
            output,
            writer=writer,
            writers=len(upstream_tasks(application_nodes[writer])) if output.intermediate else 0,
        )
        for writer, output in written.items()
    )
    return JobPlan(application, stages, inputs, outputs, tasks)


def source_streams(application_nodes: list[nodes.Node]) -> list[str]:
    """Names of the streams that the application reads and does not write itself."""
    return [node.stream for node in _inputs(application_nodes) if not node.is_intermediate]


def _inputs(application_nodes: list[nodes.Node]) -> list[nodes.Input]:
    return [node for node in application_nodes if isinstance(node, nodes.Input)]


def sources_of(application_nodes: list[nodes.Node]) -> dict[int, set[nodes.Input]]:
    """Operator → the inputs from which its messages can come without another stream between them."""
    found: dict[int, set[nodes.Input]] = {}
    for node in application_nodes:
        own = {node} if isinstance(node, nodes.Input) else set()
        found[node.id] = own.union(*(found[predecessor.id] for predecessor in node.inputs))
    return found


def _check_streams(application: str, application_nodes: list[nodes.Node]) -> None:
    if not any(isinstance(node, nodes.SendTo | nodes.Sink) for node in application_nodes):
        raise InvalidGraph.without_operators(application)
    writers: dict[str, str] = {}
    for node in application_nodes:
        streams = []
        if isinstance(node, nodes.PartitionBy | nodes.Broadcast | nodes.SendTo):
            streams.append(node.stream)
        if isinstance(node, nodes.Window | nodes.JoinSide) and node.late is not None:
            streams.append(node.late)
        for stream in streams:
            if stream in writers:
                raise InvalidGraph.written_twice(stream, writers[stream], node.label)
            writers[stream] = node.label
    for stream in source_streams(application_nodes):
        if stream in writers:
            raise InvalidGraph.read_and_written(stream, writers[stream])


def _check_together(window: nodes.Window, widths: Mapping[nodes.Input, int]) -> None:
    """The same key is in partitions of the same number only where there are equally many of them."""
    partitioned = {source.stream: width for source, width in widths.items() if not source.is_broadcast}
    if len(set(partitioned.values())) > 1 and any(source.is_intermediate for source in widths):
        raise InvalidGraph.partition_counts_differ(window.label, partitioned)


def _output(
    node: nodes.Node, stream: str, wanted: int | None, tasks: int, partitions_in_log: Mapping[str, int]
) -> OutputStream:
    have = partitions_in_log.get(stream)
    return OutputStream(stream, _agreed(node, stream, wanted or have or tasks, have), False)


def _agreed(node: nodes.Node, stream: str, wanted: int, have: int | None) -> int:
    if have is not None and have != wanted:
        raise InvalidGraph.log_changes(stream, wanted, have, node.label)
    return wanted
