"""JobSource: the streaming source of a job. Its offsets are the plan; its rows are the tasks' work orders."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.datasource_internal import SimpleInputPartition, _SimpleStreamReaderWrapper
from pyspark.sql.types import StructType

from workbench.engine.failures import TaskFailed, of_platform
from workbench.engine.planning import Positions, advance
from workbench.engine.work import Step, WorkOrder
from workbench.systems.log import StreamLog

HOLD_NAMESPACE = "tidemark-hold"
"""Metadata: while the key of a job is there, its source admits nothing more."""


class JobSource(DataSource):
    """`format("tidemark-job")`. Its one option `job` is what `source_options` made."""

    @classmethod
    def name(cls) -> str:
        return "tidemark-job"

    def schema(self) -> str:
        return "slot int, work string"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return JobReader(json.loads(self.options["job"]))


def source_options(
    *,
    job: str,
    log: StreamLog,
    slots: Sequence[int],
    inputs: Sequence[dict[str, Any]],
    initial: Positions,
    limit: int,
) -> dict[str, str]:
    """The options of `JobSource`; `inputs` name stream, partitions, intermediate and broadcast, in order of processing."""
    settings = {
        "job": job,
        "log": str(log.directory),
        "slots": list(slots),
        "inputs": list(inputs),
        "initial": initial,
        "limit": limit,
    }
    return {"job": json.dumps(settings)}


class JobReader(_SimpleStreamReaderWrapper):
    """Plans on the driver and hands the work orders to the JVM there, so that executors need no Python to read them.

    PySpark does this for "simple" readers, but on a replay it would have an executor make the rows again, and executors
    do not open the log's index. So this is one, with the rows always made on the driver from the two offsets.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(simple_reader=None)  # type: ignore[arg-type]
        self._settings = settings
        self._log = StreamLog(settings["log"], create=False)
        self._intermediate = frozenset(read["stream"] for read in settings["inputs"] if read["intermediate"])

    def initialOffset(self) -> dict[str, Any]:
        return {"batch": 0, "positions": self._settings["initial"]}

    def latestOffset(self, start: dict[str, Any], limit: object) -> dict[str, Any]:
        try:
            if self._log.metadata.get(HOLD_NAMESPACE, self._settings["job"]) is not None:
                return start
            positions: Positions = start["positions"]
            heads = {stream: self._log.stream(stream).heads() for stream in positions}
            ahead = advance(positions, heads, intermediate=self._intermediate, limit=self._settings["limit"])
        except Exception as error:
            raise TaskFailed(of_platform(error)) from error
        return start if ahead == positions else {"batch": start["batch"] + 1, "positions": ahead}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [SimpleInputPartition(start, end)]

    def getCache(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
        try:
            return iter(self.work(start, end))
        except Exception as error:
            raise TaskFailed(of_platform(error)) from error

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: what was read is known from the offsets that Spark logs."""

    def work(self, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, str]]:
        """One (slot, work order) for each task that has something to do between two offsets."""
        steps: dict[int, list[Step]] = {}
        slots = self._settings["slots"]
        for read in self._settings["inputs"]:
            stream = read["stream"]
            ranges = zip(start["positions"][stream], end["positions"][stream], strict=True)
            for partition, (first, last) in enumerate(ranges):
                if last > first:
                    step = Step(stream, partition, self._log.resolve(stream, partition, first, last))
                    for task in range(len(slots)) if read["broadcast"] else (partition,):
                        steps.setdefault(task, []).append(step)
        return [(slots[task], WorkOrder(task, start["batch"], steps[task]).to_json()) for task in sorted(steps)]
