"""Startpoints: start the next run of an application from somewhere else than its checkpoint says."""

from workbench.startpoints.encoding import startpoint_from_json
from workbench.startpoints.fan_out import (
    Assignment,
    Decision,
    FannedOut,
    FanOut,
    Overridden,
    Receipt,
    Request,
    Source,
    Unreadable,
    decide,
)
from workbench.startpoints.manager import StartpointManager, remove_consumed_in
from workbench.startpoints.model import (
    STALE_AFTER,
    Startpoint,
    StartpointOldest,
    StartpointSpecific,
    StartpointTimestamp,
    StartpointUpcoming,
    StartpointVisitor,
)
from workbench.startpoints.preview import PreviewRow, consumers, preview, preview_frame, rewinds
from workbench.startpoints.shorthand import by_duration, shift_by, whole_application, whole_stream
from workbench.startpoints.store import FAN_OUT_NAMESPACE, WRITTEN_NAMESPACE, Stored

__all__ = [
    "FAN_OUT_NAMESPACE",
    "STALE_AFTER",
    "WRITTEN_NAMESPACE",
    "Assignment",
    "Decision",
    "FanOut",
    "FannedOut",
    "Overridden",
    "PreviewRow",
    "Receipt",
    "Request",
    "Source",
    "Startpoint",
    "StartpointManager",
    "StartpointOldest",
    "StartpointSpecific",
    "StartpointTimestamp",
    "StartpointUpcoming",
    "StartpointVisitor",
    "Stored",
    "Unreadable",
    "by_duration",
    "consumers",
    "decide",
    "preview",
    "preview_frame",
    "remove_consumed_in",
    "rewinds",
    "shift_by",
    "startpoint_from_json",
    "whole_application",
    "whole_stream",
]
