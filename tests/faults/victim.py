"""A process that runs the two-stage job on a log, to be killed from outside: `python -m tests.faults.victim LOG`."""

from __future__ import annotations

import sys

from tests.support.jobs import hourly
from workbench import StreamLog, local_session


def main() -> None:
    log = StreamLog(sys.argv[1], create=False)
    spark = local_session(cores=2)
    run = hourly(out_of_orderness=3_600_000).deploy(spark, log, max_messages=int(sys.argv[2]), containers=2)
    run.wait(timeout=240, progress=False)
    assert run.status == "finished", run.status


if __name__ == "__main__":
    main()
