"""The record of a job as pandas frames. Pure functions of recorded batches and bookkeeping.

Times are `datetime64[ms, UTC]`. A watermark is NaT unless the state has a time: see the five states of
`workbench.reconciliation.InputState`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from workbench.graph.stages import JobOutline
from workbench.messages import MAX_TIMESTAMP
from workbench.names import task_name
from workbench.telemetry.recorder import BatchRecord

TIME = "datetime64[ms, UTC]"
_Heard = tuple[str, str, int | None, bool, int | None]
_WATERMARKS = {
    "batch": "int64", "time": TIME, "task": "str", "stage": "str", "stream": "str", "watermark": TIME, "state": "str",
}  # fmt: skip
_ENDS = {
    "task": "str", "stage": "str", "stream": "str", "upstream_task": "str", "heard": "bool", "batch": "Int64",
    "time": TIME,
}  # fmt: skip
_BATCHES = {
    "batch": "int64", "time": TIME, "seconds": "float64", "input_messages": "int64", "passed_messages": "int64", "control_messages": "int64",
    "control_sent": "int64", "output_messages": "int64", "late_messages": "int64", "messages_per_second": "float64",
    "lowest_watermark": TIME, "open_rows": "int64", "tasks": "int64",
}  # fmt: skip
_BOOKKEEPING = {
    "task": "str", "stream": "str", "partition": "int64", "kind": "str", "upstream_task": "str", "value": TIME,
    "heard": "bool", "total": "Int64", "reconciled": TIME, "state": "str",
}  # fmt: skip


def watermarks_frame(outline: JobOutline, batches: Iterable[BatchRecord]) -> pd.DataFrame:
    """One row for each (batch, task, input stream): how far the task's reconciled watermark had come.

    A task without work in a batch keeps what it had, so that every task has a row for every batch since the first.
    """
    known: dict[tuple[int, str], tuple[str, int | None]] = {}
    for task in range(outline.tasks):
        for read in outline.inputs_of(task):
            known[task, read.stream] = ("unknown", None)
    stages = {read.stream: outline.stages[read.stage] for read in outline.inputs}
    rows = []
    for batch in in_generations(batches, known.update, dict.fromkeys(known, ("unknown", None))):
        for report in batch.reports:
            for stream, of in report["inputs"].items():
                known[report["task"], stream] = (of["state"], of["watermark"])
        for (task, stream), (state, watermark) in known.items():
            shown = _shown(watermark)
            rows.append((batch.batch, batch.committed, task_name(task), stages[stream], stream, shown, state))
    return frame_of(rows, _WATERMARKS)


def end_of_stream_frame(outline: JobOutline, batches: Iterable[BatchRecord]) -> pd.DataFrame:
    """One row for each (task, input stream, upstream task): whether its end was heard, and in which batch.

    A direct end, from the source itself, has the upstream task "source". Tasks that are expected and have not been heard
    are there with `heard` false.
    """
    heard: dict[tuple[int, str, str], tuple[int, int]] = {}
    for batch in in_generations(batches, heard.clear):
        for report in batch.reports:
            for stream, of in report["inputs"].items():
                for upstream in of.get("ends", ()):
                    heard.setdefault((report["task"], stream, upstream), (batch.batch, batch.committed))
    rows = []
    for task in range(outline.tasks):
        for stream in outline.inputs_of(task):
            others = [name for number, read, name in heard if (number, read) == (task, stream.stream)]
            expected = list(stream.upstream_tasks) or ["source"]
            for upstream in [*expected, *(name for name in others if name not in expected)]:
                batch_heard, time = heard.get((task, stream.stream, upstream), (None, None))
                rows.append(
                    (
                        task_name(task),
                        outline.stages[stream.stage],
                        stream.stream,
                        upstream,
                        batch_heard is not None,
                        batch_heard,
                        time,
                    )
                )
    return frame_of(rows, _ENDS)


def batches_frame(outline: JobOutline, batches: Sequence[BatchRecord], started: Mapping[str, int]) -> pd.DataFrame:
    """One row for each batch. `seconds` is the time since the batch before (the run's start for its first one).

    `input_messages` were read from source streams, `passed_messages` from intermediate ones.
    """
    sources = {read.stream for read in outline.inputs if read.entering}
    rows = []
    watermarks = watermarks_frame(outline, batches)
    active = watermarks[watermarks["state"].isin(["active", "idle", "held"])]
    lowest = active.groupby("batch")["watermark"].min().dropna()
    lowest_ms = {batch: time.value // 1_000_000 for batch, time in lowest.astype("datetime64[ns, UTC]").items()}
    open_rows: dict[int, int] = {}
    before: BatchRecord | None = None
    for batch in batches:
        open_rows |= {report["task"]: report["open_rows"] for report in batch.reports}
        since = (
            before.committed if before and before.run_id == batch.run_id else started.get(batch.run_id, batch.committed)
        )
        seconds = max(batch.committed - since, 1) / 1000
        of = batch.summary
        read = sum(
            of_input["messages"]
            for report in batch.reports
            for stream, of_input in report["inputs"].items()
            if stream in sources
        )
        rows.append(
            (
                batch.batch,
                batch.committed,
                seconds,
                read,
                of["input_messages"] - read,
                of["control_messages"],
                of["control_sent"],
                of["output_messages"],
                of["late_messages"],
                read / seconds,
                lowest_ms.get(batch.batch),
                sum(open_rows.values()),
                of["tasks"],
            )
        )
        before = batch
    return frame_of(rows, _BATCHES)


def bookkeeping_frame(outline: JobOutline, bookkeeping: Mapping[int, Mapping[str, Any]]) -> pd.DataFrame:
    """What each task has heard from each of its upstream tasks, one row for each (task, SSP, kind, upstream task).

    `total` is the number of upstream tasks that have to report; `reconciled` the watermark they agreed on.
    """
    from workbench.reconciliation import Reconciliation

    rows = []
    for task, streams in sorted(bookkeeping.items()):
        for stream, saved in streams.items():
            reconciliation = Reconciliation.from_json(saved)
            reconciled, state = _shown(reconciliation.watermark), str(reconciliation.state)
            partition = outline.input(stream).partition_of(task)
            heard: list[_Heard] = [
                (kind, upstream or "source", value, True, total)
                for kind, upstream, value, total in reconciliation.rows()
            ]
            silent: list[_Heard] = [
                (kind, upstream, None, False, None)
                for kind in ("watermark", "end of stream")
                for upstream in outline.input(stream).upstream_tasks
                if not any(row[:2] == (kind, upstream) for row in heard)
            ]
            for kind, upstream, value, was_heard, total in sorted(heard + silent, key=lambda row: (row[0], row[1])):
                rows.append(
                    (
                        task_name(task),
                        stream,
                        partition,
                        kind,
                        upstream,
                        _shown(value),
                        was_heard,
                        total,
                        reconciled,
                        state,
                    )
                )
    return frame_of(rows, _BOOKKEEPING)


def in_generations(
    batches: Iterable[BatchRecord], forget: Callable[..., object], *arguments: object
) -> Iterator[BatchRecord]:
    """The batches, one by one; before the first of a new generation (after a drain, a rewind) `forget(*arguments)`."""
    generation: int | None = None
    for batch in batches:
        of = batch.summary["generation"]
        if of is not None:
            if generation is not None and of > generation:
                forget(*arguments)
            generation = of
        yield batch


def _shown(milliseconds: int | None) -> int | None:
    """A time that can be shown: not the end of time, and not what no calendar of pandas can hold."""
    if milliseconds is None or milliseconds == MAX_TIMESTAMP:
        return None
    return milliseconds


def frame_of(rows: list[tuple[Any, ...]], columns: Mapping[str, str]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=list(columns))
    for column, dtype in columns.items():
        if dtype == TIME:
            frame[column] = pd.to_datetime(frame[column].astype("Int64"), unit="ms", utc=True).astype(TIME)
        else:
            frame[column] = frame[column].astype(dtype)
    return frame
