"""Which windows a row belongs to. Event times are int64 milliseconds since the epoch, UTC; no I/O, no clock.

Tumbling and sliding windows [start, start + size) are aligned to `origin`, as those of Spark's `window` are to its
start time. All windows of one row form a range of starts, `slide` apart, so a row's partial aggregate is kept once for
the range and not once for each window. Sessions follow Spark's `session_window`, see `Session`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.errors import InvalidWindow
from workbench.windows.durations import Duration, duration_text, milliseconds

Times = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Aligned:
    """Windows of `size` that start every `slide` from `origin` on (milliseconds). Tumbling if the two are equal."""

    size: int
    slide: int
    origin: int = 0

    def __post_init__(self) -> None:
        if self.size <= 0:
            raise InvalidWindow.not_positive("size", duration_text(self.size))
        if self.slide <= 0:
            raise InvalidWindow.not_positive("slide", duration_text(self.slide))
        if self.slide > self.size:
            raise InvalidWindow.gaps(duration_text(self.size), duration_text(self.slide))

    @property
    def is_tumbling(self) -> bool:
        return self.size == self.slide

    def starts(self, times: Times) -> tuple[Times, Times]:
        """First and last start of the windows that hold each time; the same array twice for tumbling windows."""
        offset = np.mod(times - self.origin, self.slide)
        last = times - offset
        if self.is_tumbling:
            return last, last
        return last - (self.size - 1 - offset) // self.slide * self.slide, last

    def last_closed_start(self, watermark: int) -> int:
        """The greatest start of a window that is closed at `watermark`: its end is at or before it."""
        bound = watermark - self.size
        return bound - (bound - self.origin) % self.slide

    def __str__(self) -> str:
        name = f"tumbling {duration_text(self.size)}"
        if not self.is_tumbling:
            name = f"sliding {duration_text(self.size)} every {duration_text(self.slide)}"
        return name + (f" from {duration_text(self.origin)}" if self.origin else "")


@dataclass(frozen=True)
class Session:
    """Sessions per key: [first, last + gap), where no two neighbours are more than `gap` milliseconds apart.

    As in Spark, a row at exactly last + gap still belongs to the session. So a session is closed only when the
    watermark is past its end; at the end itself, a row on time could still join it.
    """

    gap: int

    def __post_init__(self) -> None:
        if self.gap <= 0:
            raise InvalidWindow.not_positive("gap", duration_text(self.gap))

    def __str__(self) -> str:
        return f"session {duration_text(self.gap)}"


Assigner = Aligned | Session


def tumbling(size: Duration, *, origin: Duration = 0) -> Aligned:
    """Windows of `size` side by side. `origin` moves their edges, for example to a day that starts at 6 o'clock.

    Raises `InvalidDuration` or `InvalidWindow`.
    """
    length = milliseconds(size, "size")
    return Aligned(length, length, milliseconds(origin, "origin"))


def sliding(size: Duration, slide: Duration, *, origin: Duration = 0) -> Aligned:
    """Windows of `size` that start every `slide`, which is at most `size`. Raises `InvalidDuration` or
    `InvalidWindow`."""
    return Aligned(milliseconds(size, "size"), milliseconds(slide, "slide"), milliseconds(origin, "origin"))


def session(gap: Duration) -> Session:
    """Windows that end when a key is silent for longer than `gap`. Raises `InvalidDuration` or `InvalidWindow`."""
    return Session(milliseconds(gap, "gap"))
