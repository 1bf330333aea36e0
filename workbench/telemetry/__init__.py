"""What runs recorded: written with each commit, read as frames by any process that can open the log."""

from workbench.telemetry.frames import (
    batches_frame,
    bookkeeping_frame,
    end_of_stream_frame,
    watermarks_frame,
)
from workbench.telemetry.recorder import BatchRecord, Recorder, RunRecord

__all__ = [
    "BatchRecord",
    "Recorder",
    "RunRecord",
    "batches_frame",
    "bookkeeping_frame",
    "end_of_stream_frame",
    "watermarks_frame",
]
