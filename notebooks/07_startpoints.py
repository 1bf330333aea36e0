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
# # Startpoints: do one airport's July again
#
# An application has counted the delays of a year of flights, and one of its functions was wrong: for one airport, from one
# morning in July on. The checkpoint knows how far everything was read, and a Spark query that has a checkpoint **ignores any
# starting position** you give it. Doing the whole year again would be right, but we only need one of three partitions, and
# half a year of it.
#
# A **startpoint** says where the next run begins to read a partition, whatever the checkpoint says. It is previewed before
# anything is written, taken when the next run starts, and gone once the first batch that began there is committed.

# %% tags=["parameters"]
log_dir: str = "var/startpoints"  # directory of the stream log; what this notebook made there before is made anew
months: str = "1-12"  # months of 2013 to read, first-last
airport: str = "JFK"  # the airport whose flights come out wrong: EWR, JFK or LGA
morning: str = "2013-07-04T10:00"  # from when on, a full hour (UTC: four hours ahead of New York in summer)
out_of_orderness: str = "12h"  # how far take-offs may lag behind the latest one seen; the longest lag is 640 minutes
partitions: int = 4  # partitions of the intermediate stream, and so tasks of the second stage
max_messages: int = 40_000  # messages that one batch admits from the source
timeout_s: float = 600.0  # give up waiting after so many seconds
result_file: str = ""  # where to write the result as JSON; empty: nowhere

# %%
import json
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import plotly.express as px
from pyspark.sql import functions as f

import workbench as wb
from datasets import flights
from workbench.errors import RewindUndecided
from workbench.notebooks import fresh_log

began = time.monotonic()
log = fresh_log(log_dir, "07_startpoints")  # removes only what an earlier run of this notebook made
spark = wb.local_session()
wb.register(spark)

first, last = (int(month) for month in months.split("-"))
flights.write(log, "flights", months=range(first, last + 1))
log.stream("flights")


# %% [markdown]
# ## The application
#
# Delays per airport, carrier and hour. Before they are counted, `in_minutes` brings them to one scale: the airport had
# announced that from that morning on it would report delays in **seconds**. It never did.


# %%
def in_minutes(rows: pd.DataFrame) -> pd.DataFrame:
    in_seconds = (rows["origin"] == airport) & (rows["event_time"] >= pd.Timestamp(morning, tz="UTC"))
    return rows.assign(delay=rows["dep_delay"].astype("double[pyarrow]").mask(in_seconds, rows["dep_delay"] / 60))


def delays(to_one_scale: Callable[[pd.DataFrame], pd.DataFrame]) -> wb.Application:
    app = wb.Application("hourly-delays")
    (
        app.input("flights", event_time="event_time", out_of_orderness=out_of_orderness)
        .filter("not cancelled")
        .map(to_one_scale, name="to one scale")
        .partition_by("origin", "carrier", partitions=partitions, name="departures")
        .window(wb.tumbling("1h"), late="late")
        .aggregate(flights=("flight", "count"), mean_delay=("delay", "mean"))
        .send_to("hourly-delays")
    )
    return app


delays(in_minutes)

# %%
run = delays(in_minutes).deploy(spark, log, max_messages=max_messages)
run.wait(timeout=timeout_s)
run

# %% [markdown]
# ## Something is wrong


# %%
def daily(panes: pd.DataFrame) -> pd.DataFrame:
    """Mean delay of a day's flights, minutes: one row for each airport and day, four weeks before that morning and after."""
    frame = panes.assign(
        day=pd.to_datetime(panes["window_start"], utc=True).dt.floor("D"),
        total=panes["mean_delay"].fillna(0.0) * panes["flights"],
    )
    near = (frame["day"] - pd.Timestamp(morning, tz="UTC")).abs() < pd.Timedelta("28D")
    days = frame[near].groupby(["origin", "day"])[["total", "flights"]].sum()
    return (days["total"] / days["flights"]).astype("float64").rename("mean delay, minutes").reset_index()


def figure(panes: pd.DataFrame, question: str) -> object:
    drawn = px.line(daily(panes), x="day", y="mean delay, minutes", color="origin", title=question)
    drawn.add_vline(x=pd.Timestamp(morning, tz="UTC"), line_dash="dot")
    return drawn.update_layout(template="plotly_white", legend_title_text="airport")


first_panes = log.stream("hourly-delays").to_pandas(position=True)
figure(first_panes, f"Since when is {airport} never late?")

# %% [markdown]
# From the dotted line on, everybody at this airport is on time: far too good. The other two are as they were.
#
# ## What would a rewind do?
#
# Partition *i* of `flights` is one airport. `StartpointTimestamp` is the first message whose event time is that morning or
# later; it needs no offsets. Nothing is written by the preview.

# %%
ssp = wb.SSP("log", "flights", flights.ORIGINS.index(airport))
startpoint = wb.StartpointTimestamp(int(pd.Timestamp(morning, tz="UTC").timestamp() * 1000))

preview = run.preview_startpoints({ssp: startpoint})
preview[["task", "stream", "partition", "startpoint", "current", "resolved", "replayed", "skipped", "state"]]

# %% [markdown]
# That is what we mean, so we write it. This works while the application runs too, and from a shell:
# `workbench startpoint set var/startpoints hourly-delays flights:1 --at 2013-07-04T10:00`.

# %%
startpoints = wb.StartpointManager(log, "hourly-delays")
startpoints.write(ssp, startpoint)

# %%
# %run -m workbench startpoint preview "{log_dir}" hourly-delays

# %% [markdown]
# ## The function, mended
#
# Functions and filters may change over a checkpoint. But what comes a second time meets what the tasks hold, and only we
# know what is right, so a deployment that would lead back asks:


# %%
def as_reported(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(delay=rows["dep_delay"].astype("double[pyarrow]"))


try:
    delays(as_reported).deploy(spark, log)
except RewindUndecided as undecided:
    print(undecided)

# %% [markdown]
# | `on_rewind=` | windows that are open | windows that were emitted |
# |---|---|---|
# | `"keep"` | what comes again is counted **again** in them | emitted once more, with what comes again only |
# | `"reset"` | are dropped first, those of the other airports too | the same |
#
# All our inputs have ended, so no window is open, and `"keep"` costs the other airports nothing. Either way the replay is a
# new **watermark generation**: time begins anew, so the flights of July are not late in December, and the other airports say
# once more that they have ended.

# %%
before = {name: log.stream(name).heads() for name in ("departures", "hourly-delays")}
read_before = run.totals()["input_messages"]

second = delays(as_reported).deploy(spark, log, max_messages=max_messages, on_rewind="keep")
second.wait(timeout=timeout_s)
second

# %% [markdown]
# ## Exactly the previewed messages?
#
# The stream between the stages tells. What the second run added to it is what the partition holds from the previewed offset
# on, less what was cancelled: no message more, none twice, no other airport's.


# %%
def added(stream: str) -> pd.DataFrame:
    """What the second run has appended."""
    rows = log.stream(stream).to_pandas(position=True)
    return rows[rows["_offset"] >= rows["_partition"].map(dict(enumerate(before[stream])))]


[resolved], [replayed] = preview["resolved"], preview["replayed"]
asked = log.stream("flights").to_pandas(ssp.partition, position=True).query("_offset >= @resolved")
assert len(asked) == replayed == second.totals()["input_messages"] - read_before

columns = ["event_time", "landed_at", "carrier", "flight", "tailnum", "origin", "dest", "dep_delay"]
again = added("departures")[columns].sort_values(columns, ignore_index=True)
pd.testing.assert_frame_equal(again, asked[~asked["cancelled"]][columns].sort_values(columns, ignore_index=True))
assert not startpoints.all().requests and startpoints.fan_outs() == ((), ()), "used up: the next run goes on as usual"
print(f"{replayed:,} of {read_before:,} messages were processed again, each once.")

# %% [markdown]
# ## Is the corrected result true?
#
# A window that was emitted twice counts as it was emitted last. There is one thing to know: flights land out of order, so
# behind the first flight of that morning came some that had taken off **before** it. They were processed again too, but only
# they, so the second run's windows from before that morning are not whole; those of the first run are, and were right.

# %%
keys = ["origin", "carrier", "window_start"]
second_panes = added("hourly-delays")
whole = pd.to_datetime(second_panes["window_start"], utc=True) >= pd.Timestamp(morning, tz="UTC")
corrected = pd.concat([first_panes, second_panes[whole]]).drop_duplicates(keys, keep="last")
figure(corrected, f"{airport}, corrected")

# %% [markdown]
# The truth is a plain Spark batch query over all flights.

# %%
source = spark.read.format("tidemark").option("path", str(log.directory)).option("stream", "flights").load()
truth = (
    source.where("not cancelled")
    .groupBy("origin", "carrier", f.window("event_time", "1 hour").alias("w"))
    .agg(f.count("flight").alias("flights"), f.avg("dep_delay").alias("mean_delay"))
    .select("origin", "carrier", f.col("w.start").alias("window_start"), "flights", "mean_delay")
    .toPandas()
)


def comparable(panes: pd.DataFrame) -> pd.DataFrame:
    times = pd.to_datetime(panes["window_start"], utc=True).astype("datetime64[us, UTC]")
    plain = panes.assign(window_start=times)[[*keys, "flights", "mean_delay"]].sort_values(keys, ignore_index=True)
    return plain.astype({"origin": "str", "carrier": "str", "flights": "int64", "mean_delay": "float64"})


spark_time = truth["window_start"].dt.tz_localize(spark.conf.get("spark.sql.session.timeZone"))
truth = comparable(truth.assign(window_start=spark_time))
pd.testing.assert_frame_equal(comparable(corrected), truth, rtol=1e-12)
wrong = (comparable(first_panes)["mean_delay"] != truth["mean_delay"]).sum()
print(f"All {len(truth):,} hours are equal to the batch query's; {wrong:,} were wrong before.")

# %%
assert run.status == second.status == "finished"
assert second.totals()["late_messages"] == 0, "a replay is not late"
assert 0 < replayed < read_before and wrong > 0

# %% [markdown]
# ## Stop everything

# %%
summary = {
    "status": second.status,
    "replayed_messages": int(replayed),
    "input_messages": read_before,
    "wrong_rows": int(wrong),
    "result_rows": len(truth),
    "seconds": round(time.monotonic() - began, 1),
}
if result_file:
    Path(result_file).write_text(json.dumps(summary))
second.stop()
wb.stop_session()
summary
