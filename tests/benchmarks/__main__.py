"""`make bench`: measure, print a table, write `var/bench/results.json`.

    python -m tests.benchmarks [--quick] [--only NAME]… [--output FILE]

All numbers of a line come from this one invocation. `--quick` is for seeing that the measuring works.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.benchmarks import choosers, cold_start, control_messages, drain, open_windows, small_batch, throughput
from tests.benchmarks.processes import say
from tests.benchmarks.results import Result, table, write
from tests.benchmarks.scale import FULL, QUICK, Scale

_HOME = Path(__file__).resolve().parents[2] / "var" / "bench"

BENCHMARKS: dict[str, Callable[[Scale, Path], list[Result]]] = {
    "throughput": throughput.measure,
    "memory": throughput.measure_memory,
    "small-batch": small_batch.measure,
    "cold-start": cold_start.measure,
    "open-windows": open_windows.measure,
    "control-messages": control_messages.measure,
    "drain": drain.measure,
    "choosers": choosers.measure,
}


def main(arguments: Sequence[str] | None = None) -> list[Result]:
    """Run the chosen benchmarks one after the other; whatever they write is gone afterwards, but for the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, one round: the figures mean nothing")
    parser.add_argument("--only", action="append", choices=sorted(BENCHMARKS), help="repeat for several")
    parser.add_argument("--output", type=Path, default=_HOME / "results.json")
    chosen = parser.parse_args(arguments)
    results: list[Result] = []
    _HOME.mkdir(parents=True, exist_ok=True)
    for name in chosen.only or BENCHMARKS:
        say(f"{name} (load of the machine before: {os.getloadavg()[0]:.1f})")
        with tempfile.TemporaryDirectory(prefix="data-", dir=_HOME) as directory:
            results += BENCHMARKS[name](QUICK if chosen.quick else FULL, Path(directory))
    write(results, chosen.output)
    print(table(results))
    print(f"\nWritten to {chosen.output}. {_machine()}")
    return results


def _machine() -> str:
    import pyspark

    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores, Python {sys.version.split()[0]}, Spark {pyspark.__version__}."


if __name__ == "__main__":
    main()
