"""What a drain, a stop and an abandoned run are about: who owes what, what was asked for, what is in flight."""

from __future__ import annotations

from collections.abc import Mapping, Set

import pandas as pd

from workbench.drain import clean_up, read_notifications
from workbench.graph.stages import JobOutline
from workbench.metadata import MetadataStore
from workbench.names import task_index, task_name
from workbench.telemetry.recorder import Recorder

_MOST_SENTENCES = 12
_MOST_NAMES = 4


def explain_drain(outline: JobOutline, drains: pd.DataFrame, unread: Mapping[tuple[str, int], int]) -> list[str]:
    """Sentences on what is pending in `drains` (see `telemetry.drains_frame`), first the stages that others wait for.

    `unread` tells how many messages wait in the lanes of intermediate streams.
    """
    pending = drains[drains["pending"]]
    sentences = []
    for row in pending.itertuples():
        task = task_index(row.task)
        lane = task if outline.input(row.stream).broadcast else row.partition
        waiting = unread.get((row.stream, lane), 0)
        parts = []
        if row.owed_by:
            who = "its own marker" if row.owed_by == "source" else _some(row.owed_by.split(", "))
            parts.append(f"has not heard the drain of {row.stream!r} from {who}")
        else:
            parts.append(f"has heard of {row.stream!r} all that it needs, in a batch that is not committed yet")
        if waiting:
            parts.append(f"{waiting:,} messages wait there")
        if row.open_rows:
            parts.append(f"it holds {row.open_rows:,} rows")
        sentences.append(f"{row.task} in {row.stage} {'; '.join(parts)}")
    more = len(sentences) - _MOST_SENTENCES
    return sentences[:_MOST_SENTENCES] + (
        [f"and {more} more, which wait for these or for their like"] if more > 0 else []
    )


def notifications_frame(store: MetadataStore, run_id: str) -> pd.DataFrame:
    """All drain notifications: `uuid`, `run_id`, `mode`, `requested`, and `state`, which tells what this run makes of it."""
    found = read_notifications(store)
    rows: list[tuple[object, ...]] = [
        (
            str(notification.uuid),
            notification.run_id,
            notification.mode.name,
            notification.requested,
            "for this run" if notification.run_id == run_id else f"ignored: for the run {notification.run_id}",
        )
        for notification in found.valid
    ]
    rows += [(unreadable.key, "", "", None, f"skipped: {unreadable.why}") for unreadable in found.unreadable]
    frame = pd.DataFrame(rows, columns=["uuid", "run_id", "mode", "requested", "state"])
    frame["requested"] = pd.to_datetime(frame["requested"].astype("Int64"), unit="ms", utc=True)
    return frame


def clean_up_all_runs(store: MetadataStore, recorder: Recorder) -> None:
    """Remove the notifications for all runs that a job has had: whatever they asked for, nothing of it is left to do.

    Where other jobs of the same deployment still run, they are for them, too; the last one removes them.
    """
    for run in recorder.runs():
        if not recorder.runs_elsewhere(run.run_id):
            clean_up(store, run.run_id)


def clean_up_carried_out(store: MetadataStore, recorder: Recorder, drain_of: str | None) -> None:
    """Remove the notifications that a drain before this deployment has carried out: of the run that it was for, and of
    those that took part. One for a run that died before it did anything is kept: it is told, and may be taken yet."""
    for run_id in {*recorder.runs_with_batches(), *([] if drain_of is None else [drain_of])}:
        if not recorder.runs_elsewhere(run_id):
            clean_up(store, run_id)


def forgotten_drains(store: MetadataStore, recorder: Recorder, taken_up: Set[str]) -> list[str]:
    """Sentences on drains that were asked of runs of this job that died before they began them, but for `taken_up`."""
    dead = {run.run_id for run in recorder.runs()} - taken_up
    asked = sorted({notification.run_id for notification in read_notifications(store).valid} & dead)
    return [
        f"A drain was asked of the run {name}, which ended before it began that. This run does not drain: deploy with"
        f" run_id={name!r} to take it up, or drain this run."
        for name in asked
    ]


def in_flight_frame(
    outline: JobOutline, unread: Mapping[tuple[str, int], int], open_rows: Mapping[int, int]
) -> pd.DataFrame:
    """One row for each task: `unread_messages` of intermediate streams, and `open_rows` that it holds."""
    messages = dict.fromkeys(range(outline.tasks), 0)
    for read in outline.inputs:
        for lane, (task, _) in enumerate(read.lanes(outline.tasks)):
            messages[task] += unread.get((read.stream, lane), 0)
    return pd.DataFrame(
        [(task_name(task), count, open_rows.get(task, 0)) for task, count in messages.items()],
        columns=["task", "unread_messages", "open_rows"],
    )


def _some(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
