"""Control messages, their envelope, and runs of them in columns."""

from workbench.messages.control import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    ControlMessage,
    DrainMessage,
    EndOfStreamMessage,
    MessageType,
    WatermarkMessage,
    control_from_json,
)
from workbench.messages.envelope import Serde, decode_envelope, encode_envelope
from workbench.messages.run import ControlRun

__all__ = [
    "MAX_TIMESTAMP",
    "MIN_TIMESTAMP",
    "ControlMessage",
    "ControlRun",
    "DrainMessage",
    "EndOfStreamMessage",
    "MessageType",
    "Serde",
    "WatermarkMessage",
    "control_from_json",
    "decode_envelope",
    "encode_envelope",
]
