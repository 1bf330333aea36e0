"""Whatever the disorder, the partitions, the batches and the routing: a job computes what its input says."""

from __future__ import annotations

import tempfile
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.jobs import EPOCH_MS, assert_hourly_is_true, events, hourly, write_events
from tests.support.local import LocalJob
from workbench.graph import Application
from workbench.messages import MAX_TIMESTAMP
from workbench.systems.log import Rows, StreamLog
from workbench.windows import session, sliding, tumbling

quick = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
routings = st.sampled_from(["broadcast", "aggregate"])


@quick
@given(
    rows=st.integers(0, 1_500),
    sources=st.integers(1, 5),
    partitions=st.integers(1, 6),
    disorder=st.sampled_from([0, 60_000, 7_200_000, 40_000_000]),
    bound=st.sampled_from([0, 60_000, 7_200_000]),
    max_messages=st.integers(50, 2_000),
    watermark=routings,
    end_of_stream=routings,
    crashes=st.sets(st.integers(0, 20)),
    seed=st.integers(0, 10_000),
)
def test_panes_equal_the_truth_less_the_late_rows(
    rows: int,
    sources: int,
    partitions: int,
    disorder: int,
    bound: int,
    max_messages: int,
    watermark: str,
    end_of_stream: str,
    crashes: set[int],
    seed: int,
) -> None:
    tables = events(rows, partitions=sources, disorder_ms=disorder, seed=seed)
    with tempfile.TemporaryDirectory() as directory:
        log = StreamLog(directory)
        write_events(log, tables)
        job = LocalJob(
            hourly(partitions, out_of_orderness=bound),
            log,
            max_messages=max_messages,
            routing={"watermark": watermark, "end_of_stream": end_of_stream},
        )
        for crash in range(21):
            if crash in crashes:
                job.step(commit=False)
            if not job.step():
                break
        job.run_to_end()
        late = assert_hourly_is_true(log, tables)
        if disorder <= bound:
            assert late == 0
        assert log.stream("hourly.key").to_pandas()["id"].nunique() == rows if rows else True


def run_alone(app: Application, log: StreamLog, **options: object) -> LocalJob:
    return LocalJob(app, log, **options).run_to_end()


@pytest.fixture
def log(tmp_path) -> StreamLog:
    return StreamLog(tmp_path / "log")


def test_a_diamond_flushes_its_windows_before_it_ends(log: StreamLog) -> None:
    """One branch has a window, the other none; behind their merge nothing comes after the end (the original: panes do)."""
    tables = events(400, partitions=2, disorder_ms=0)
    write_events(log, tables)
    app = Application("diamond")
    source = app.input("events", event_time="at")
    plain = source.map(
        lambda f: f[["at", "key"]].rename(columns={"at": "window_start"}).assign(n=1),
        name="plain",
        event_time="window_start",
    )
    counted = source.window(tumbling("1h"), by="key").aggregate(n=("id", "count"))
    counted = counted.map(lambda f: f[["window_start", "key", "n"]], name="narrow")
    merged = plain.merge(counted)
    merged.partition_by("key", partitions=3).send_to("out")
    run_alone(app, log, max_messages=100)
    for partition in range(3):
        entries = list(log.stream("diamond.key").read(partition))
        kinds = ["rows" if isinstance(entry, Rows) else "controls" for entry in entries]
        assert kinds[-1] == "controls"
        last_rows = max(index for index, kind in enumerate(kinds) if kind == "rows") if "rows" in kinds else -1
        ends = [
            index
            for index, entry in enumerate(entries)
            if kinds[index] == "controls" and any(kind == 2 for kind in entry.run.types)
        ]
        assert ends and min(ends) > last_rows, "no row after the first task's end would be read by anybody"
    out = log.stream("out").to_pandas()
    assert out["n"].sum() == 2 * 400


def test_three_stages_a_merge_of_two_inputs_and_a_broadcast(log: StreamLog) -> None:
    tables = events(600, partitions=3, disorder_ms=0)
    write_events(log, tables[:2], "left")
    write_events(log, tables[2:], "right")
    app = Application("three")
    both = app.merge(app.input("left", event_time="at"), app.input("right", event_time="at"))
    hours = both.partition_by("key", partitions=4).window(tumbling("1h")).aggregate(n=("id", "count"))
    days = hours.partition_by("key", partitions=2, name="per day").window(tumbling("1d")).aggregate(total=("n", "sum"))
    days.send_to("days", partitions=2)
    days.broadcast().map(lambda f: f.assign(seen=1), name="seen").send_to("everywhere")
    job = run_alone(app, log, max_messages=90)
    days_out = log.stream("days").to_pandas()
    truth = Counter(key for table in tables for key in table["key"].to_pylist())
    assert days_out.groupby("key")["total"].sum().to_dict() == dict(truth)
    everywhere = log.stream("everywhere").to_pandas()
    assert len(everywhere) == job.deployment.plan.tasks * len(days_out), "every task reads all of a broadcast stream"


def test_branches_of_inputs_with_different_numbers_of_partitions_end(log: StreamLog) -> None:
    write_events(log, events(200, partitions=2, disorder_ms=0), "narrow")
    write_events(log, events(200, partitions=4, disorder_ms=0), "wide")
    app = Application("uneven")
    narrow, wide = app.input("narrow", event_time="at"), app.input("wide", event_time="at")
    narrow.partition_by("key", partitions=2, name="by key").send_to("of narrow")
    narrow.merge(wide).send_to("both")
    run_alone(app, log)
    assert len(log.stream("of narrow").to_pandas()) == 200
    assert len(log.stream("both").to_pandas()) == 400


def test_a_stream_can_meet_its_own_repartitioning(log: StreamLog) -> None:
    write_events(log, events(200, partitions=2, disorder_ms=0))
    app = Application("itself")
    source = app.input("events", event_time="at")
    source.merge(source.partition_by("key", partitions=4)).send_to("twice")
    assert "twice" in repr(app) and "twice" in app._repr_html_()
    run_alone(app, log, max_messages=50)
    assert log.stream("twice").to_pandas()["id"].value_counts().eq(2).all()


@pytest.mark.parametrize("assigner", [sliding("3h", "1h"), session("20 min")])
def test_other_windows_across_stages_equal_a_plain_computation(log: StreamLog, assigner: object) -> None:
    tables = events(500, partitions=2, disorder_ms=600_000, keys=4)
    write_events(log, tables)
    app = Application("windows")
    (
        app.input("events", event_time="at", out_of_orderness=600_000)
        .partition_by("key", partitions=3)
        .window(assigner, late="late")
        .aggregate(n=("id", "count"), least=("value", "min"))
        .send_to("panes")
    )
    run_alone(app, log, max_messages=120)
    assert log.stream("late").heads() == [0, 0, 0]
    rows = pd.concat(table.to_pandas() for table in tables)
    rows["t"] = (
        rows["at"].astype("int64")
        if rows["at"].dtype == "int64"
        else rows["at"].dt.tz_localize(None).astype("datetime64[ms]").astype("int64")
    )
    expected = []
    for key, group in rows.groupby("key"):
        group = group.sort_values("t")
        if str(assigner).startswith("session"):
            number = (group["t"].diff() > 1_200_000).cumsum()
            expected += [(key, part["t"].min(), len(part), part["value"].min()) for _, part in group.groupby(number)]
        else:
            hour = 3_600_000
            for start in np.arange(group["t"].min() // hour * hour - 2 * hour, group["t"].max() + 1, hour):
                part = group[(group["t"] >= start) & (group["t"] < start + 3 * hour)]
                if len(part):
                    expected.append((key, start, len(part), part["value"].min()))
    panes = log.stream("panes").to_pandas()
    starts = (
        pd.to_datetime(panes["window_start"], utc=True).dt.tz_localize(None).astype("datetime64[ms]").astype("int64")
    )
    ours = sorted(zip(panes["key"], starts, panes["n"], panes["least"], strict=True))
    assert ours == sorted(expected)


def test_a_row_from_the_future_is_kept_at_bay_by_max_ahead(log: StreamLog) -> None:
    tables = events(400, partitions=1, disorder_ms=0)
    poisoned = tables[0].to_pandas()
    poisoned.loc[150, "at"] = pd.Timestamp("2099-01-01", tz="UTC")
    import pyarrow as pa

    write_events(log, [pa.Table.from_pandas(poisoned, schema=tables[0].schema)])
    late = {}
    for name, guard in (("open", None), ("guarded", "6h")):
        app = Application(name)
        stream = app.input("events", event_time="at", max_ahead=guard)
        stream.window(tumbling("1h"), by="key", late=f"late-{name}").aggregate(n=("id", "count")).send_to(f"out-{name}")
        run_alone(app, log, max_messages=40)
        late[name] = sum(log.stream(f"late-{name}").heads())
    assert late["open"] > 200
    assert late["guarded"] == 0


def test_times_before_1970_are_times_and_not_unknown(log: StreamLog) -> None:
    import pyarrow as pa

    table = events(300, partitions=1, disorder_ms=0)[0]
    old = table.set_column(
        0, "at", pa.array(np.asarray(table["at"].cast(pa.int64())) - 2 * EPOCH_MS, pa.timestamp("ms", "UTC"))
    )
    write_events(log, [old])
    job = LocalJob(hourly(2), log, max_messages=50)
    job.step()
    job.step()
    state = job.recorder.batches()[-1].reports[0]["inputs"]["events"]
    assert state["state"] == "active"
    assert state["watermark"] < 0
    job.run_to_end()
    assert_hourly_is_true(log, [old])


def test_messages_of_an_aggregate_routing_are_n_plus_m_less_one(log: StreamLog) -> None:
    counts = {}
    for routing in ("broadcast", "aggregate"):
        stream = f"events-{routing}"
        write_events(log, events(200, partitions=4, disorder_ms=0), stream)
        app = Application(routing)
        app.input(stream).partition_by("key", partitions=5).send_to(f"out-{routing}")
        run_alone(app, log, routing={"watermark": routing, "end_of_stream": routing})
        ends = [
            entry.run
            for partition in range(5)
            for entry in log.stream(f"{routing}.key").read(partition)
            if not isinstance(entry, Rows)
        ]
        counts[routing] = sum(kind == 2 for run in ends for kind in run.types)
        assert max(time for run in ends for time in run.timestamps) == MAX_TIMESTAMP
    assert counts == {"broadcast": 4 * 5, "aggregate": 4 + 5 - 1}


def test_a_task_without_a_partition_of_one_input_is_not_held_back_behind_other_operators(log: StreamLog) -> None:
    write_events(log, events(100, partitions=2, disorder_ms=0), "narrow")
    write_events(log, events(100, partitions=4, disorder_ms=0, seed=4), "wide")
    app = Application("widths")
    narrow = app.input("narrow", event_time="at").filter("value > -1000")
    narrow.partition_by("key", partitions=3, name="side").window(tumbling("1h")).aggregate(n=("id", "count")).send_to(
        "side panes"
    )
    both = narrow.merge(app.input("wide", event_time="at"))
    both.window(tumbling("1h"), by="key").aggregate(n=("id", "count")).send_to("panes")
    run_alone(app, log, max_messages=40)
    assert log.stream("panes").to_pandas()["n"].sum() == 200
    assert log.stream("side panes").to_pandas()["n"].sum() == 100
    said = log.stream("side").to_pandas(control=True)["_task_name"].dropna().unique()
    assert sorted(said) == ["Partition 0", "Partition 1"], "who consumes nothing of it has nothing to say"
