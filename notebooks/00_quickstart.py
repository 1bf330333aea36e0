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
# # A year of flights, hour by hour
#
# 336,776 real flights left New York in 2013. They reach us **in order of landing**, but what we count is **take-offs**:
# a flight to Honolulu is reported ten hours later than one that took off after it for Boston. How do we know that an hour is complete?
#
# This notebook runs a two-stage application to its end and shows how its tasks know: by **watermarks** and **ends of
# stream** that travel with the data, from every task of the first stage to every task of the second.

# %% tags=["parameters"]
log_dir: str = "var/quickstart"  # directory of the stream log; what this notebook made there before is made anew
months: str = "1-12"  # months of 2013 to read, first-last
out_of_orderness: str = "2h"  # how far take-offs may lag behind the latest one seen, per airport
partitions: int = 4  # partitions of the intermediate stream, and so tasks of the second stage
max_messages: int = 20_000  # messages that one batch admits from the source
timeout_s: float = 600.0  # give up waiting after so many seconds
result_file: str = ""  # where to write the result as JSON; empty: nowhere

# %%
import json
import time
from pathlib import Path

import pandas as pd
from pyspark.sql import functions as f

import workbench as wb
from datasets import flights
from workbench.notebooks import fresh_log

began = time.monotonic()
log = fresh_log(log_dir, "00_quickstart")  # removes only what an earlier run of this notebook made
spark = wb.local_session()
wb.register(spark)

# %% [markdown]
# ## The input
#
# Three partitions, one for each airport, each ending with an end-of-stream message. Cancelled flights are among them.

# %%
first, last = (int(month) for month in months.split("-"))
flights.write(log, "flights", months=range(first, last + 1))
log.stream("flights").to_pandas(partition=0).head()

# %% [markdown]
# ## The application
#
# Two stages. The first drops cancelled flights and writes each flight to the partition of its carrier; the second puts
# flights into hourly windows per carrier. Between them is an intermediate stream, and it is there that control messages
# have to be reconciled: every task of the second stage hears from **all** tasks of the first.

# %%
app = wb.Application("hourly-delays")
(
    app.input("flights", event_time="event_time", out_of_orderness=out_of_orderness)
    .filter("not cancelled")
    .partition_by("carrier", partitions=partitions)
    .window(wb.tumbling("1h"), late="late-flights")
    .aggregate(
        flights=("flight", "count"),
        mean_delay=("dep_delay", "mean"),
        p95_delay=("dep_delay", wb.quantile(0.95)),
    )
    .send_to("hourly-delays")
)
app

# %% [markdown]
# ## Run it to the end
#
# `deploy` returns at once. The run ends by itself when every task has heard the end of all its inputs.

# %%
run = app.deploy(spark, log, max_messages=max_messages)
run.wait(timeout=timeout_s)
run

# %% [markdown]
# ## How far had each task come?
#
# A task's watermark is the minimum over all its upstream tasks: the slowest airport holds every carrier back.

# %%
run.figures.watermarks()

# %%
run.figures.who_holds_back()

# %% [markdown]
# ## Who has heard the end from whom?
#
# A task of the second stage has reached the end when **all** tasks of the first have told it so. Task `Partition 3` has no
# airport: it is no upstream task, and nobody waits for it.

# %%
run.figures.end_of_stream()

# %%
run.end_of_stream()

# %% [markdown]
# ## How fast did it go, and what came too late?

# %%
run.figures.batches()

# %%
run.batches()[["batch", "seconds", "input_messages", "control_messages", "late_messages", "lowest_watermark"]]

# %%
late = log.stream("late-flights").to_pandas()
print(f"{len(late):,} of the flights took off before the watermark and their hour was closed already.")
late.head()

# %% [markdown]
# ## The result

# %%
result = spark.read.format("tidemark").option("path", str(log.directory)).option("stream", "hourly-delays").load()
result.orderBy("window_start", "carrier").limit(8).toPandas()

# %% [markdown]
# ## Is it true?
#
# The truth is a plain Spark batch query over the same flights, less the late ones that the run reported. Every pane must be
# equal: the count, the mean and the exact 95th percentile.

# %%
source = spark.read.format("tidemark").option("path", str(log.directory)).option("stream", "flights").load()
accepted = source.where("not cancelled")
if len(late):
    reported = spark.read.format("tidemark").option("path", str(log.directory)).option("stream", "late-flights").load()
    accepted = accepted.exceptAll(reported.select(accepted.columns))
truth = (
    accepted.groupBy("carrier", f.window("event_time", "1 hour").alias("w"))
    .agg(
        f.count("flight").alias("flights"),
        f.avg("dep_delay").alias("mean_delay"),
        f.percentile("dep_delay", 0.95).alias("p95_delay"),
    )
    .select("carrier", f.col("w.start").alias("window_start"), "flights", "mean_delay", "p95_delay")
    .toPandas()
)
ours = result.select(*truth.columns).toPandas()
order = ["carrier", "window_start"]
pd.testing.assert_frame_equal(
    ours.sort_values(order, ignore_index=True),
    truth.sort_values(order, ignore_index=True),
    check_dtype=False,
    rtol=1e-12,
)
print(f"All {len(ours):,} panes are equal to the batch query's.")

# %%
assert run.status == "finished"
assert run.end_of_stream()["heard"].all()
assert (run.watermarks().groupby(["task", "stream"])["state"].last() == "finished").all()
assert run.totals()["late_messages"] == len(late)

# %% [markdown]
# ## Stop everything

# %%
summary = {
    "status": run.status,
    **run.totals(),
    "result_rows": len(ours),
    "seconds": round(time.monotonic() - began, 1),
}
if result_file:
    Path(result_file).write_text(json.dumps(summary))
run.stop()
wb.stop_session()
summary
