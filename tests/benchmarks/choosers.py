"""What choosing costs: the built-in policies where there is nothing to choose, one's own message by message, a real merge."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from tests.benchmarks import inputs, processes
from tests.benchmarks.processes import say
from tests.benchmarks.results import Demand, Result, ratio
from tests.benchmarks.scale import CONTAINERS, DISORDER_MS, KEYS, PARTITIONS, Scale

if TYPE_CHECKING:
    from workbench.choosers import IncomingEnvelope
    from workbench.graph import Application

_SEGMENT_ROWS = 125_000
_MERGED_PART = 200
"""The merge of two inputs reads one of so many of the events: it is far slower, as nearly each message is a turn."""
_OWN_PART = 8
_TURN = 1_000
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "priorities": {"priority": 5},
    "round_robin": {"chooser": "round_robin"},
    "starting_alignment": {"chooser": "starting_alignment"},
    "time_aligned": {"chooser": "time_aligned"},
}


def measure(scale: Scale, directory: Path) -> list[Result]:
    """Events per second of whole jobs, and messages per second of the planning step alone."""
    data = {"events": str(directory / "one"), "merged": str(directory / "two")}
    processes.run(write, directory=data["events"], events=scale.events, streams=["events"])
    merged_events = scale.events // _MERGED_PART
    processes.run(write, directory=data["merged"], events=merged_events, streams=["left", "right"])
    own_events = scale.events // _OWN_PART
    processes.run(write, directory=str(directory / "own"), events=own_events, streams=["left", "right"])
    shared = {"batch_events": scale.batch_events, "rounds": scale.repeats}
    single = processes.run(single_input, data=data["events"], **shared).value
    say("choosers: one input")
    merged = processes.run(merged_inputs, data=data["merged"], **shared).value
    say("choosers: two inputs")
    own = processes.run(own_choosers, data=str(directory / "own"), rounds=scale.repeats).value
    return [*_single(single, scale), *_merged(merged, merged_events), *_own(own, own_events)]


def _single(answer: dict[str, list[float]], scale: Scale) -> list[Result]:
    usual = median(answer["default"])
    notes = (
        f"One input of {scale.events:,} events, 8 partitions, one in each task, so there is nothing to choose; beside the"
        f" default, which plans no order. Medians of {scale.repeats}, in turn in one process: {{spread}}; default"
        f" {_spread(answer['default'])}."
    )
    return [
        Result(
            f"choosers: {name}",
            "events/s",
            scale.events / median(seconds),
            scale.events / usual,
            ratio=ratio(median(seconds), usual),
            notes=notes.format(spread=_spread(seconds)),
            demands=[Demand("takes at most 5 % longer", at_most=1.05)],
        )
        for name, seconds in answer.items()
        if name != "default"
    ]


def _merged(answer: dict[str, Any], events: int) -> list[Result]:
    usual = median(answer["default"])
    return [
        Result(
            f"choosers: two inputs merged, {name}",
            "events/s",
            events / median(answer[name]),
            events / usual,
            ratio=ratio(median(answer[name]), usual),
            notes=f"{events:,} events in all, whose times alternate by chance, in {answer['runs'][name]:,} turns; each is a"
            f" step of a task. {_spread(answer[name])}; the default takes one input after the other in each batch:"
            f" {_spread(answer['default'])}. Ratio of seconds.",
        )
        for name in answer["runs"]
    ]


def _own(answer: dict[str, list[float]], events: int) -> list[Result]:
    return [
        Result(
            f"choosers: own, {name}",
            "messages/s",
            events / median(seconds),
            notes=f"Planning {events:,} messages of two inputs in 8 tasks, from the log to the recorded order, in seconds"
            f" of one core: {_spread(seconds)}.",
            demands=[Demand("at least 200,000 messages a second and core", at_least=200_000, of_ours=True)],
        )
        for name, seconds in answer.items()
    ]


def _spread(seconds: Sequence[float]) -> str:
    return f"{min(seconds):.2f}–{max(seconds):.2f} s"


# The input.


def write(directory: str, events: int, streams: list[str], **_: Any) -> dict[str, Any]:
    """`events` in all, shared by the streams, with times that cover the same day."""
    from datasets import synthetic
    from workbench.systems.log import StreamLog

    log = StreamLog(Path(directory, inputs.LOG))
    for seed, stream in enumerate(streams, start=1):
        parts = synthetic.events(
            events // len(streams), keys=KEYS, partitions=PARTITIONS, disorder_ms=DISORDER_MS, seed=seed
        )
        synthetic.write(log, parts, stream, end=True, batch_rows=_SEGMENT_ROWS)
    return {}


def hourly(name: str, streams: Sequence[str], priority: int = 0) -> Application:
    """The job of the throughput benchmark, from any number of merged inputs."""
    import workbench as wb

    app = wb.Application(name)
    first, *others = (
        app.input(stream, event_time="event_time", out_of_orderness=DISORDER_MS, priority=priority)
        for stream in streams
    )
    merged = first.merge(*others) if others else first
    (
        merged.partition_by("key", partitions=PARTITIONS)
        .window(wb.tumbling("1h"))
        .aggregate(n=("value", "count"), total=("value", "sum"), mean=("value", "mean"), top=("value", "max"))
        .send_to(f"{name}.panes")
    )
    return app


# The contenders, each in its own process.


def single_input(data: str, batch_events: int, rounds: int, **_: Any) -> dict[str, list[float]]:
    """Seconds of each variant, in turn, after one run that warms up."""
    run = _runner(data, ["events"], batch_events)
    run()
    seconds: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for turn in range(rounds):
        for name in list(VARIANTS) if turn % 2 == 0 else list(reversed(VARIANTS)):
            seconds[name].append(run(**VARIANTS[name])[0])
    _stop()
    return seconds


def merged_inputs(data: str, batch_events: int, rounds: int, **_: Any) -> dict[str, Any]:
    run = _runner(data, ["left", "right"], batch_events)
    variants: dict[str, dict[str, Any]] = {
        "time_aligned": {"chooser": "time_aligned"},
        f"time_aligned, batch_size={_TURN}": {"chooser": "time_aligned", "batch_size": _TURN},
    }
    run()
    answer: dict[str, Any] = {"default": [run()[0] for _ in range(rounds)], "runs": {}}
    for name, options in variants.items():
        found = [run(**options) for _ in range(min(rounds, 2))]
        answer[name] = [seconds for seconds, _ in found]
        answer["runs"][name] = found[0][1]
    _stop()
    return answer


def _runner(data: str, streams: list[str], batch_events: int) -> Callable[..., tuple[float, int]]:
    """Runs the job once with the given options: seconds, and turns of source messages."""
    import workbench as wb

    spark = wb.local_session()
    log = wb.StreamLog(Path(data, inputs.LOG), create=False)
    events = sum(sum(log.stream(stream).heads()) for stream in streams) - PARTITIONS * len(streams)

    def run(priority: int = 0, **options: Any) -> tuple[float, int]:
        name = f"bench-{time.time_ns()}"
        started = time.perf_counter()
        run = hourly(name, streams, priority).deploy(
            spark, log, containers=CONTAINERS, max_messages=batch_events, **options
        )
        run.wait(progress=False)
        seconds = time.perf_counter() - started
        panes = log.stream(f"{name}.panes").to_pandas()
        assert panes["n"].sum() + run.totals()["late_messages"] == events, "a fast wrong answer says nothing"
        choices = run.choices()
        return seconds, int(choices["stream"].isin(streams).sum())

    return run


def _stop() -> None:
    import workbench as wb

    wb.stop_session()


def _earliest(envelope: IncomingEnvelope) -> int | None:
    return envelope.event_time


def _first(outstanding: list[IncomingEnvelope]) -> IncomingEnvelope:
    return outstanding[0]


def own_choosers(data: str, rounds: int, **_: Any) -> dict[str, list[float]]:
    """Seconds of a core that planning the whole input in one batch takes, without Spark."""
    from workbench.choosers import RoundRobinChooser, by
    from workbench.engine.deployment import prepare
    from workbench.engine.source import JobReader
    from workbench.systems.log import StreamLog

    class Own(RoundRobinChooser):
        """A class of one's own, for all that the workbench knows."""

    rules: dict[str, Any] = {"a class": Own, "a function": _first, "by event time": by(_earliest)}
    seconds: dict[str, list[float]] = {name: [] for name in rules}
    log = StreamLog(Path(data, inputs.LOG), create=False)
    for name in list(rules) * rounds:
        job = hourly(f"own-{time.time_ns()}", ["left", "right"])
        deployment = prepare(job, log, max_messages=100_000_000, chooser=rules[name], batch_size=None)
        reader = JobReader(deployment.source)
        begin = reader.initialOffset()
        started = time.process_time()
        planned = reader.latestOffset(begin, None)
        seconds[name].append(time.process_time() - started)
        deployment.lock.release()
        assert planned["positions"]["left"] == log.stream("left").heads(), "all of it was planned"
    return seconds
