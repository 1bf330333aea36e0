"""Random numbers that are the same on every machine and with every version of NumPy.

NumPy promises stable raw bits of PCG64, but not stable distributions. So everything here is made of raw bits by
operations whose result IEEE 754 fixes to the last bit: no logarithms, no library distributions.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Draws:
    """A stream of random numbers, given by a seed and the path of what it is for (a partition, a column)."""

    def __init__(self, seed: int, *path: int) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=path))

    def uniform(self, n: int) -> Floats:
        """`n` numbers, evenly spread over [0, 1)."""
        bits: npt.NDArray[np.uint64] = self._bits.random_raw(n)
        return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, limit: int, n: int, *, skew: int = 1) -> Integers:
        """`n` integers in [0, limit). With `skew` 1 all are equally frequent, above it small ones are more frequent."""
        uniform = self.uniform(n)
        skewed = uniform.copy()
        for _ in range(skew - 1):
            skewed *= uniform
        return (skewed * limit).astype(np.int64)
