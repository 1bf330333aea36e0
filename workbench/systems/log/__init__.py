"""The embedded system: streams as Arrow segment files and one SQLite index in a directory."""

from workbench.systems.base import Controls, Entry, Rows
from workbench.systems.log.commits import ControlAppend
from workbench.systems.log.locks import LogLock
from workbench.systems.log.log import StreamLog
from workbench.systems.log.segments import SegmentWriter, StagedRows, read_ref
from workbench.systems.log.stream import Stream

__all__ = [
    "ControlAppend",
    "Controls",
    "Entry",
    "LogLock",
    "Rows",
    "SegmentWriter",
    "StagedRows",
    "Stream",
    "StreamLog",
    "read_ref",
]
