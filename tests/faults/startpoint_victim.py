"""A process that rewinds the copying job by the startpoints there are, to be killed from outside: `… LOG MAX`."""

from __future__ import annotations

import sys

from tests.support.startpoint_jobs import copier
from workbench import StreamLog, local_session


def main() -> None:
    log = StreamLog(sys.argv[1], create=False)
    run = copier().deploy(local_session(cores=2), log, max_messages=int(sys.argv[2]), containers=2, on_rewind="keep")
    run.wait(timeout=240, progress=False)
    assert run.status == "finished", run.status


if __name__ == "__main__":
    main()
