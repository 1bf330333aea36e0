"""Damaged files, a full disk, data that change their type: a sentence, nothing lost, and on it goes once it is mended."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import workbench as wb
from tests.support.jobs import assert_hourly_is_true, events, hourly, write_events
from workbench.errors import RunFailed


@pytest.fixture
def log(log_dir: Path) -> wb.StreamLog:
    return wb.StreamLog(log_dir)


def failure_of(app: wb.Application, spark: SparkSession, log: wb.StreamLog) -> str:
    with pytest.raises(RunFailed) as failed:
        app.deploy(spark, log, max_messages=700).wait(timeout=120)
    shown = str(failed.value)
    assert len(shown.splitlines()) < 25
    assert "\tat " not in shown, "no line of a JVM trace"
    return shown


def test_a_flipped_byte_in_a_segment_is_told_with_its_file_and_the_run_goes_on_when_it_is_back(
    spark: SparkSession, log: wb.StreamLog
) -> None:
    tables = events(3_000, partitions=2, disorder_ms=0)
    write_events(log, tables)
    ref = log.resolve("events", 1, 900, 901)[0]
    path = log.segments_directory / ref["f"]
    good = path.read_bytes()
    middle = ref["b"] + ref["n"] // 2
    path.write_bytes(good[:middle] + bytes([good[middle] ^ 0xFF]) + good[middle + 1 :])

    shown = failure_of(hourly(3), spark, log)
    assert path.name in shown and "Partition 1" in shown and "events" in shown
    assert sum(log.stream("hourly.key").heads()) > 0, "what was committed before is there"

    path.write_bytes(good)
    assert hourly(3).deploy(spark, log, max_messages=700).wait(timeout=120).status == "finished"
    assert_hourly_is_true(log, tables)


def test_a_segment_that_is_gone_is_told_with_its_file(spark: SparkSession, log: wb.StreamLog) -> None:
    write_events(log, events(500, partitions=1, disorder_ms=0))
    path = log.segments_directory / log.resolve("events", 0, 0, 1)[0]["f"]
    away = path.rename(path.with_suffix(".away"))
    assert path.name in failure_of(hourly(1), spark, log)
    away.rename(path)
    assert hourly(1).deploy(spark, log).wait(timeout=120).status == "finished"


@pytest.fixture
def small_disk(log: wb.StreamLog) -> Iterator[Path]:
    """The log's segments on a file system of their own with room for 2 MB."""
    segments = log.segments_directory
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(segments)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield segments
    subprocess.run(["umount", "-l", str(segments)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_is_told_and_the_run_goes_on_when_there_is_room(
    spark: SparkSession, log: wb.StreamLog, small_disk: Path
) -> None:
    tables = events(20_000, partitions=2, disorder_ms=0)
    write_events(log, tables, pieces=1)

    def app() -> wb.Application:
        application = wb.Application("hourly")
        keyed = application.input("events", event_time="at").partition_by("key", partitions=3)
        keyed.send_to("copy")
        (
            keyed.window(wb.tumbling("1h"), late="late")
            .aggregate(
                n=("id", "count"), total=("value", "sum"), p95=("value", wb.quantile(0.95)), ids=("id", "nunique")
            )
            .send_to("panes")
        )
        return application

    shown = failure_of(app(), spark, log)
    assert "no room" in shown or "full" in shown
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    assert app().deploy(spark, log).wait(timeout=120).status == "finished"
    assert_hourly_is_true(log, tables)
    assert log.stream("copy").to_pandas()["id"].is_unique
    assert len(log.stream("copy").to_pandas()) == 20_000


def test_a_column_that_changes_its_type_is_told_with_both_types_and_nothing_is_committed_of_it(
    spark: SparkSession, log: wb.StreamLog
) -> None:
    write_events(log, events(2_000, partitions=1, disorder_ms=0))
    app = wb.Application("changing")

    def change(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(value=frame["value"].astype(str) if frame["id"].min() > 500 else frame["value"])

    app.input("events").map(change).send_to("out")
    shown = failure_of(app, spark, log)
    assert "'out'" in shown and "value" in shown and "double" in shown and "string" in shown
    assert pa.types.is_float64(log.stream("out").schema.field("value").type)
    assert log.stream("out").heads() == [700]
