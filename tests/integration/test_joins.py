"""Joins on Spark: state in its state store, across a stop in the middle."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pandas as pd
import pyarrow as pa
from pyspark.sql import SparkSession

import workbench as wb
from tests.support.jobs import events, write_events

HOUR = 3_600_000


def test_a_stopped_join_goes_on_with_the_rows_it_holds_and_equals_a_batch_join(
    spark: SparkSession, log_dir: Path
) -> None:
    log = wb.StreamLog(log_dir)
    tables = {
        side: events(2_000, partitions=2, disorder_ms=HOUR, seed=seed) for side, seed in (("left", 1), ("right", 2))
    }
    names = pa.table({"key": [f"key-{n}" for n in range(6)], "name": [f"name {n}" for n in range(6)]})
    log.create("names", 1).append(names)
    log.stream("names").end()
    for side, parts in tables.items():
        write_events(log, [part.slice(0, 600) for part in parts], side, end=False)

    def app() -> wb.Application:
        made = wb.Application("joined")
        table = made.input("names", bootstrap=True).broadcast().table("key")
        left, right = (
            made.input(side, event_time="at", out_of_orderness="1h").partition_by(
                "key", partitions=3, name=f"{side} by key"
            )
            for side in ("left", "right")
        )
        left.join(right, on="key", within=("10 min", "20 min"), how="left").join(table, how="left").send_to("out")
        return made

    run = app().deploy(spark, log, max_messages=700, chooser="time_aligned")
    deadline = time.monotonic() + 90
    while run.totals()["input_messages"] < 2_400 + 6 and time.monotonic() < deadline:
        time.sleep(0.1)
    run.stop()
    assert run.batches()["open_rows"].max() > 0, "rows are held over the stop"
    for side, parts in tables.items():
        write_events(log, [part.slice(600) for part in parts], side)
    run = app().deploy(spark, log, max_messages=900, containers=2).wait(timeout=120)
    assert run.status == "finished"
    assert run.batches().iloc[-1]["open_rows"] == 0

    out = log.stream("out").to_pandas()
    rows = {side: pd.concat(part.to_pandas() for part in parts) for side, parts in tables.items()}
    both = rows["left"].merge(rows["right"], on="key", suffixes=("", "_right"))
    apart = (both["at_right"] - both["at"]) / pd.Timedelta("1ms")
    both = both[apart.between(-HOUR / 6, HOUR / 3)]
    expected = Counter(zip(both["id"], both["id_right"], strict=True))
    expected += Counter((number, -1) for number in set(rows["left"]["id"]) - set(both["id"]))
    assert expected == Counter(zip(out["id"], out["id_right"].fillna(-1).astype("int64"), strict=True))
    assert not out["drained"].any()
    assert (out["name"].isna() == (out["key"] == "key-6")).all()
