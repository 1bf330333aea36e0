# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Drain, then upgrade
#
# Flights keep landing while a two-stage application counts them, by carrier and hour. Now it has to change: a new version
# writes **other columns between its stages**. What is in flight was written by the old version, and the new one could not
# read it: messages between the stages, and windows that are still open.
#
# A **drain** finishes all of that first. A marker follows the last admitted message through every task; whoever has heard
# it from all upstream tasks gives out what it holds, and passes it on. Then nothing is in flight, and anything may change.

# %% tags=["parameters"]
log_dir: str = "var/drain"  # directory of the stream log; what this notebook made there before is made anew
months: str = "1-3"  # months of 2013 to feed, first-last
feed_seconds: float = 35.0  # how long the live feed takes
out_of_orderness: str = "12h"  # how far take-offs may lag behind the latest one seen; the longest lag is 640 minutes
partitions: int = 4  # partitions between the stages, and so tasks of the second stage
max_messages: int = 5_000  # messages that one batch admits from the source
timeout_s: float = 300.0  # give up waiting after so many seconds
result_file: str = ""  # where to write the result as JSON; empty: nowhere

# %%
import json
import time
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as f

import workbench as wb
from datasets import airlines, flights
from datasets.feeder import Feeder, pieces
from workbench import plots
from workbench.errors import IncompatibleCheckpoint
from workbench.notebooks import fresh_log

began = time.monotonic()
log = fresh_log(log_dir, "05_drain")  # removes only what an earlier run of this notebook made
spark = wb.local_session()
wb.register(spark)

# %% [markdown]
# ## A live source
#
# A feeder is a thread that appends the flights in the order of their landings, one partition for each airport. It goes on
# below, whatever happens to the application, and says no end: like any live source, it knows of none.

# %%
first, last = (int(month) for month in months.split("-"))
landings = flights.table(months=range(first, last + 1))
airport = pc.index_in(landings["origin"], pa.array(flights.ORIGINS)).to_numpy()
stream = log.create("flights", len(flights.ORIGINS))
feeder = Feeder(stream, pieces(landings, airport, piece_rows=200), rows_per_second=len(landings) / feed_seconds).start()
feeder


# %% [markdown]
# ## The old version
#
# Between its stages travel all columns of a flight, keyed by the carrier's two letters.


# %%
def old_version() -> wb.Application:
    app = wb.Application("hourly-flights")
    (
        app.input("flights", event_time="event_time", out_of_orderness=out_of_orderness)
        .filter("not cancelled")
        .partition_by("carrier", partitions=partitions, name="departures")
        .window(wb.tumbling("1h"), late="late-flights")
        .aggregate(flights=("flight", "count"), miles=("distance", "sum"))
        .send_to("by-carrier")
    )
    return app


old_version()

# %%
# Markers go to every task, so that each hears them all itself. By default one task gathers them and tells the others.
options = {"max_messages": max_messages, "routing": {"drain": "broadcast"}}
run = old_version().deploy(spark, log, **options)


def wait_for_flights(share: float) -> None:
    """Until the application has read this share of all flights."""
    deadline = time.monotonic() + timeout_s
    while run.totals()["input_messages"] < share * len(landings):
        assert run.status == "running" and feeder.error is None and time.monotonic() < deadline, f"{run}, {feeder}"
        time.sleep(0.05)


wait_for_flights(0.1)
print(f"{run.totals()['input_messages']:,} flights read; {feeder}")

# %% [markdown]
# ## The new version
#
# It writes airlines by their full names, and of a flight only what the windows need: another key, and other columns.

# %%
names = dict(zip(*airlines.table().select(["carrier", "name"]).to_pydict().values(), strict=True))


def named(batch: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "event_time": batch["event_time"],
            "airline": batch["carrier"].map(names),
            "distance": batch["distance"],
        }
    )


new = wb.Application("hourly-flights")
(
    new.input("flights", event_time="event_time", out_of_orderness=out_of_orderness)
    .filter("not cancelled")
    .map(named)
    .partition_by("airline", partitions=partitions, name="departures")
    .window(wb.tumbling("1h"), late="late-airlines")
    .aggregate(flights=("airline", "count"), miles=("distance", "sum"))
    .send_to("by-airline")
)
new

# %% [markdown]
# ## Stop is not enough
#
# A **stop** keeps everything for the next run of the *same* version: what is in flight stays there. The new version can not
# take that over, so it is refused, before anything runs, with what to do. (Where only a function returns other columns than
# before, no plan shows it; then the first batch is refused, nothing of it is written, and the advice is the same.)

# %%
run.stop()
in_flight = run.batches()["open_rows"].iloc[-1]
print(f"{run}: {in_flight:,} rows held in open windows")
try:
    new.deploy(spark, log, **options)
except IncompatibleCheckpoint as refused:
    refusal = str(refused)
    print(refusal)
else:
    raise AssertionError("the new version was deployed over what the old one has in flight")
assert "Drain it with the version that was deployed before (run.drain()" in refusal

# %% [markdown]
# So the old version goes on, from exactly where it was.

# %%
run = old_version().deploy(spark, log, **options)
wait_for_flights(0.2)
run

# %% [markdown]
# ## Drain
#
# `drain` asks for it and, with `wait=False`, returns at once. From the moment in which the job sees the request it admits no
# more flights, however many the feeder brings. While the marker passes, `explain_drain` says who owes what.

# %%
asked = time.monotonic()
run.drain(wait=False)
moments: list[pd.DataFrame] = []  # one for each batch while the drain goes on
while run.status in ("running", "draining") and time.monotonic() < asked + timeout_s:
    drains = run.drains()
    if drains["pending"].any() and not any(drains.equals(moment) for moment in moments):
        moments.append(drains)
        print(f"{time.monotonic() - asked:.2f} s after the request, {drains['pending'].sum()} are pending:")
        print(*(f"    {sentence}" for sentence in run.explain_drain()), sep="\n")
    time.sleep(0.02)
run.wait(timeout=timeout_s)
run

# %% [markdown]
# The first moment that we caught of it, and then all of it. A task of the second stage waits for the markers of **all**
# tasks of the first: that is the column to the right.

# %%
plots.drains(moments[0]) if moments else "It was over before we could look."

# %%
run.figures.drains()

# %%
drains = run.drains()
drains[["task", "stage", "heard", "expected", "heard_from", "drained_at", "batch"]]

# %% [markdown]
# Meanwhile flights go on landing. What was not admitted waits at the source, for whoever comes next.

# %%
admitted, late = (run.totals()[name] for name in ("input_messages", "late_messages"))
print(f"{admitted:,} flights were admitted, {feeder.rows - admitted:,} more have landed: {feeder}")

# %% [markdown]
# ## What was emitted early
#
# Windows that the watermark had not closed gave out what they held. Their panes are partial results, and say so.

# %%
old = log.stream("by-carrier").to_pandas()
early = old[old["drained"]]
print(f"{len(early):,} of {len(old):,} panes were emitted by the drain, with {early['flights'].sum():,} flights.")
early.sort_values(["window_start", "carrier"]).head()

# %% [markdown]
# | | what was admitted | open windows | messages between the stages | a new version |
# |---|---|---|---|---|
# | `run.stop()` | is kept | stay open, to be completed by the next run | stay, for the next run | must be compatible |
# | `run.drain()` | is finished | are emitted, with `drained` set | are processed | may change everything behind the sources |
# | `run.abandon()` | is given up where it is in flight | are lost | are lost | may change everything behind the sources |
#
# ## Upgrade
#
# Now the new version deploys under the same name. It begins where the old one had read up to, with nothing in flight.

# %%
run = new.deploy(spark, log, **options)
feeder.wait(timeout_s)
stream.end()  # the lesson ends here, so the flights do, too
run.wait(timeout=timeout_s)
run

# %% [markdown]
# ## Is every flight in exactly one result?
#
# The hours that were open at the drain are divided between the versions. Together they must be what a plain Spark batch
# query counts, for every carrier and hour, and in miles too.

# %%
codes = {name: carrier for carrier, name in names.items()}
renamed = log.stream("by-airline").to_pandas().assign(carrier=lambda panes: panes["airline"].map(codes))
measures = ["flights", "miles"]
hours = pd.concat([old.assign(version="old"), renamed.assign(version="new")]).pivot_table(
    index=["carrier", "window_start"], columns="version", values=measures, aggfunc="sum", fill_value=0
)
ours = hours.T.groupby(level=0).sum().T[measures].astype("int64").reset_index()
divided = hours[(hours["flights"] > 0).all(axis=1)]
print(f"{len(divided):,} of {len(hours):,} carrier-hours are in results of both versions:")
divided["flights"][["old", "new"]].sort_values("old", ascending=False).head()

# %%
late += run.totals()["late_messages"]
assert late == 0, f"{late:,} flights came behind the watermark; they are in the streams of late ones, not in a pane"
source = spark.read.format("tidemark").option("path", str(log.directory)).option("stream", "flights").load()
truth = (
    source.where("not cancelled")
    .groupBy("carrier", f.window("event_time", "1 hour").alias("w"))
    .agg(f.count("*").alias("flights"), f.sum("distance").alias("miles"))
    .select("carrier", f.col("w.start").alias("window_start"), *measures)
    .toPandas()
)
order = ["carrier", "window_start"]
ours["window_start"] = pd.to_datetime(ours["window_start"], utc=True)
truth["window_start"] = pd.to_datetime(truth["window_start"], utc=True)
pd.testing.assert_frame_equal(
    ours.sort_values(order, ignore_index=True), truth.sort_values(order, ignore_index=True), check_dtype=False
)
print(f"All {len(ours):,} carrier-hours are equal to the batch query's, {ours['flights'].sum():,} flights.")

# %%
assert run.status == "finished"
assert 0 < admitted < len(landings)
assert not drains["pending"].any() and (drains["open_rows"] == 0).all()
assert drains.groupby("stage", sort=False)["batch"].max().is_monotonic_increasing
assert len(early) and old["flights"].sum() + renamed["flights"].sum() == truth["flights"].sum()
assert (drains["heard"] == drains["expected"]).all()

# %% [markdown]
# ## Stop everything

# %%
took = (drains["drained_at"].max() - drains["requested"].min()).total_seconds()
summary = {
    "status": run.status,
    "flights": len(landings),
    "admitted_by_old": admitted,
    "in_results_of_old": int(old["flights"].sum()),
    "in_results_of_new": int(renamed["flights"].sum()),
    "cancelled": len(landings) - int(truth["flights"].sum()),
    "panes_drained": len(early),
    "drain_seconds": round(took, 2),
    "carrier_hours": len(ours),
    "divided_carrier_hours": len(divided),
    "seconds": round(time.monotonic() - began, 1),
}
if result_file:
    Path(result_file).write_text(json.dumps(summary))
feeder.stop()
run.stop()
wb.stop_session()
summary
