"""Batches of 1,000 rows in steady state: our two stages against one stateful batch of Spark's own."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks import inputs, processes
from tests.benchmarks.processes import Answer, alternated, middle, spread
from tests.benchmarks.results import Demand, Result, ratio
from tests.benchmarks.scale import CONTAINERS, SMALL_BATCH_MS, SMALL_BATCH_ROWS, Scale

_POLL_SECONDS = 0.05
_LONGEST_SECONDS = 300


def measure(scale: Scale, directory: Path) -> list[Result]:
    """Seconds per batch, as Spark itself reports them (`triggerExecution`)."""
    data = str(directory / "small")
    batches = scale.warm_batches + scale.batches
    processes.run(inputs.write_small_batches, directory=data, batches=batches)
    common = {"data": data, "warm_batches": scale.warm_batches}

    def against(session: str, state: str) -> partial[Answer]:
        return partial(processes.run, native, **common, scratch=str(directory), session=session, state=state)

    contenders = {
        "ours": partial(processes.run, ours, **common),
        "Spark, in-memory state": against("default", "in-memory"),
        "Spark, RocksDB state": against("default", "RocksDB"),
        "Spark, in-memory state, our session": against("local", "in-memory"),
        "transformWithStateInPandas, our session": partial(
            processes.run, with_state, **common, scratch=str(directory), batches=min(batches, scale.warm_batches + 10)
        ),
    }
    answers = alternated(contenders, scale.rounds, "small batch")
    seconds = {name: middle(of, "seconds") for name, of in answers.items()}
    peer = min((name for name in seconds if name.startswith("Spark")), key=seconds.__getitem__)
    medians = "; ".join(f"{name} {seconds[name]:.3f} s ({spread(of, 'seconds')})" for name, of in answers.items())
    notes = (
        f"Median triggerExecution of {scale.batches} batches of {SMALL_BATCH_ROWS:,} rows after {scale.warm_batches}, each"
        f" {SMALL_BATCH_MS // 60_000} minutes of event time, 8 tasks in {CONTAINERS} containers; a batch of ours runs both"
        f" stages and commits to the log. The peer has one stage, {CONTAINERS} shuffle partitions, one file a batch and a sink"
        f" that writes nothing: {peer}. Medians of {scale.rounds} processes: {medians}. Ours spends"
        f" {answers['ours'][0]['profile']}; the peer {answers[peer][0]['profile']}."
    )
    return [
        Result(
            "small batch",
            "s",
            seconds["ours"],
            seconds[peer],
            ratio=ratio(seconds["ours"], seconds[peer]),
            notes=notes,
            demands=[Demand("no slower than a stateful batch of Spark's own", at_most=1)],
        )
    ]


def ours(data: str, warm_batches: int, **_: Any) -> dict[str, Any]:
    import workbench as wb
    from tests.benchmarks.ours import hourly

    spark = wb.local_session(config={"spark.sql.streaming.numRecentProgressUpdates": "1000"})
    log = wb.StreamLog(Path(data, inputs.LOG))
    run = hourly(f"small-{time.time_ns()}").deploy(spark, log, containers=CONTAINERS, max_messages=SMALL_BATCH_ROWS)
    wait_for_source(run)
    run.stop()
    progress = [each for each in run.query.recentProgress if each["numInputRows"]]
    wb.stop_session()
    return summary(progress[warm_batches:])


def wait_for_source(run: Any) -> None:
    """Until the run has read all that its source holds; raises `RunFailed` where it fails before."""
    deadline = time.monotonic() + _LONGEST_SECONDS
    while time.monotonic() < deadline:
        if run.status != "running":
            run.wait(progress=False)
            raise AssertionError(f"the run is {run.status} before its source was read")
        progress = run.progress()
        if progress.messages >= (progress.total or 0) > 0:
            return
        time.sleep(_POLL_SECONDS)
    raise AssertionError(f"the source was not read within {_LONGEST_SECONDS} s: {run!r}")


def native(data: str, scratch: str, warm_batches: int, session: str, state: str, **_: Any) -> dict[str, Any]:
    from tests.benchmarks import spark_native

    spark = _session(session, state)
    panes = spark_native.hourly(spark_native.events(spark, f"{data}/{inputs.PARQUET}", 1))
    return _drain(panes, scratch, warm_batches)


def with_state(data: str, scratch: str, warm_batches: int, batches: int, **_: Any) -> dict[str, Any]:
    """What a user would write with Spark's own stateful processor in Python: a count for each key."""
    from tests.benchmarks import spark_native
    from tests.benchmarks.counting import CountingProcessor

    spark = _session("local", "RocksDB")
    rows = spark_native.events(spark, f"{data}/{inputs.PARQUET}", 1).withWatermark("event_time", "60 seconds")
    counts = rows.groupBy("key").transformWithStateInPandas(
        CountingProcessor(), "key string, n long", outputMode="append", timeMode="EventTime"
    )
    return _drain(counts, scratch, warm_batches, batches)


def _session(session: str, state: str) -> Any:
    import workbench as wb
    from tests.benchmarks import spark_native

    config = {
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.sql.shuffle.partitions": str(CONTAINERS),
    }
    if session == "default":
        return spark_native.default_session(state, **config)
    return wb.local_session(
        config={**config, "spark.sql.streaming.stateStore.providerClass": spark_native.PROVIDERS[state]}
    )


def _drain(panes: Any, scratch: str, warm_batches: int, batches: int | None = None) -> dict[str, Any]:
    """Run the query over its files, or over the first `batches` of them."""
    query = (
        panes.writeStream.format("noop")
        .outputMode("append")
        .option("checkpointLocation", f"{scratch}/checkpoint-{time.time_ns()}")
        .start()
    )
    if batches is None:
        query.processAllAvailable()
    else:
        while query.isActive and (query.lastProgress is None or query.lastProgress["batchId"] < batches):
            time.sleep(_POLL_SECONDS)
    query.stop()
    if query.exception() is not None:
        raise query.exception()
    return summary([each for each in query.recentProgress if each["numInputRows"]][warm_batches:])


def summary(progress: list[Any]) -> dict[str, Any]:
    """Median and 95th percentile of `triggerExecution` in seconds, and the median of each of its parts in words."""
    seconds = sorted(each["durationMs"]["triggerExecution"] / 1000 for each in progress)
    phases = {
        phase: median(each["durationMs"].get(phase, 0) for each in progress) for phase in progress[-1]["durationMs"]
    }
    profile = ", ".join(f"{phase} {value:.0f} ms" for phase, value in phases.items() if phase != "triggerExecution")
    return {
        "seconds": median(seconds),
        "p95": seconds[int(0.95 * (len(seconds) - 1))],
        "largest": seconds[-1],
        "batches": len(seconds),
        "profile": profile,
    }
