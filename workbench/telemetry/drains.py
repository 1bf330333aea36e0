"""The record of a drain as a pandas frame: who has heard it from whom, and who has not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from workbench.graph.stages import JobOutline
from workbench.names import task_name
from workbench.reconciliation import aggregate_partition
from workbench.telemetry.frames import TIME, frame_of, in_generations
from workbench.telemetry.recorder import BatchRecord

_DRAINS = {
    "run_id": "str", "task": "str", "stage": "str", "stream": "str", "partition": "int64", "pending": "bool",
    "heard": "int64", "expected": "int64", "heard_from": "str", "owed_by": "str", "open_rows": "int64", "requested": TIME,
    "seen": TIME, "drained_at": TIME, "batch": "Int64",
}  # fmt: skip


def drains_frame(
    outline: JobOutline,
    batches: Iterable[BatchRecord],
    open_rows: Mapping[int, int] | None = None,
    routing: str = "broadcast",
) -> pd.DataFrame:
    """The newest drain: one row for each SSP of each task, in the order of the stages. Empty if there was none.

    `pending` until the SSP has drained or ended; `heard_from` and `owed_by` name upstream tasks ("source": the marker that
    the job itself puts behind what it admitted), `heard` of `expected` is their number; `requested`, `seen` and
    `drained_at` are times, `batch` the one in which it drained; `open_rows` is what the task still holds. By `routing`
    "aggregate" the owner of one partition hears from all upstream tasks, and the others hear from that task.
    """
    newest: BatchRecord | None = None
    heard: dict[tuple[int, str], dict[str, None]] = {}
    finished: dict[tuple[int, str], tuple[int, int]] = {}

    def forget() -> None:
        heard.clear()
        finished.clear()

    for batch in in_generations(batches, forget):
        newest = batch
        for report in batch.reports:
            for stream, of in report["inputs"].items():
                heard.setdefault((report["task"], stream), {}).update(dict.fromkeys([*of["ends"], *of["drains"]]))
                if of["state"] == "finished":
                    finished.setdefault((report["task"], stream), (batch.batch, batch.committed))
    drain = newest.summary["drain"] if newest is not None else None
    if newest is None or drain is None:
        return frame_of([], _DRAINS)
    rows = []
    for read in sorted(outline.inputs, key=lambda read: read.stage):
        for task, partition in read.lanes(outline.tasks):
            said = list(heard.get((task, read.stream), ()))
            expected = list(read.upstream_tasks) or ["source"]
            owner = aggregate_partition(read.stream, read.partitions)
            if read.intermediate and routing == "aggregate" and partition != owner:
                expected = [task_name(owner)]
                said = [expected[0] if name == "source" else name for name in said]
            batch_done, time = finished.get((task, read.stream), (None, None))
            owed = [] if batch_done is not None else [name for name in expected if name not in said]
            rows.append(
                (
                    newest.run_id,
                    task_name(task),
                    outline.stages[read.stage],
                    read.stream,
                    partition,
                    batch_done is None,
                    len(set(expected) & set(said)),
                    len(expected),
                    ", ".join(said),
                    ", ".join(owed),
                    (open_rows or {}).get(task, 0),
                    drain["requested"],
                    drain["seen"],
                    time,
                    batch_done,
                )
            )
    return frame_of(rows, _DRAINS)
