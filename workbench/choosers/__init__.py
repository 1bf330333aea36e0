"""Message choosers: which input goes first, within a task and within a job.

Source: "Pluggable MessageChooser" design document of Apache Samza. The choosers are the specification, readable and asked
message by message; `plan_runs` gives the same order for a whole batch at once.
"""

from workbench.choosers.base import MakeChooser, MessageChooser
from workbench.choosers.batching import BatchingChooser
from workbench.choosers.bootstrapping import BootstrappingChooser
from workbench.choosers.composition import compose
from workbench.choosers.content import EntryContent, lane_of_entries
from workbench.choosers.driver import ChooserDriver, slow_runs
from workbench.choosers.envelope import IncomingEnvelope, LaneContent
from workbench.choosers.gate import Admission, LanePosition, admitted_lanes
from workbench.choosers.lanes import LaneArrivals
from workbench.choosers.own import FunctionChooser, SortKeyChooser, by
from workbench.choosers.plan import plan_runs
from workbench.choosers.policy import ChooserOption, ChooserPolicy
from workbench.choosers.round_robin import RoundRobinChooser
from workbench.choosers.runs import BatchChoice, Run, Runs, decode_runs, encode_runs
from workbench.choosers.starting_alignment import StartingAlignmentChooser
from workbench.choosers.tiers import DEFAULT_PRIORITY, HIGHEST_PRIORITY, TieredPriorityChooser
from workbench.choosers.time_aligned import TimeAlignedChooser

__all__ = [
    "DEFAULT_PRIORITY",
    "HIGHEST_PRIORITY",
    "Admission",
    "BatchChoice",
    "BatchingChooser",
    "BootstrappingChooser",
    "ChooserDriver",
    "ChooserOption",
    "ChooserPolicy",
    "EntryContent",
    "FunctionChooser",
    "IncomingEnvelope",
    "LaneArrivals",
    "LaneContent",
    "LanePosition",
    "MakeChooser",
    "MessageChooser",
    "RoundRobinChooser",
    "Run",
    "Runs",
    "SortKeyChooser",
    "StartingAlignmentChooser",
    "TieredPriorityChooser",
    "TimeAlignedChooser",
    "admitted_lanes",
    "by",
    "compose",
    "decode_runs",
    "encode_runs",
    "lane_of_entries",
    "plan_runs",
    "slow_runs",
]
