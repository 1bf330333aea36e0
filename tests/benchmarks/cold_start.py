"""From `python` to the first committed pane: everything a user waits for who starts with nothing running."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmarks import inputs, processes
from tests.benchmarks.processes import alternated, middle, spread
from tests.benchmarks.results import Demand, Result, ratio
from tests.benchmarks.scale import CONTAINERS, Scale

_EVENTS = 10_000
_POLL_SECONDS = 0.02
_LONGEST_SECONDS = 120
_STEPS = ("imported", "session", "deployed", "first_batch", "first_pane")


def measure(scale: Scale, directory: Path) -> list[Result]:
    """Seconds from the start of the process."""
    data = str(directory / "cold")
    processes.run(inputs.write_events, directory=data, events=_EVENTS, batch_events=_EVENTS)
    contenders = {
        "ours": partial(processes.run, ours, data=data),
        "Spark, default session": partial(processes.run, native, data=data, scratch=str(directory), session="default"),
        "Spark, our session": partial(processes.run, native, data=data, scratch=str(directory), session="local"),
    }
    answers = alternated(contenders, scale.rounds, "cold start")
    seconds = {name: middle(of, "first_pane") for name, of in answers.items()}

    def steps(name: str) -> str:
        times = [middle(answers[name], step) for step in _STEPS]
        durations = [later - earlier for earlier, later in zip([0.0, *times], times, strict=False)]
        return ", ".join(
            f"{step.replace('_', ' ')} +{took:.2f} s" for step, took in zip(_STEPS, durations, strict=True)
        )

    notes = (
        f"From the start of the process until a pane is committed, {_EVENTS:,} events in one batch, files in the page cache,"
        f" medians of {scale.rounds}. Ours: {steps('ours')} (two stages, so the pane comes a batch later than the events)."
    )
    results = []
    for peer, what in (
        ("Spark, default session", "cold start, Spark's defaults"),
        ("Spark, our session", "cold start, same session"),
    ):
        results.append(
            Result(
                what,
                "s",
                seconds["ours"],
                seconds[peer],
                ratio=ratio(seconds["ours"], seconds[peer]),
                notes=f"{notes} {peer}: {steps(peer)}. Spread: ours {spread(answers['ours'], 'first_pane')}, peer"
                f" {spread(answers[peer], 'first_pane')}.",
                demands=[Demand("at most that of Spark's own windowed query", at_most=1)],
            )
        )
    return results


def ours(data: str, spawned: float, **_: Any) -> dict[str, float]:
    clock = _Clock(spawned)
    import workbench as wb
    from tests.benchmarks.ours import hourly

    log = wb.StreamLog(Path(data, inputs.LOG))
    name = f"cold-{time.time_ns()}"
    app, session = hourly(name), wb.local_session
    clock.reached("imported")
    spark = session()
    clock.reached("session")
    run = app.deploy(spark, log, containers=CONTAINERS)
    clock.reached("deployed")
    clock.wait_for("first_batch", lambda: sum(log.stream(f"{name}.key").heads()) > 0)
    clock.wait_for("first_pane", lambda: sum(log.stream(f"{name}.panes").heads()) > 0)
    run.wait(progress=False)
    wb.stop_session()
    return clock.seconds


def native(data: str, scratch: str, session: str, spawned: float, **_: Any) -> dict[str, float]:
    clock = _Clock(spawned)
    from pyspark.sql import SparkSession  # noqa: F401  what a user's script imports

    from tests.benchmarks import spark_native

    if session == "local":
        from workbench.session import local_session
    clock.reached("imported")
    spark = (
        local_session(config={"spark.sql.streaming.stateStore.providerClass": spark_native.PROVIDERS["in-memory"]})
        if session == "local"
        else spark_native.default_session()
    )
    clock.reached("session")
    target = Path(scratch, f"cold-{time.time_ns()}")
    rows = spark_native.events(spark, f"{data}/{inputs.PARQUET}", 1_000)
    query = spark_native.to_parquet(spark_native.hourly(rows), target, available_now=False)
    clock.reached("deployed")
    commits = target / "panes" / "_spark_metadata"
    clock.wait_for("first_batch", lambda: (commits / "0").exists())
    # The batch after the data closes the windows: the first whose watermark knows of them.
    clock.wait_for("first_pane", lambda: (commits / "1").exists())
    query.stop()
    if spark.read.parquet(str(target / "panes")).isEmpty():
        raise AssertionError("Spark's second batch committed no pane")
    spark.stop()
    return clock.seconds


class _Clock:
    """Seconds since the parent started this process, by name of what was reached."""

    def __init__(self, spawned: float) -> None:
        self._spawned = spawned
        self.seconds: dict[str, float] = {}

    def reached(self, step: str) -> None:
        self.seconds[step] = time.time() - self._spawned

    def wait_for(self, step: str, condition: Any) -> None:
        deadline = time.monotonic() + _LONGEST_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"no {step} within {_LONGEST_SECONDS} s")
            time.sleep(_POLL_SECONDS)
        self.reached(step)
