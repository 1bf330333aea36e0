"""A day of events to its end, three ways: our two-stage job, Spark's own windows, one Arrow group-by. And the memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks import inputs, processes
from tests.benchmarks.processes import Answer, alternated, middle, say, spread
from tests.benchmarks.results import Demand, Result, ratio
from tests.benchmarks.scale import CONTAINERS, PARTITIONS, Scale

if TYPE_CHECKING:
    import pyarrow as pa

_MEGABYTE = 1024 * 1024
_COLUMNS = ["key", "window_start", "n", "total", "mean", "top"]


def measure(scale: Scale, directory: Path) -> list[Result]:
    """Events per second. Every run's panes are compared, so that nobody is fast with a wrong answer."""
    data, warm = str(directory / "events"), str(directory / "warm")
    written = processes.run(
        inputs.write_events, directory=data, events=scale.events, batch_events=scale.batch_events
    ).value
    processes.run(inputs.write_events, directory=warm, events=scale.warm_events, batch_events=scale.batch_events)
    results = directory / "panes"
    results.mkdir()
    batch = {"batch_events": scale.batch_events}

    def contender(function: Callable[..., dict[str, Any]], **arguments: Any) -> Callable[[], Answer]:
        return partial(processes.run, function, data=data, warm=warm, results=str(results), **arguments)

    contenders = {
        "ours": contender(ours, **batch),
        "ours, one batch": contender(ours, batch_events=scale.events),
        "Spark, in-memory state": contender(native, state="in-memory", files_per_batch=PARTITIONS),
        "Spark, RocksDB state": contender(native, state="RocksDB", files_per_batch=PARTITIONS),
        "Spark, in-memory state, one batch": contender(native, state="in-memory", files_per_batch=written["files"]),
        "Arrow": contender(arrow),
    }
    answers = alternated(contenders, scale.rounds, "throughput")
    panes = compare([answer["panes"] for of in answers.values() for answer in of])
    seconds = {name: middle(of, "seconds") for name, of in answers.items()}
    peer = min(("Spark, in-memory state", "Spark, RocksDB state"), key=seconds.__getitem__)
    at_once = "Spark, in-memory state, one batch"
    rate = {name: written["rows"] / taken for name, taken in seconds.items()}
    others = "; ".join(
        f"{name}: {seconds[name]:.2f} s ({spread(answers[name], 'seconds')})" for name in seconds if name != "Arrow"
    )
    notes = (
        f"{written['rows']:,} events, 8 partitions, 1,000 keys, {panes:,} panes, equal in all {scale.rounds} rounds of"
        f" all contenders. From the start of the query to its end, warmed up by {scale.warm_events:,} events in the same"
        f" process; ours admits {scale.batch_events:,} events a batch, on {CONTAINERS} containers, and so does the peer: {peer}; it"
        f" sinks Parquet, reads Parquet, runs on Spark's own JVM settings. Medians: {others};"
        f" Arrow: {seconds['Arrow']:.2f} s. Ours spends {answers['ours'][0]['profile']}."
    )
    demands = [
        Demand("at least as fast as Spark's own", at_least=1),
        Demand("the aim of twice as fast", at_least=2),
    ]
    return [
        Result(
            "throughput",
            "events/s",
            rate["ours"],
            rate[peer],
            rate["Arrow"],
            ratio(rate["ours"], rate[peer]),
            notes,
            demands,
        ),
        Result(
            "throughput, all in one batch",
            "events/s",
            rate["ours, one batch"],
            rate[at_once],
            rate["Arrow"],
            ratio(rate["ours, one batch"], rate[at_once]),
            "Both admit all events in one batch, which takes memory that grows with the input. The same runs as above.",
            demands,
        ),
    ]


def measure_memory(scale: Scale, directory: Path) -> list[Result]:
    """Peak memory over the length of the input, one cold run each."""
    peaks: dict[str, dict[int, Answer]] = {"ours": {}, "Spark": {}}
    for events in scale.memory_events:
        data = directory / f"events-{events}"
        processes.run(inputs.write_events, directory=str(data), events=events, batch_events=scale.batch_events)
        of_ours = partial(processes.run, ours, batch_events=scale.batch_events)
        of_spark = partial(processes.run, native, state="in-memory", files_per_batch=PARTITIONS)
        for name, contender in (("ours", of_ours), ("Spark", of_spark)):
            results = directory / f"panes-{events}-{name}"
            results.mkdir()
            peaks[name][events] = contender(data=str(data), warm=None, results=str(results), watch_memory=True)
            say(f"memory: {name}, {events:,} events")
    first, last = scale.memory_events[0], scale.memory_events[-1]
    from_events = scale.memory_events[1] if len(scale.memory_events) > 2 else first
    rss = {
        name: {events: (answer.peak_rss or 0) / _MEGABYTE for events, answer in of.items()}
        for name, of in peaks.items()
    }
    pss = {
        name: {events: (answer.peak_pss or 0) / _MEGABYTE for events, answer in of.items()}
        for name, of in peaks.items()
    }

    def listed(of: dict[int, float]) -> str:
        return ", ".join(f"{events / 1e6:g} M: {size:,.0f} MB" for events, size in of.items())

    notes = (
        "Largest sum over the whole process tree (driver, JVM with a heap of 2 GB, workers) of a cold run, sampled 15 times a"
        f" second. Resident, ours {listed(rss['ours'])}; Spark {listed(rss['Spark'])}. Proportional (shared pages once), ours"
        f" {listed(pss['ours'])}; Spark {listed(pss['Spark'])}. A batch admits {scale.batch_events:,} events, so that"
        f" {first:,} events are one batch."
    )
    return [
        Result("peak memory", "MB", rss["ours"][last], rss["Spark"][last], notes=notes,
               ratio=ratio(rss["ours"][last], rss["Spark"][last])),
        Result(
            f"memory, {last / from_events:g} times the input",
            "times",
            ratio(pss["ours"][last], pss["ours"][from_events]),
            ratio(pss["Spark"][last], pss["Spark"][from_events]),
            notes=f"Proportional memory at {last:,} events over that at {from_events:,}, of the same runs.",
            demands=[Demand("does not grow with the length of the input", at_most=1.1, of_ours=True)],
        ),
    ]  # fmt: skip


# The contenders, each in its own process.


def ours(data: str, warm: str | None, results: str, batch_events: int, **_: Any) -> dict[str, Any]:
    import pyarrow.parquet as pq

    import workbench as wb
    from tests.benchmarks.ours import hourly

    spark = wb.local_session()
    taken = 0.0
    for directory in [warm, data] if warm else [data]:
        log = wb.StreamLog(Path(directory, inputs.LOG))
        name = f"bench-{time.time_ns()}"
        started = time.perf_counter()
        run = hourly(name).deploy(spark, log, containers=CONTAINERS, max_messages=batch_events)
        run.wait(progress=False)
        taken = time.perf_counter() - started
    progress = [each["durationMs"] for each in run.query.recentProgress if each["numInputRows"]]
    totals: dict[str, float] = {}
    for durations in progress:
        for phase, milliseconds in durations.items():
            totals[phase] = totals.get(phase, 0) + milliseconds / 1000
    profile = ", ".join(f"{phase} {seconds:.2f} s" for phase, seconds in totals.items() if phase != "triggerExecution")
    path = f"{results}/ours-{time.time_ns()}.parquet"
    pq.write_table(_sorted(_read(log, f"{name}.panes")), path)
    wb.stop_session()
    return {"seconds": taken, "panes": path, "profile": f"{profile} in {len(progress)} batches of {taken:.2f} s in all"}


def native(data: str, warm: str | None, results: str, state: str, files_per_batch: int, **_: Any) -> dict[str, Any]:
    import pyarrow.parquet as pq

    from tests.benchmarks import spark_native

    spark = spark_native.default_session(state)
    taken = 0.0
    for directory in [warm, data] if warm else [data]:
        target = Path(results, f"spark-{time.time_ns()}")
        started = time.perf_counter()
        events = spark_native.events(spark, f"{directory}/{inputs.PARQUET}", files_per_batch)
        spark_native.to_parquet(spark_native.hourly(events), target).awaitTermination()
        taken = time.perf_counter() - started
    path = f"{target}.parquet"
    pq.write_table(_sorted(pq.read_table(target / "panes")), path)
    spark.stop()
    return {"seconds": taken, "panes": path}


def arrow(data: str, warm: str | None, results: str, **_: Any) -> dict[str, Any]:
    import pyarrow.parquet as pq

    taken = 0.0
    for directory in [warm, data, data] if warm else [data]:
        started = time.perf_counter()
        panes = _group(Path(directory, inputs.ARROW))
        taken = time.perf_counter() - started
    path = f"{results}/arrow-{time.time_ns()}.parquet"
    pq.write_table(_sorted(panes), path)
    return {"seconds": taken, "panes": path}


def _group(directory: Path) -> pa.Table:
    """The windows as one group-by over memory-mapped columns, with Arrow's own threads."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from tests.benchmarks.scale import HOUR_MS

    rows = pa.concat_tables(
        [pa.ipc.open_file(pa.memory_map(str(path))).read_all() for path in sorted(directory.iterdir())]
    )
    times = rows["event_time"].cast(pa.int64())
    hours = pc.multiply(pc.divide(times, HOUR_MS * 1000), HOUR_MS * 1000)
    grouped = rows.append_column("window_start", hours).group_by(["key", "window_start"], use_threads=True)
    panes = grouped.aggregate([("value", how) for how in ("count", "sum", "mean", "max")])
    panes = panes.rename_columns({"value_count": "n", "value_sum": "total", "value_mean": "mean", "value_max": "top"})
    start = panes["window_start"].cast(pa.timestamp("us", "UTC"))
    return panes.set_column(panes.schema.get_field_index("window_start"), "window_start", start)


def _read(log: Any, stream: str) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pandas(log.stream(stream).to_pandas(), preserve_index=False)


def _sorted(panes: pa.Table) -> pa.Table:
    """The columns that are compared, in one representation, by window and key."""
    import pyarrow as pa

    schema = pa.schema(
        [("key", pa.string()), ("window_start", pa.timestamp("us", "UTC")), ("n", pa.int64())]
        + [(name, pa.float64()) for name in _COLUMNS[3:]]
    )
    return panes.select(_COLUMNS).cast(schema).sort_by([("window_start", "ascending"), ("key", "ascending")])


class PanesDiffer(Exception):
    """Two contenders computed different panes: their times say nothing."""


def compare(paths: list[str]) -> int:
    """Check that all files hold the same panes: keys and counts exactly, floats up to rounding. Returns how many panes.

    Raises `PanesDiffer`.
    """
    import numpy as np
    import pyarrow.parquet as pq

    expected = pq.read_table(paths[0])
    for path in paths[1:]:
        panes = pq.read_table(path)
        if not panes.select(_COLUMNS[:3]).equals(expected.select(_COLUMNS[:3])):
            raise PanesDiffer(
                f"{path} has {len(panes):,} panes, {paths[0]} has {len(expected):,}, and keys, windows or counts differ."
            )
        for name in _COLUMNS[3:]:
            if not np.allclose(np.asarray(panes[name]), np.asarray(expected[name]), rtol=1e-9, atol=0):
                raise PanesDiffer(f"{path} and {paths[0]} differ in {name!r}.")
    return len(expected)
