"""The two-stage job as a driver of a standalone cluster: `python -m tests.support.cluster_job MASTER LOG`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession

from workbench import Application, StreamLog, quantile, tumbling


def main(master: str, directory: str) -> None:
    spark = (
        SparkSession.builder.master(master)
        .appName("tidemark cluster test")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.executor.cores", "1")
        .config("spark.executor.memory", "1g")
        .config("spark.cores.max", "2")
        .config("spark.pyspark.python", sys.executable)
        .config("spark.executorEnv.PYTHONPATH", str(Path(__file__).resolve().parents[2]))
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .getOrCreate()
    )
    try:
        app = Application("hourly")

        def where(frame: pd.DataFrame) -> pd.DataFrame:
            return frame.assign(place=os.getcwd())

        keyed = app.input("events", event_time="at", out_of_orderness=3_600_000).partition_by("key", partitions=4)
        (
            keyed.window(tumbling("1h"), late="late")
            .aggregate(n=("id", "count"), total=("value", "sum"), p95=("value", quantile(0.95)), ids=("id", "nunique"))
            .send_to("panes")
        )
        keyed.map(where).send_to("places")
        run = app.deploy(spark, StreamLog(directory, create=False), max_messages=1_500, containers=2)
        run.wait(timeout=180, progress=False)
        print(run.status)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
