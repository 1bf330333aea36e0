"""Lanes: one task's reading of one partition of a stream. What plans count in (see `BatchPlan.positions`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class InputLanes:
    """A stream that the job reads, and which task reads which partition of it."""

    stream: str
    intermediate: bool
    lanes: list[tuple[int, int]]
    """(task, partition), in the order of `BatchPlan.positions`."""
    priority: int = 0
    bootstrap: bool = False
    event_time: str | None = None
    """The column of event times, where a chooser may need them."""
    external: bool = False
    """Another job of the same application writes it."""

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> InputLanes:
        return cls(**{**saved, "lanes": [tuple(lane) for lane in saved["lanes"]]})
