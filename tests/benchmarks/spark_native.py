"""Spark's own query for the same work: watermark, hourly windows per key, four aggregates, append mode."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_STATE = "org.apache.spark.sql.execution.streaming.state"
PROVIDERS = {
    "in-memory": f"{_STATE}.HDFSBackedStateStoreProvider",
    "RocksDB": f"{_STATE}.RocksDBStateStoreProvider",
}
SCHEMA = "event_time timestamp, key string, value double"


def default_session(state: str | None = None, **config: Any) -> SparkSession:
    """A session as Spark makes it, with its full compiler and collector; only as many shuffle partitions as cores.

    Spark's own 200 would make 200 state stores for two cores, which nobody would call a fair setting.
    """
    import os

    from pyspark.sql import SparkSession

    from workbench.session.java import find_java

    os.environ["JAVA_HOME"] = str(find_java().home)
    cores = len(os.sched_getaffinity(0))
    settings = {
        "spark.master": f"local[{cores}]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.session.timeZone": "UTC",
        **({} if state is None else {_PROVIDER: PROVIDERS[state]}),
        **config,
    }
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def events(spark: SparkSession, directory: str, files_per_batch: int) -> DataFrame:
    """The Parquet files as a stream, so many of them a batch."""
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files_per_batch).parquet(directory)


def hourly(rows: DataFrame, disorder: str = "60 seconds") -> DataFrame:
    """The same panes as `ours.hourly`: key, window_start, n, total, mean, top."""
    from pyspark.sql import functions as F

    return (
        rows.withWatermark("event_time", disorder)
        .groupBy(F.window("event_time", "1 hour"), "key")
        .agg(
            F.count("value").alias("n"),
            F.sum("value").alias("total"),
            F.avg("value").alias("mean"),
            F.max("value").alias("top"),
        )
        .select("key", F.col("window.start").alias("window_start"), "n", "total", "mean", "top")
    )


def to_parquet(panes: DataFrame, directory: Path, *, available_now: bool = True) -> Any:
    """Start the query; its panes and its checkpoint go below `directory`."""
    writer = panes.writeStream.format("parquet").outputMode("append")
    writer = writer.option("checkpointLocation", str(directory / "checkpoint")).option("path", str(directory / "panes"))
    return (writer.trigger(availableNow=True) if available_now else writer).start()
