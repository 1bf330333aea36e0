"""A process that runs the three-stage job until it has drained, to be killed from outside: `… LOG MAX ROUTING RUN_ID`."""

from __future__ import annotations

import sys

from tests.support.drain_jobs import three_stages
from workbench import StreamLog, local_session


def main() -> None:
    directory, max_messages, routing, run_id = sys.argv[1:]
    log = StreamLog(directory, create=False)
    spark = local_session(cores=2)
    run = three_stages().deploy(
        spark, log, max_messages=int(max_messages), containers=2, routing={"drain": routing}, run_id=run_id
    )
    run.wait(timeout=240, progress=False)
    assert run.status == "drained", run.status


if __name__ == "__main__":
    main()
