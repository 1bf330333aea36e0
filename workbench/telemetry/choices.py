"""The order that was chosen, as a pandas frame."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from workbench.names import task_name
from workbench.telemetry.frames import TIME, frame_of
from workbench.telemetry.recorder import BatchRecord

_CHOICES = {
    "batch": "int64", "time": TIME, "task": "str", "position": "int64", "stream": "str", "partition": "int64",
    "offset": "int64", "messages": "int64", "why": "str",
}  # fmt: skip


def choices_frame(batches: Iterable[BatchRecord]) -> pd.DataFrame:
    """What the chooser took, one row for each run of messages of one SSP, in the order taken.

    `position` counts the messages that the task took before it in the batch, `offset` is that of the run's first message,
    `why` says what decided. Empty where nothing was to be chosen.
    """
    from workbench.choosers.runs import decode_runs

    rows = []
    for batch in batches:
        for report in batch.reports:
            choices = report.get("choices")
            if choices is None:
                continue
            taken = [0] * len(choices["lanes"])
            position = 0
            for run in decode_runs(choices["runs"]):
                stream, partition, first = choices["lanes"][run.lane]
                rows.append(
                    (
                        batch.batch,
                        batch.committed,
                        task_name(report["task"]),
                        position,
                        stream,
                        partition,
                        first + taken[run.lane],
                        run.count,
                        run.why,
                    )
                )
                taken[run.lane] += run.count
                position += run.count
    return frame_of(rows, _CHOICES)
