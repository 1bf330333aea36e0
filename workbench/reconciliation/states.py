"""The five states of an input, everywhere the same."""

from __future__ import annotations

from enum import StrEnum


class InputState(StrEnum):
    """What a time can not say about an input."""

    UNKNOWN = "unknown"
    """It has no watermark yet."""
    ACTIVE = "active"
    """It has a watermark and goes on."""
    IDLE = "idle"
    """Nothing has come for longer than the idle timeout."""
    HELD = "held"
    """We hold it ourselves: the chooser or a pause."""
    FINISHED = "finished"
    """It has ended or drained."""
