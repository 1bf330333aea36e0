"""TaskProcessor: hosts tasks in Spark's transformWithState and keeps their state in its state store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
    ValueState,
)

from workbench.engine.failures import TaskFailed, of_platform
from workbench.engine.task import Task, TaskSettings
from workbench.engine.work import WorkOrder

TASK_STATE, TASK_STATE_SCHEMA = "task", "state string"
WINDOW_STATE = "windows"


class TaskProcessor(StatefulProcessor):
    """One group is one task. A batch costs a task one read and one write of its state, and the window chunks it touches."""

    def __init__(self, settings: TaskSettings) -> None:
        self.settings = settings

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.state = handle.getValueState(TASK_STATE, TASK_STATE_SCHEMA)
        self.windows = handle.getMapState(WINDOW_STATE, "operator int, chunk string", "rows binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        for row in rows:
            order = WorkOrder.from_json(row.work)
            try:
                report = Task(self.settings, order, SparkTaskStore(self.state, self.windows)).run()
            except TaskFailed:
                raise
            except (Exception, SystemExit) as error:  # a function of the user's may call sys.exit
                raise TaskFailed(of_platform(error, task=f"Partition {order.task}")) from error
            yield Row(task=order.task, report=report.to_json())

    def close(self) -> None:
        """Nothing is open between batches."""


class SparkTaskStore:
    """The state of one task in Spark's state store; valid while its group is processed."""

    def __init__(self, state: ValueState, windows: MapState) -> None:
        self._state = state
        self._windows = windows

    def load(self) -> str | None:
        value = self._state.get()
        return None if value is None else value[0]

    def save(self, state: str) -> None:
        self._state.update((state,))

    def chunks(self, operator: int) -> SparkChunks:
        return SparkChunks(self._windows, operator)


class SparkChunks:
    """The window chunks of one operator of one task. Each call is a socket round trip, near 1 ms."""

    def __init__(self, windows: MapState, operator: int) -> None:
        self._windows = windows
        self._operator = operator

    def get(self, id: str) -> bytes:
        value = self._windows.getValue((self._operator, id))
        if value is None:
            raise KeyError(id)
        return bytes(value[0])

    def put(self, id: str, chunk: bytes) -> None:
        self._windows.updateValue((self._operator, id), (chunk,))

    def delete(self, id: str) -> None:
        self._windows.removeKey((self._operator, id))
