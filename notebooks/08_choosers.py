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
# # Who goes first?
#
# A task that reads several inputs has to take one message before another. Most of the time nobody cares. Sometimes it is
# all that matters: the past that is caught up with must not delay what happens now, or one kind of message is wanted
# before all others. A **chooser** decides; the order it took is planned with the batch, taken again after a crash, and
# can be read afterwards.
#
# Four uses, those of the design document: live beside a backfill, a table that is complete before it is needed, inputs that
# are kept together in time, and a rule of your own.

# %% tags=["parameters"]
log_dir: str = "var/choosers"  # directory of the stream log; what this notebook made there before is made anew
backfill_months: str = "1-11"  # months of 2013 behind, first-last
live_limit: int = 27_000  # flights of December that are fed live, in order of landing
max_messages: int = 4_000  # messages that one batch admits
aligned_days: int = 31  # days of January that are joined with the weather
delayed_limit: int = 600  # flights of each airport in the last part
timeout_s: float = 600.0  # give up waiting after so many seconds
result_file: str = ""  # where to write the result as JSON; empty: nowhere

# %%
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.express as px
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as f

import workbench as wb
from datasets import airlines, flights, weather
from datasets.feeder import Feeder, pieces
from workbench.choosers import IncomingEnvelope
from workbench.engine.run import Run
from workbench.notebooks import fresh_log

began = time.monotonic()
log = fresh_log(log_dir, "08_choosers")  # removes only what an earlier run of this notebook made
spark = wb.local_session()
wb.register(spark)

# %% [markdown]
# ## Backfill beside live
#
# January to November lie in the log already; December comes in live, faster than half of what the job can take. Both are
# merged and counted by carrier and hour. The one application knows nothing of urgency, the other says `priority=10` for
# what is live.

# %%
first, last = (int(month) for month in backfill_months.split("-"))
flights.write(log, "past", months=range(first, last + 1))
december = flights.december().slice(0, live_limit)
airport = pc.index_in(december["origin"], pa.array(flights.ORIGINS)).to_numpy()


def counted(name: str, live: str, priority: int) -> wb.Application:
    app = wb.Application(name)
    past = app.input("past", event_time="event_time", out_of_orderness="12h")
    now = app.input(live, event_time="event_time", out_of_orderness="12h", priority=priority)
    hours = past.merge(now).window(wb.tumbling("1h"), by=("origin", "carrier"), late=f"{name}.late")
    hours.aggregate(flights=("flight", "count")).send_to(f"{name}.hours")
    return app


counted("with-priorities", "live", 10)

# %% [markdown]
# How long does a live flight wait from its append until the batch that took it is committed? The feeder tells the one
# moment, `run.choices()` the other.


# %%
def timed(
    rows: Iterator[tuple[pa.Table, int]], appended: list[tuple[int, int, float]]
) -> Iterator[tuple[pa.Table, int]]:
    """The same pieces; notes (partition, rows, seconds since the epoch) of each when it has been appended."""
    for piece, partition in rows:
        yield piece, partition
        appended.append((partition, len(piece), time.time()))


def until(condition, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"Given up waiting for {what}."
        time.sleep(0.1)


def taken(run: Run, stream: str) -> pd.DataFrame:
    choices = run.choices()
    return choices[choices["stream"] == stream]


def beside(name: str, priority: int) -> tuple[Run, pd.DataFrame]:
    """Feed December beside the backfill until it is read; the run goes on. One row for each live flight: when, how long."""
    live = f"{name}.live"
    log.create(live, len(flights.ORIGINS))
    # The first batches, of the backfill alone, tell how fast this machine is.
    run = counted(name, live, priority).deploy(spark, log, max_messages=max_messages, chooser="round_robin")
    until(lambda: len(run.batches()) >= 5, "the first batches")
    rate = 0.75 * max_messages / run.batches()["seconds"].iloc[2:].median()
    appended: list[tuple[int, int, float]] = []
    fed = timed(pieces(december, airport, piece_rows=300), appended)
    with Feeder(log.stream(live), fed, rows_per_second=rate, end=True) as feeder:
        feeder.wait(timeout_s)
    heads = log.stream(live).heads()
    until(lambda: taken(run, live)["messages"].sum() == sum(heads), "the live flights")
    print(f"{name}: {len(december):,} flights were fed, {rate:,.0f} a second; {run!r}")
    return run, waits(run, live, appended)


def waits(run: Run, live: str, appended: list[tuple[int, int, float]]) -> pd.DataFrame:
    rows = []
    for partition, of_partition in taken(run, live).groupby("partition"):
        came = np.concatenate([np.full(count, at) for where, count, at in appended if where == partition])
        committed = np.repeat(of_partition["time"].astype("int64") / 1_000, of_partition["messages"])[: len(came)]
        rows.append(pd.DataFrame({"fed": came, "seconds": committed.to_numpy() - came}))
    return (
        pd.concat(rows)
        .sort_values("fed", ignore_index=True)
        .assign(fed=lambda table: table["fed"] - table["fed"].min())
    )


# %%
plain, waited_plain = beside("without-priorities", 0)
plain.stop()

# %%
urgent, waited = beside("with-priorities", 10)
behind = taken(urgent, "past")["messages"].sum()
print(f"{behind:,} messages of the backfill went in the gaps.")

# %% [markdown]
# With equal rights, live flights get half of each batch, which is less than what comes in: they wait longer and longer.
# With a priority they never wait for more than the batch that is running.

# %%
both = pd.concat([waited_plain.assign(run="equal rights"), waited.assign(run="live first")])
steps = both.groupby(["run", (both["fed"] / both["fed"].max() * 60).astype(int)], as_index=False)[
    ["fed", "seconds"]
].mean()
drawn = px.line(
    steps, x="fed", y="seconds", color="run", line_dash="run", title="How long does a live flight wait?",
    labels={"fed": "seconds since the feed began", "seconds": "mean seconds until it is committed"},
)  # fmt: skip
drawn.update_layout(template="plotly_white", legend_title_text="", yaxis_rangemode="tozero")

# %%
urgent.figures.choices()

# %%
both.groupby("run")["seconds"].describe(percentiles=[0.5, 0.95]).round(2)

# %% [markdown]
# ### Is the result the same?
#
# The urgent run goes on until the backfill is read, too. Its panes must be those of a plain batch query.

# %%
urgent.wait(timeout=timeout_s)
source = spark.read.format("tidemark").option("path", str(log.directory))
past, live, hours = (
    source.option("stream", name).load() for name in ("past", "with-priorities.live", "with-priorities.hours")
)
truth = (
    past.unionByName(live)
    .groupBy("origin", "carrier", f.window("event_time", "1 hour").alias("w"))
    .agg(f.count("flight").alias("flights"))
    .select("origin", "carrier", f.col("w.start").alias("window_start"), "flights")
    .toPandas()
)
order = ["window_start", "origin", "carrier"]
result = hours.select(*truth.columns).toPandas()
pd.testing.assert_frame_equal(
    result.sort_values(order, ignore_index=True),
    truth.sort_values(order, ignore_index=True),
    check_dtype=False,
)
print(f"All {len(result):,} panes are equal to the batch query's.")

# %%
end = waited["fed"] > 2 / 3 * waited["fed"].max(), waited_plain["fed"] > 2 / 3 * waited_plain["fed"].max()
at_last, at_last_plain = waited.loc[end[0], "seconds"].median(), waited_plain.loc[end[1], "seconds"].median()
assert at_last < 0.6 * at_last_plain, "live flights wait less with a priority"
assert behind > 0, "the backfill proceeds in the gaps"
assert urgent.status == "finished" and sum(log.stream("with-priorities.late").heads()) == 0
live_choices = taken(urgent, "with-priorities.live")
assert set(live_choices["why"]) <= {"priority 10", "alone"}, "alone where the backfill of that airport is read"

# %% [markdown]
# ## A table that is complete before it is needed
#
# Flights carry the two letters of their airline. The names are in a small stream, `airlines`, of which each task keeps a
# table. Whoever reads flights before the table is there finds nothing in it.

# %%
airlines.write(log, "airlines")
january = flights.write(log, "flights", months=[1], limit=870 * aligned_days)


def named(name: str, bootstrap: bool) -> wb.Application:
    app = wb.Application(name)
    names = app.input("airlines", bootstrap=bootstrap).broadcast(name=f"{name}.airlines").table("carrier")
    app.input("flights", event_time="event_time", out_of_orderness="12h").join(names).send_to(f"{name}.flights")
    return app


found = {}
for name, bootstrap in (("at-once", False), ("after-the-table", True)):
    run = named(name, bootstrap).deploy(spark, log, max_messages=max_messages)
    run.wait(timeout=timeout_s)
    found[name] = sum(len(log.stream(f"{name}.flights").to_pandas(partition=origin)) for origin in range(3))
    print(f"{name}: {january - found[name]:,} of {january:,} flights have found no name.")

# %%
taken(run, "airlines")

# %%
assert found["at-once"] < january, "without bootstrap the join misses rows"
assert found["after-the-table"] == january, "with it none"
assert set(taken(run, "airlines")["why"]) == {"bootstrap"}
assert taken(run, "airlines")["batch"].max() < taken(run, "flights")["batch"].min()

# %% [markdown]
# ## Inputs that are kept together in time
#
# Each flight is joined with the weather of the hour before it took off. There are some dozen flights for each
# observation. If a task takes as many of one as of the other, the weather is weeks ahead, and all of it has to be held.

# %%
weather.write(log, "weather", limit=3 * 24 * aligned_days)


def with_weather(name: str) -> wb.Application:
    app = wb.Application(name)
    observed = app.input("weather", event_time="event_time")
    flown = app.input("flights", event_time="event_time", out_of_orderness="12h")
    flown.join(observed, on="origin", within=("1h", 0)).send_to(f"{name}.flights")
    return app


held_by, joined, last_choices = {}, {}, {}
for chooser in ("round_robin", "starting_alignment", "time_aligned"):
    run = with_weather(chooser).deploy(spark, log, max_messages=max_messages // 3, chooser=chooser)
    run.wait(timeout=timeout_s)
    held_by[chooser] = run.batches()["open_rows"].max()
    pairs = log.stream(f"{chooser}.flights").to_pandas()
    joined[chooser] = pairs.sort_values(["event_time", "origin", "carrier", "flight", "temp"], ignore_index=True)
    last_choices[chooser] = run.figures.choices()
buffers = pd.DataFrame(
    {"chooser": list(held_by), "largest join buffer, rows": [int(most) for most in held_by.values()]}
)
buffers

# %%
px.bar(
    buffers, x="largest join buffer, rows", y="chooser", text_auto=True, title="How much does the join hold at most?"
).update_layout(template="plotly_white", yaxis_title="")  # fmt: skip

# %%
last_choices["time_aligned"]

# %%
source = spark.read.format("tidemark").option("path", str(log.directory))
flown, observed = (source.option("stream", name).load() for name in ("flights", "weather"))
gap = f.col("f.event_time").cast("double") - f.col("w.event_time").cast("double")
expected = flown.alias("f").join(observed.alias("w"), f.expr("f.origin = w.origin") & gap.between(0, 3600)).count()
assert all(len(pairs) == expected for pairs in joined.values()), "the chooser decides what is held, not what is found"
assert all(pairs["temp"].equals(joined["round_robin"]["temp"]) for pairs in joined.values())
assert held_by["time_aligned"] < held_by["round_robin"] / 2
print(f"All three found the same {expected:,} pairs.")

# %% [markdown]
# ## A chooser of your own
#
# Three airports, one task. It should see the flights first that are most delayed. A chooser can be a function: it is given
# the messages that wait, at most one of each input, and returns the one to go first.

# %%
for name in flights.ORIGINS:
    of_airport = december.filter(pc.and_(pc.equal(december["origin"], name), pc.invert(december["cancelled"])))
    log.create(name, 1).append(of_airport.slice(0, delayed_limit), 0, time_column="event_time")
    log.stream(name).end()


def most_delayed(waiting: list[IncomingEnvelope]) -> IncomingEnvelope:
    return max(waiting, key=lambda flight: flight.payload["dep_delay"])


app = wb.Application("most-delayed-first")
airports = [app.input(name, event_time="event_time", out_of_orderness="12h") for name in flights.ORIGINS]
app.merge(*airports).send_to("seen")
run = app.deploy(spark, log, chooser=most_delayed)
run.wait(timeout=timeout_s)
run.choices()[["position", "stream", "offset", "messages", "why"]].head(10)

# %%
run.figures.choices()

# %% [markdown]
# Did it do as it was told? The same rule by hand: of the three flights that are next, the most delayed goes; of equal ones
# the one that has waited longest.

# %%
held = {name: log.stream(name).to_pandas()["dep_delay"].tolist() for name in flights.ORIGINS}
waiting = dict.fromkeys(flights.ORIGINS, 0)  # in the order in which they came to wait
by_hand = []
while waiting:
    name = max(waiting, key=lambda name: held[name][waiting[name]])
    by_hand.append(held[name][at := waiting.pop(name)])
    if at + 1 < len(held[name]):
        waiting[name] = at + 1
seen = log.stream("seen").to_pandas()["dep_delay"].tolist()
assert seen == by_hand
assert len(seen) == sum(len(delays) for delays in held.values())
print(f"All {len(seen):,} flights came in that order; the first ten were delayed by {seen[:10]} minutes.")

# %% [markdown]
# ## Stop everything

# %%
summary = {
    "status": urgent.status,
    "live_wait_s": round(float(at_last), 2),
    "live_wait_without_priorities_s": round(float(at_last_plain), 2),
    "backfill_in_the_gaps": int(behind),
    "unnamed_without_bootstrap": january - found["at-once"],
    "unnamed_with_bootstrap": january - found["after-the-table"],
    "join_buffer": {chooser: int(most) for chooser, most in held_by.items()},
    "result_rows": len(result),
    "own_chooser_messages": len(seen),
    "seconds": round(time.monotonic() - began, 1),
}
if result_file:
    Path(result_file).write_text(json.dumps(summary))
run.stop()
wb.stop_session()
summary
