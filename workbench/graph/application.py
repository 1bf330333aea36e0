"""The application a user writes: a graph of operators from input streams to outputs.

`Application` and `MessageStream` only declare. Nothing is read, checked against a log or run before `deploy`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pandas as pd

from workbench.choosers.tiers import checked_bootstrap, checked_priority
from workbench.errors import InvalidGraph, InvalidJoin
from workbench.graph import nodes
from workbench.graph.expressions import checked_expression
from workbench.graph.joins import (
    SUFFIXES,
    Late,
    Table,
    Within,
    check_partition_keys,
    columns_of,
    join_spec,
    late_streams,
    lookup_spec,
)
from workbench.names import checked_name
from workbench.windows import Aggregate, Assigner, WindowSpec
from workbench.windows.durations import Duration, milliseconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from workbench.choosers import ChooserOption, ChooserPolicy
    from workbench.engine.run import Run
    from workbench.engine.task import Routing
    from workbench.graph.picture import Picture
    from workbench.systems.log import StreamLog

N = TypeVar("N", bound=nodes.Node)


class Application:
    """A named graph of operators. `deploy` runs it as one Spark Structured Streaming query.

    The name identifies the application's checkpoint in the log: a second deployment of the same name goes on where the
    first one stopped.
    """

    def __init__(self, name: str) -> None:
        self.name = checked_name(name, "application")
        self.nodes: list[nodes.Node] = []
        self.family = self.name
        """The name of the whole application, also in the parts of a split one."""
        self.stage: int | None = None
        """The index of the one stage that it runs, where it is a part."""

    def input(
        self,
        stream: str,
        *,
        event_time: str | None = None,
        out_of_orderness: Duration = 0,
        max_ahead: Duration | None = None,
        priority: int = 0,
        bootstrap: bool = False,
    ) -> MessageStream:
        """Read a stream of the log.

        `event_time` names the column of event times (timestamps, or int64 milliseconds since the epoch). Each partition's
        watermark is the largest event time read minus `out_of_orderness` (a duration: "2h", timedelta, or milliseconds);
        without `event_time` the input moves the watermark only when it ends. `max_ahead` bounds how far one batch may
        push the watermark of a partition ahead, so that one row from the future does not make everything late.

        `priority`: a task takes of a lower one only what the higher ones leave of what a batch admits. `bootstrap`: no
        source that is not is read until this one has been read as far as it went when the run started, in every task.
        See `workbench.choosers`.
        """
        declared = nodes.Input(
            len(self.nodes),
            f"input {stream}",
            (),
            stream=checked_name(stream),
            event_time=event_time,
            out_of_orderness=milliseconds(out_of_orderness, "out_of_orderness"),
            max_ahead=None if max_ahead is None else milliseconds(max_ahead, "max_ahead"),
            priority=checked_priority(priority),
            bootstrap=checked_bootstrap(bootstrap),
        )
        for node in self.nodes:
            if isinstance(node, nodes.Input) and node.stream == stream:
                if _options(node) != _options(declared):
                    raise InvalidGraph.input_twice(stream)
                return MessageStream(self, node, event_time, ())
        return MessageStream(self, self._add(declared), event_time, ())

    def merge(self, first: MessageStream, *others: MessageStream) -> MessageStream:
        """All messages of all the given streams, in no order between them."""
        return first.merge(*others)

    def deploy(
        self,
        spark: SparkSession,
        log: StreamLog,
        *,
        containers: int | None = None,
        max_messages: int = 1_000_000,
        routing: Routing | Mapping[str, str] | None = None,
        checkpoint: str | Path | None = None,
        run_id: str | None = None,
        on_rewind: str | None = None,
        chooser: ChooserPolicy | ChooserOption = None,
        batch_size: int | None = None,
    ) -> Run:
        """Start a run of this application and return its handle at once: `workbench.engine.deploy`, which says more.

        containers: Spark partitions that host the tasks; by default as the checkpoint has them, at first one per core.
        max_messages: how many source messages one batch may admit over all tasks.
        routing: "broadcast" or "aggregate" for each kind of control message, as `Routing` or as a mapping.
        checkpoint: a directory of one's own for the checkpoint; by default one in the log's directory.
        run_id: names this deployment; by default a new unique one.
        chooser: "round_robin", "time_aligned", "starting_alignment", or one of one's own (see `workbench.choosers`).
        batch_size: how many messages a task takes of one input before it looks at the others.
        on_rewind: "keep" or "reset": what becomes of windows and stores when a startpoint leads back.
        """
        from workbench.engine import deploy

        return deploy(
            self,
            spark,
            log,
            containers=containers,
            max_messages=max_messages,
            routing=routing,
            checkpoint=checkpoint,
            run_id=run_id,
            on_rewind=on_rewind,
            chooser=chooser,
            batch_size=batch_size,
        )

    def split(self) -> list[Application]:
        """One job for each stage, called `<name> stage 1` and so on, to be deployed each in a process of its own.

        They are connected by the log only, and may be started, stopped and restarted in any order. Deployed with one
        `run_id` they are one deployment: a drain of it drains all of them. Drained one after the other they must be so
        in the order of the stages; one that has drained can start again when those that read from it have drained, too
        (`SplitConflict` says so). Output streams have the partitions that they have without a split; a stage that reads
        nothing but broadcast streams has one task. Source: "Control messages" design document.
        """
        from workbench.graph.parts import parts_of

        return parts_of(self)

    def picture(self) -> Picture:
        """The graph as data: what `_repr_html_` draws and `str` tells."""
        from workbench.graph.description import describe

        return describe(self)

    def __repr__(self) -> str:
        from workbench.graph.picture import text

        return text(self.picture())

    def _repr_html_(self) -> str:
        from workbench.graph.picture import svg

        return svg(self.picture())

    def _add(self, node: N) -> N:
        self.nodes.append(node)
        return node


class MessageStream:
    """A stream between two operators. Each method adds an operator and returns the stream behind it.

    Functions take and return a pandas DataFrame of a whole batch with Arrow-backed types, never a row. They run on
    Spark's executors and are sent there by cloudpickle.
    """

    def __init__(
        self, application: Application, node: nodes.Node, event_time: str | None, partition_keys: tuple[str, ...]
    ) -> None:
        self._application = application
        self._node = node
        self._event_time = event_time
        self._partition_keys = partition_keys

    def map(
        self, function: nodes.BatchFunction, *, name: str | None = None, event_time: str | None = None
    ) -> MessageStream:
        """Turn each row into one row. A function that returns another number of rows fails: that is `flat_map`.

        `event_time` names the column of event times in what the function returns, where it is another than before. Its
        times should not be earlier than the row's own, or the watermark is ahead of them and they may be late.
        """
        label = name or f"map {_function_name(function)}"
        node = nodes.Map(self._next_id(), label, (self._node,), function=_checked(function, label))
        return self._then(node, event_time)

    def flat_map(
        self, function: nodes.BatchFunction, *, name: str | None = None, event_time: str | None = None
    ) -> MessageStream:
        """Turn the rows of a batch into any number of rows. `event_time` as in `map`."""
        label = name or f"flat_map {_function_name(function)}"
        node = nodes.FlatMap(self._next_id(), label, (self._node,), function=_checked(function, label))
        return self._then(node, event_time)

    def filter(self, predicate: str | Callable[[pd.DataFrame], Any], *, name: str | None = None) -> MessageStream:
        """Keep the rows for which `predicate` is true; null counts as false. Control messages always pass.

        `predicate` is an expression over the columns ("dep_delay > 15 and not cancelled", see `graph.expressions` for
        what it may use; `InvalidExpression` otherwise), or a function from the frame to one boolean per row.
        """
        if isinstance(predicate, str):
            predicate = checked_expression(predicate)
        shown = predicate if isinstance(predicate, str) else _function_name(predicate)
        label = name or f"filter {shown}"
        if not isinstance(predicate, str):
            _checked(predicate, label)
        return self._then(nodes.Filter(self._next_id(), label, (self._node,), predicate=predicate))

    def merge(self, *others: MessageStream) -> MessageStream:
        """This stream's messages and all those of the others."""
        streams = (self, *others)
        for stream in others:
            if stream._application is not self._application:
                raise InvalidGraph.other_application(self._application.name, stream._application.name)
        times = {stream._event_time for stream in streams}
        if len(times) > 1:
            raise InvalidGraph.event_times_differ(str(time) for time in times)
        keys = {stream._partition_keys for stream in streams}
        node = nodes.Merge(self._next_id(), "merge", tuple(stream._node for stream in streams))
        self._application._add(node)
        return MessageStream(self._application, node, self._event_time, keys.pop() if len(keys) == 1 else ())

    def partition_by(self, *keys: str, partitions: int | None = None, name: str | None = None) -> MessageStream:
        """Write to an intermediate stream, partitioned by a stable hash of the key columns; the next stage reads it.

        `partitions` defaults to the largest partition count of the stage's inputs. `name` defaults to
        `<application>.<keys>`; a later deployment finds the stream again under that name.
        """
        label = f"partition_by {', '.join(keys)}"
        if not keys or not all(isinstance(key, str) for key in keys):
            raise (
                InvalidGraph.not_callable("partition_by", keys)
                if keys
                else InvalidGraph("partition_by needs a key column.")
            )
        if partitions is not None and (not isinstance(partitions, int) or partitions < 1):
            raise InvalidGraph.partitions_not_positive(label, partitions)
        stream = checked_name(name or f"{self._application.name}.{'-'.join(keys)}")
        writer = nodes.PartitionBy(
            self._next_id(),
            label,
            (self._node,),
            stream=stream,
            keys=keys,
            partitions=partitions,
            event_time=self._event_time,
        )
        return self._through(writer, stream, keys)

    def broadcast(self, *, name: str | None = None) -> MessageStream:
        """Write to an intermediate stream of one partition, which every task of the next stage reads in full.

        `name` defaults to `<application>.broadcast`; a second broadcast of the same application needs one of its own.
        """
        stream = checked_name(name or f"{self._application.name}.broadcast")
        writer = nodes.Broadcast(
            self._next_id(), "broadcast", (self._node,), stream=stream, event_time=self._event_time
        )
        return self._through(writer, stream, ())

    def window(
        self, assigner: Assigner, *, by: str | tuple[str, ...] | list[str] | None = None, late: str | None = None
    ) -> WindowedStream:
        """Group rows into event-time windows per key. `by` defaults to the keys of the last `partition_by`.

        A task sees its own partitions only: on an input that is not partitioned by the keys there is one pane for each
        key and task. Put `partition_by` before the window for one pane per key.

        `late` names a stream for rows that come after their window closed; without it they are counted only (see
        `run.batches()`), never dropped in silence.
        """
        keys = self._partition_keys if by is None else (by,) if isinstance(by, str) else tuple(by)
        label = f"window {assigner}"
        if self._event_time is None:
            raise InvalidGraph.without_event_time(label)
        if self._partition_keys and not set(self._partition_keys) <= set(keys):
            raise InvalidGraph.keys_not_together(label, keys, self._partition_keys)
        return WindowedStream(self, assigner, keys, checked_name(late) if late is not None else None)

    def table(self, key: str | Sequence[str], *, name: str | None = None) -> Table:
        """The latest row of each key of this stream, in order of arrival, for `join` to look up.

        It has no time: a row that is joined sees the table as it is then, and stays as it was. Where the table is to be
        complete before the first row is joined, read its stream with `app.input(…, bootstrap=True)`. A row with a null
        key is not kept.
        """
        keys = columns_of(key, "A table")
        label = name or f"table by {', '.join(keys)}"
        node = nodes.Table(self._next_id(), label, (self._node,), keys=keys)
        self._application._add(node)
        return Table(self._application, node)

    def join(
        self,
        other: MessageStream | Table,
        on: str | Sequence[str] | None = None,
        *,
        within: Within | None = None,
        how: str = "inner",
        event_time: str | None = None,
        suffixes: tuple[str, str] = SUFFIXES,
        late: Late | None = None,
        name: str | None = None,
    ) -> MessageStream:
        """Join with another stream within a bound in time, or with a table.

        A row has the columns of this stream, then those of the other without its keys; columns that both have get the
        `suffixes`. Keys that are null match nothing. Both sides must be partitioned alike, by columns among the keys:
        use `partition_by` on both, or `broadcast` the right one.

        Two streams: each pair of rows with equal `on` whose times are `within` a bound comes once: "2h" (at most that
        far apart), or (before, after): how long before and after a row of this stream the other's may be, ends included.
        A row is held until the other side's watermark says that no match can come. With how="left" a row of this stream
        without a match then comes with nulls, and all rows have a column `drained`: true where it was a drain that ended
        the wait, so that a match may come yet. `event_time` says which row's time the result has: its name there, by
        default this stream's. Rows that are behind their own side's watermark are late: they are counted, and go to the
        two streams of `late`, (of this side, of the other), if they are named. Before the first row of the other side
        was read anywhere its columns are not known, and rows without a match come without them.

        A table: `on` names the columns of this stream to look up by, by default those of the table's key. how="left"
        keeps rows whose key is not in the table. Time is that of this stream alone.

        Raises `InvalidJoin`, `InvalidGraph`, `InvalidDuration`.
        """
        if not isinstance(other, MessageStream | Table):
            raise InvalidJoin.not_a_stream(other)
        if other._application is not self._application:
            raise InvalidGraph.other_application(self._application.name, other._application.name)
        if isinstance(other, Table):
            options = {"within": within, "event_time": event_time, "late": late}
            unfit = [option for option, value in options.items() if value is not None]
            if unfit:
                raise InvalidJoin.not_for_tables(unfit)
            looked_up = lookup_spec(other, on, how, suffixes)
            label = name or f"{looked_up.how} join table by {', '.join(looked_up.left_on)}"
            return self._then(nodes.TableJoin(self._next_id(), label, (self._node, other._node), spec=looked_up))
        spec = join_spec((self._event_time, other._event_time), on, within, how, event_time, suffixes)
        label = name or f"{spec.how} join by {', '.join(spec.left_on)}"
        check_partition_keys(label, spec.left_on, (self._partition_keys, other._partition_keys))
        late_left, late_right = late_streams(late)
        left = self._application._add(
            nodes.JoinSide(self._next_id(), f"{label}, left", (self._node,), spec=spec, side="left", late=late_left)
        )
        right = self._application._add(
            nodes.JoinSide(self._next_id(), f"{label}, right", (other._node,), spec=spec, side="right", late=late_right)
        )
        joined = self._then(nodes.StreamJoin(self._next_id(), label, (left, right), spec=spec), spec.event_time)
        joined._partition_keys = self._partition_keys or other._partition_keys
        return joined

    def send_to(self, stream: str, *, key: str | tuple[str, ...] | None = None, partitions: int | None = None) -> None:
        """Write to an output stream of the log, created at the first deployment if it is not there.

        It holds rows only: control messages pass between the stages of an application and end with it. End it yourself,
        with `log.stream(…).end()`, for an application that reads on from there.

        With `key`, the partition is a stable hash of those columns; without, each task writes to the partition of its own
        number. `partitions` defaults to the number of the job's tasks.
        """
        if partitions is not None and (not isinstance(partitions, int) or partitions < 1):
            raise InvalidGraph.partitions_not_positive(f"send_to {stream}", partitions)
        self._application._add(
            nodes.SendTo(
                self._next_id(),
                f"send_to {stream}",
                (self._node,),
                stream=checked_name(stream),
                keys=() if key is None else (key,) if isinstance(key, str) else tuple(key),
                partitions=partitions,
                event_time=self._event_time,
            )
        )

    def sink(self, function: Callable[[pd.DataFrame], None], *, name: str | None = None) -> None:
        """Hand each batch's rows to `function` on the executor. After a crash the last batch comes again: at least once."""
        label = name or f"sink {_function_name(function)}"
        self._application._add(nodes.Sink(self._next_id(), label, (self._node,), function=_checked(function, label)))

    def __repr__(self) -> str:
        return f"<stream behind {self._node.label!r} of application {self._application.name!r}>"

    def _next_id(self) -> int:
        return len(self._application.nodes)

    def _then(self, node: nodes.Node, event_time: str | None = None) -> MessageStream:
        self._application._add(node)
        return MessageStream(self._application, node, event_time or self._event_time, self._partition_keys)

    def _through(self, writer: nodes.Node, stream: str, keys: tuple[str, ...]) -> MessageStream:
        self._application._add(writer)
        reader = nodes.Input(
            self._next_id(), f"input {stream}", (), stream=stream, event_time=self._event_time, produced_by=writer
        )
        return MessageStream(self._application, self._application._add(reader), self._event_time, keys)


class WindowedStream:
    """Windows that still lack their aggregates."""

    def __init__(self, upstream: MessageStream, assigner: Assigner, keys: tuple[str, ...], late: str | None) -> None:
        self._upstream = upstream
        self._assigner = assigner
        self._keys = keys
        self._late = late

    def aggregate(self, *, name: str | None = None, **aggregates: tuple[str, str | Aggregate]) -> MessageStream:
        """Aggregates by name, as in pandas: `aggregate(flights=("flight", "count"), p95=("delay", quantile(0.95)))`.

        Each pane is one row: the keys, `window_start` and `window_end` (timestamps in UTC), the aggregates. A pane is
        emitted once, when the watermark reaches its end; its event time is its `window_start`.
        """
        upstream, label = self._upstream, name or f"window {self._assigner}"
        if not aggregates:
            raise InvalidGraph.no_aggregates(label)
        assert upstream._event_time is not None
        spec = WindowSpec(self._assigner, self._keys, dict(aggregates), upstream._event_time)
        node = nodes.Window(upstream._next_id(), label, (upstream._node,), spec=spec, late=self._late)
        upstream._application._add(node)
        kept = upstream._partition_keys if set(upstream._partition_keys) <= set(self._keys) else ()
        return MessageStream(upstream._application, node, "window_start", kept)


def _options(node: nodes.Input) -> nodes.Input | Mapping[str, object]:
    return vars(replace(node, id=0))


def _function_name(function: object) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return "function" if name == "<lambda>" else name


def _checked(function: Any, operator: str) -> Any:
    if not callable(function):
        raise InvalidGraph.not_callable(operator, function)
    return function
