"""A small batch while a million (key, window) pairs are open: its cost should follow what changed, not what is held."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmarks import inputs, processes
from tests.benchmarks.processes import alternated, middle, spread
from tests.benchmarks.results import Demand, Result, ratio
from tests.benchmarks.scale import CONTAINERS, HOUR_MS, PARTITIONS, SMALL_BATCH_MS, SMALL_BATCH_ROWS, Scale
from tests.benchmarks.small_batch import summary, wait_for_source

_OPEN_HOURS = 48


def measure(scale: Scale, directory: Path) -> list[Result]:
    """Seconds per small batch with that much open, over the same with next to nothing open."""
    batches = scale.warm_batches + scale.batches
    contenders = {
        label: partial(
            processes.run,
            held,
            directory=str(directory),
            pairs=pairs,
            batches=batches,
            warm_batches=scale.warm_batches,
        )
        for label, pairs in (("many open", scale.open_pairs), ("few open", 0))
    }
    answers = alternated(contenders, scale.rounds, "open windows")
    many, few = answers["many open"], answers["few open"]
    seconds = {name: middle(of, "seconds") for name, of in answers.items()}
    notes = (
        f"{few[0]['open_rows']:,} and {many[0]['open_rows']:,} open rows of window state before the first small batch."
        f" Median triggerExecution of {scale.batches} batches of {SMALL_BATCH_ROWS:,} rows after {scale.warm_batches}; 8 tasks in"
        f" {CONTAINERS} containers, out-of-orderness {_OPEN_HOURS} h, so that one batch in twelve closes a whole hour:"
        f" {scale.open_pairs // _OPEN_HOURS:,} panes. Many: {spread(many, 'seconds')}, 95th percentile"
        f" {middle(many, 'p95'):.3f} s, largest {middle(many, 'largest'):.3f} s; few: {spread(few, 'seconds')}, 95th"
        f" percentile {middle(few, 'p95'):.3f} s. Peer here is ours with few open. Many spends {many[0]['profile']}."
    )
    return [
        Result(
            f"small batch, {scale.open_pairs / 1e6:g} M open windows",
            "s",
            seconds["many open"],
            seconds["few open"],
            ratio=ratio(seconds["many open"], seconds["few open"]),
            notes=notes,
            demands=[Demand("within 3 times the small batch", at_most=3)],
        )
    ]


def held(directory: str, pairs: int, batches: int, warm_batches: int, **_: Any) -> dict[str, Any]:
    """Fill the windows in large batches, stop, go on from the checkpoint in small ones."""
    import workbench as wb
    from datasets import synthetic
    from tests.benchmarks.ours import hourly

    data = Path(directory, f"open-{time.time_ns()}")
    log = wb.StreamLog(data)
    log.create(inputs.STREAM, PARTITIONS)
    spark = wb.local_session(config={"spark.sql.streaming.numRecentProgressUpdates": "1000"})
    app = partial(hourly, "held", out_of_orderness=_OPEN_HOURS * HOUR_MS)
    open_rows = 0
    if pairs:
        synthetic.write(log, _one_event_each(pairs), inputs.STREAM, end=False, batch_rows=50_000)
        run = app().deploy(spark, log, containers=CONTAINERS, max_messages=500_000)
        wait_for_source(run)
        open_rows = _wait_for_panes(run, pairs)
        run.stop()
    later = synthetic.events(
        batches * SMALL_BATCH_ROWS,
        keys=1_000,
        partitions=PARTITIONS,
        duration_ms=batches * SMALL_BATCH_MS,
        start_ms=synthetic.START_MS + _OPEN_HOURS * HOUR_MS,
    )
    synthetic.write(log, later, inputs.STREAM, end=False, batch_rows=SMALL_BATCH_ROWS // PARTITIONS)
    run = app().deploy(spark, log, containers=CONTAINERS, max_messages=SMALL_BATCH_ROWS)
    wait_for_source(run)
    run.stop()
    progress = [each for each in run.query.recentProgress if each["numInputRows"]]
    wb.stop_session()
    return {**summary(progress[warm_batches:]), "open_rows": open_rows}


def _one_event_each(pairs: int) -> tuple[Any, ...]:
    """One event for each of so many (key, hour) pairs within 48 hours, in no order, spread over the partitions."""
    import numpy as np
    import pyarrow as pa

    from datasets import synthetic

    random = np.random.default_rng(0)
    chosen = random.permutation(pairs)
    hours, keys = chosen % _OPEN_HOURS, chosen // _OPEN_HOURS
    times = synthetic.START_MS + hours * HOUR_MS + random.integers(0, HOUR_MS, pairs)
    names = pa.array([f"key-{key:06d}" for key in range(int(keys.max()) + 1)])
    rows = pa.table(
        {
            "event_time": synthetic.instants(times),
            "key": names.take(pa.array(keys)),
            "value": random.integers(0, 10_000, pairs) / 100,
        }
    )
    return tuple(rows.slice(pairs * part // PARTITIONS, pairs // PARTITIONS) for part in range(PARTITIONS))


def _wait_for_panes(run: Any, pairs: int) -> int:
    """Until all pairs are in window state; returns how many rows of state are open."""
    expected = pairs // PARTITIONS * PARTITIONS
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        newest: dict[int, int] = {}
        for batch in run._recorded():
            for report in batch.reports:
                newest[report["task"]] = report["open_rows"]
        if sum(newest.values()) >= expected:
            return sum(newest.values())
        time.sleep(0.1)
    raise AssertionError(f"only {sum(newest.values()):,} of {expected:,} pairs are open")
