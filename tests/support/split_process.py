"""One part of the split flights in a process of its own, with its own Spark: `python -m tests.support.split_process LOG N`.

Reads lines "RUN_ID PARTITIONS" and for each deploys part N of the application, says "deployed", and in the end its status.
"""

from __future__ import annotations

import sys

from workbench import Application, StreamLog, local_session, tumbling


def flights_by_hour(partitions: int) -> Application:
    """flights → by carrier → by origin and carrier, with what only that stage knows → hourly windows → panes."""
    app = Application("flights by hour")
    flown = app.input("flights", event_time="event_time", out_of_orderness="1d").filter("not cancelled")
    by_carrier = flown.partition_by("carrier", partitions=partitions, name="by carrier").map(
        lambda rows: rows.assign(late=rows["arr_delay"].fillna(0) > 15), name="late?"
    )
    by_origin = by_carrier.partition_by("origin", "carrier", partitions=partitions + 1, name="by origin")
    panes = by_origin.window(tumbling("1h")).aggregate(flights=("flight", "count"), late=("late", "sum"))
    panes.send_to("panes", partitions=3)
    return app


def main(directory: str, number: int) -> None:
    log = StreamLog(directory, create=False)
    spark = local_session(cores=1 + number % 2)
    for line in sys.stdin:
        run_id, partitions = line.split()
        part = flights_by_hour(int(partitions)).split()[number]
        run = part.deploy(spark, log, run_id=run_id, max_messages=800, containers=1 + number % 2)
        print("deployed", flush=True)
        run.wait(timeout=240, progress=False)
        print(run.status, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
