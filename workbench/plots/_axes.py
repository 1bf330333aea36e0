"""What runs to the right: batches, or the time of their commits."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Axis = Literal["batch", "time"]
"""The number of the batch, or the wall-clock time of its commit (UTC)."""

_FEW = 12


def axis_title(by: Axis) -> str:
    """The words below the axis."""
    return "batch" if by == "batch" else "time of commit (UTC)"


def x_axis(by: Axis, batches: NDArray[np.int64]) -> dict[str, object]:
    """The settings of the axis. There are no half batches, so few of them get a tick each."""
    if by == "time":
        return {"type": "date"}
    few = int(batches.max() - batches.min()) <= _FEW
    return {"type": "linear", "tickformat": ",d", **({"tick0": 0, "dtick": 1} if few else {})}


def at_point(by: Axis) -> str:
    """The place of a point in a hover template."""
    return "batch %{x}" if by == "batch" else "%{x|%Y-%m-%d %H:%M:%S}"
