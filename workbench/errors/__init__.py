"""Errors, built from the situation: what was wanted, what there is instead, and what to do next.

One module for each area. Everything that the workbench raises of its own is a `TidemarkError`.
"""

from workbench.errors._base import TidemarkError
from workbench.errors.choosers import ChooserFailed, InvalidChoice, InvalidChooser, InvalidRuns
from workbench.errors.drain import InvalidNotification, NotDrainable
from workbench.errors.feeds import FeederUsed, FeedTimeout
from workbench.errors.graph import (
    InvalidAggregate,
    InvalidDuration,
    InvalidExpression,
    InvalidGraph,
    InvalidWindow,
    SumOverflow,
    WrongType,
)
from workbench.errors.joins import InvalidJoin
from workbench.errors.log import (
    CorruptSegment,
    DiskFull,
    ForeignDirectory,
    InvalidMetadata,
    LogInUse,
    LogUnavailable,
    NoEventTime,
    OffsetOutOfRange,
    PartitionCountMismatch,
    SchemaMismatch,
    StaleEpoch,
    StreamEnded,
    StreamExists,
    UnknownPartition,
    UnstagedRows,
)
from workbench.errors.messages import InvalidIdlePolicy, InvalidMessage, UndecodableMessage
from workbench.errors.names import InvalidName, UnknownColumn, UnknownStream
from workbench.errors.rows import InvalidKey, InvalidTime, MissingDataset
from workbench.errors.runs import (
    DrainTimeout,
    IncompatibleCheckpoint,
    InvalidOption,
    NotRunning,
    RewindUndecided,
    RunFailed,
    RunTimeout,
    UnknownApplication,
    UnknownTask,
)
from workbench.errors.sessions import InvalidSetting, JavaNotFound, SessionConflict, SessionFailed, UnknownEnvironment
from workbench.errors.split import SplitConflict
from workbench.errors.startpoints import InvalidStartpoint, InvalidStartpointRequest, UnresolvableStartpoint

__all__ = [
    "ChooserFailed",
    "CorruptSegment",
    "DiskFull",
    "DrainTimeout",
    "FeedTimeout",
    "FeederUsed",
    "ForeignDirectory",
    "IncompatibleCheckpoint",
    "InvalidAggregate",
    "InvalidChoice",
    "InvalidChooser",
    "InvalidDuration",
    "InvalidExpression",
    "InvalidGraph",
    "InvalidIdlePolicy",
    "InvalidJoin",
    "InvalidKey",
    "InvalidMessage",
    "InvalidMetadata",
    "InvalidName",
    "InvalidNotification",
    "InvalidOption",
    "InvalidRuns",
    "InvalidSetting",
    "InvalidStartpoint",
    "InvalidStartpointRequest",
    "InvalidTime",
    "InvalidWindow",
    "JavaNotFound",
    "LogInUse",
    "LogUnavailable",
    "MissingDataset",
    "NoEventTime",
    "NotDrainable",
    "NotRunning",
    "OffsetOutOfRange",
    "PartitionCountMismatch",
    "RewindUndecided",
    "RunFailed",
    "RunTimeout",
    "SchemaMismatch",
    "SessionConflict",
    "SessionFailed",
    "SplitConflict",
    "StaleEpoch",
    "StreamEnded",
    "StreamExists",
    "SumOverflow",
    "TidemarkError",
    "UndecodableMessage",
    "UnknownApplication",
    "UnknownColumn",
    "UnknownEnvironment",
    "UnknownPartition",
    "UnknownStream",
    "UnknownTask",
    "UnresolvableStartpoint",
    "UnstagedRows",
    "WrongType",
]
