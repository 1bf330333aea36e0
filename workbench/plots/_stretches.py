"""From the minima of a stage, batch by batch, to stretches in which they stay the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.plots._stages import FINISHED, NAMES, UNKNOWN, Stage

MOST_STRETCHES = 400
"""A strip of more stretches is drawn in equal steps, each as who held it back longest."""
_MOST_NAMES = 3


@dataclass(frozen=True)
class Stretch:
    """Batches `first` to `last` (positions) in which the same tasks were the minimum, because of the same inputs, in one
    state. `tasks` and `streams` are what they are called; several tasks hold the stage back together where they are level.
    """

    stage: Stage
    first: int
    last: int
    tasks: tuple[str, ...]
    streams: tuple[str, ...]
    state: str

    @property
    def behind(self) -> float:
        """Milliseconds by which they are behind the next task at the end of the stretch; nan where there is none."""
        others = self.stage.watermark[self.last][~self.stage.minimal[self.last]]
        others = others[~np.isnat(others)]
        mine = self.stage.lowest[self.last]
        if np.isnat(mine) or not len(others):
            return float("nan")
        return float((others.min() - mine) / np.timedelta64(1, "ms"))

    @property
    def who(self) -> str:
        """The tasks by name, or how many they are."""
        if len(self.tasks) == len(self.stage.tasks) > 1 or self.state == "finished":
            return "all tasks"
        return _named(self.tasks, "tasks")

    @property
    def inputs(self) -> str:
        """The streams on which they wait, or how many they are; nothing where nobody waits any more."""
        return "" if self.state == "finished" else _named(self.streams, "streams")


def _named(names: tuple[str, ...], what: str) -> str:
    return ", ".join(names) if len(names) <= _MOST_NAMES else f"{len(names)} {what}"


def stretches(stage: Stage) -> list[Stretch]:
    """The stretches of a stage, in order and without gaps."""
    # While tasks are unknown they hold it back together, and when all have finished nobody does: one stretch each.
    single = ~np.isin(stage.lowest_state, (UNKNOWN, FINISHED))
    holds = np.where(stage.minimal & single[:, None], stage.inputs, 0)
    new = np.ones(len(holds), dtype=bool)
    new[1:] = (holds[1:] != holds[:-1]).any(axis=1) | (stage.lowest_state[1:] != stage.lowest_state[:-1])
    starts = np.flatnonzero(new)
    ends = np.append(starts[1:], len(holds)) - 1
    found = []
    for first, last in zip(starts.tolist(), ends.tolist(), strict=True):
        columns = np.flatnonzero(stage.minimal[last])
        tasks = tuple(stage.tasks[column] for column in columns.tolist())
        inputs = int(np.bitwise_or.reduce(stage.inputs[last, columns]))
        streams = tuple(stream for bit, stream in enumerate(stage.streams) if inputs >> bit & 1)
        found.append(Stretch(stage, first, last, tasks, streams, NAMES[stage.lowest_state[first]]))
    return found


def bounded(every: list[Stretch]) -> list[Stretch]:
    """At most `MOST_STRETCHES` of them: in each equal step the longest stands for all, and neighbours join."""
    if len(every) <= MOST_STRETCHES:
        return every
    stage = every[0].stage
    lengths = np.array([stretch.last - stretch.first + 1 for stretch in every])
    owner = np.repeat(np.arange(len(every)), lengths)
    fewer: list[Stretch] = []
    for step in np.array_split(np.arange(len(owner)), MOST_STRETCHES):
        # Add up per tasks and state, not per stretch: many short ones outweigh one long.
        weight: dict[tuple[tuple[str, ...], tuple[str, ...], str], int] = {}
        for index in owner[step].tolist():
            key = (every[index].tasks, every[index].streams, every[index].state)
            weight[key] = weight.get(key, 0) + 1
        most = max(weight, key=lambda key: weight[key])
        first = int(step[0])
        if fewer and (fewer[-1].tasks, fewer[-1].streams, fewer[-1].state) == most:
            first = fewer.pop().first
        fewer.append(Stretch(stage, first, int(step[-1]), *most))
    return fewer
