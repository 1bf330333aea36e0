"""A task's bookkeeping of control messages from all upstream tasks, and the single message it acts on when they agree."""

from workbench.reconciliation.aggregate import Aggregator, aggregate_partition
from workbench.reconciliation.endings import DrainBookkeeping, EndOfStreamBookkeeping
from workbench.reconciliation.idle import IdleClock, IdlePolicy, Silence
from workbench.reconciliation.inputs import BookkeepingRow, Reconciliation
from workbench.reconciliation.states import InputState
from workbench.reconciliation.watermarks import WatermarkBookkeeping

__all__ = [
    "Aggregator",
    "BookkeepingRow",
    "DrainBookkeeping",
    "EndOfStreamBookkeeping",
    "IdleClock",
    "IdlePolicy",
    "InputState",
    "Reconciliation",
    "Silence",
    "WatermarkBookkeeping",
    "aggregate_partition",
]
