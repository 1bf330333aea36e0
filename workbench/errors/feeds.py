"""Feeding a stream piece by piece."""

from __future__ import annotations

from workbench.errors._base import TidemarkError


class FeedTimeout(TidemarkError, TimeoutError):
    """A wait for a feeder that ended before the feeder did."""

    @classmethod
    def after(cls, stream: str, seconds: float, rows: int) -> FeedTimeout:
        return cls(
            f"The feeder of {stream!r} is not done after {seconds:g} s; it has appended {rows:,} rows so far and goes on."
            " feeder.wait() waits for it again, feeder.stop() ends it."
        )

    @classmethod
    def of_append(cls, stream: str, seconds: float, rows: int) -> FeedTimeout:
        return cls(
            f"The feeder of {stream!r} was told to stop, but an append that began before has not ended after"
            f" {seconds:g} s ({rows:,} rows are in). It stops behind that one: call feeder.stop() again."
        )


class FeederUsed(TidemarkError, RuntimeError):
    """A feeder that is started a second time."""

    @classmethod
    def again(cls, stream: str) -> FeederUsed:
        return cls(f"This feeder of {stream!r} was started before. Make a new one for the pieces that are left.")
