"""What runs recorded: written with each commit, read as frames by any process that can open the log."""

from workbench.telemetry.frames import (
    batches_frame,
    bookkeeping_frame,
    end_of_stream_frame,
    watermarks_frame,
)
from workbench.telemetry.recorder import BatchRecord, Recorder, RunRecord
from workbench.telemetry.tally import Tally

__all__ = [
    "BatchRecord",
    "Recorder",
    "RunRecord",
    "Tally",
    "batches_frame",
    "bookkeeping_frame",
    "end_of_stream_frame",
    "watermarks_frame",
]
