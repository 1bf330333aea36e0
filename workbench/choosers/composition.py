"""The choosers of a job, one within the other.

Source: `DefaultChooser` of Apache Samza, but with batching within each priority, as the design document has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from workbench.choosers.base import MakeChooser, MessageChooser
from workbench.choosers.batching import BatchingChooser, checked_batch_size
from workbench.choosers.bootstrapping import BootstrappingChooser
from workbench.choosers.tiers import TieredPriorityChooser
from workbench.names import SSP


def compose(
    tie_breaker: MakeChooser,
    *,
    batch_size: int = 1,
    priority_of: Callable[[SSP], int] | Mapping[SSP, int] | None = None,
    bootstrap_heads: Mapping[SSP, int] | None = None,
    oldest: Mapping[SSP, int] | None = None,
) -> MessageChooser:
    """Bootstrapping over priorities; in each priority batching over the tie-breaker.

    `tie_breaker` makes a chooser for each priority. `bootstrap_heads` are the heads, at the start, of each SSP of each
    bootstrap stream; `oldest` their oldest offsets. What is not asked for is left out: without priorities, bootstrap
    streams and with a batch size of 1 the result is a chooser of `tie_breaker`. Raises `InvalidChooser`.
    """
    checked_batch_size(batch_size)
    tier: MakeChooser = tie_breaker if batch_size == 1 else lambda: BatchingChooser(tie_breaker(), batch_size)
    chooser = tier() if priority_of is None else TieredPriorityChooser(priority_of, tier)
    return BootstrappingChooser(chooser, bootstrap_heads, oldest) if bootstrap_heads else chooser
