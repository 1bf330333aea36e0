"""Tasks spread evenly over containers, as Spark's own hash partitioning places them."""

from __future__ import annotations

from collections import Counter

import pytest

from workbench.engine.slots import container_of, slots


@pytest.mark.parametrize(("tasks", "containers"), [(1, 1), (4, 2), (7, 3), (256, 2), (64, 16)])
def test_every_task_has_its_own_slot_and_containers_share_tasks_evenly(tasks: int, containers: int) -> None:
    chosen = slots(tasks, containers)
    assert len(set(chosen)) == tasks
    hosted = Counter(container_of(slot, containers) for slot in chosen)
    assert max(hosted.values()) - min(hosted.values()) <= 1
    assert [container_of(slot, containers) for slot in chosen] == [task % containers for task in range(tasks)]


def test_slots_land_where_spark_puts_them(spark) -> None:
    from pyspark.sql import functions as f

    containers = 5
    frame = spark.createDataFrame([(key,) for key in range(-50, 200)], "key int")
    placed = frame.select("key", f.expr(f"pmod(hash(key), {containers})").alias("container")).collect()
    assert all(container_of(row.key, containers) == row.container for row in placed)
