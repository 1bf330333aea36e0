"""Joins in jobs of several tasks and stages: the result is that of a batch join of what was accepted."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datasets import airlines, flights, weather
from tests.support.jobs import EPOCH_MS, events, write_events
from tests.support.local import LocalJob
from workbench.drain import write_notification
from workbench.engine.failures import TaskFailed
from workbench.errors import IncompatibleCheckpoint, InvalidJoin, SchemaMismatch, UnknownColumn
from workbench.graph import Application, MessageStream
from workbench.systems.log import StreamLog
from workbench.windows import tumbling

quick = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
MINUTE = 60_000
Pairs = Counter[tuple[int, int]]
NOBODY = -1


@pytest.fixture
def log(tmp_path: Path) -> StreamLog:
    return StreamLog(tmp_path / "log")


def sides(left: int, right: int, disorder: int, seed: int) -> dict[str, list[pa.Table]]:
    """Events of both sides, one table for each of 2 and 3 partitions; some keys are null."""
    tables = {
        "left": events(left, partitions=2, disorder_ms=disorder, seed=seed),
        "right": events(right, partitions=3, disorder_ms=disorder, seed=seed + 1),
    }
    for parts in tables.values():
        for index, part in enumerate(parts):
            keys = pa.array(
                [None if i % 11 == 5 else key for i, key in enumerate(part["key"].to_pylist())], pa.string()
            )
            parts[index] = part.set_column(1, "key", keys)
    return tables


def joined(how: str, before: int, after: int, partitions: int, bound: int, *, name: str = "joined") -> Application:
    """left and right, each partitioned by key, joined within the bound → out; late rows on the side."""
    app = Application(name)
    one, other = (
        app.input(stream, event_time="at", out_of_orderness=bound).partition_by(
            "key", partitions=partitions, name=f"{stream} by key"
        )
        for stream in ("left", "right")
    )
    one.join(other, on="key", within=(before, after), how=how, late=("late left", "late right")).send_to("out")
    return app


def rows_of(tables: list[pa.Table]) -> pd.DataFrame:
    """id, key, t (milliseconds) of all rows."""
    table = pa.concat_tables(tables)
    times = table["at"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_numpy()
    return pd.DataFrame({"id": table["id"].to_numpy(), "key": table["key"].to_pandas(), "t": times})


def batch_join(left: pd.DataFrame, right: pd.DataFrame, how: str, before: int, after: int) -> Pairs:
    """The ids of the pairs, by plain pandas."""
    both = left.dropna(subset="key").merge(right.dropna(subset="key"), on="key", suffixes=("", "_right"))
    both = both[(both["t_right"] - both["t"]).between(-before, after)]
    pairs = Counter(zip(both["id"].tolist(), both["id_right"].tolist(), strict=True))
    if how == "left":
        pairs += Counter((number, NOBODY) for number in left.loc[~left["id"].isin(both["id"]), "id"].tolist())
    return pairs


def found(log: StreamLog) -> Pairs:
    out = log.stream("out").to_pandas()
    if out.empty:
        return Counter()
    others = out["id_right"] if "id_right" in out else pd.Series([None] * len(out))
    return Counter((int(a), NOBODY if pd.isna(b) else int(b)) for a, b in zip(out["id"], others, strict=True))


def accepted(log: StreamLog, side: str, rows: pd.DataFrame) -> pd.DataFrame:
    late = log.stream(f"late {side}").to_pandas()
    return rows if late.empty else rows[~rows["id"].isin(late["id"])]


@quick
@given(
    left=st.integers(0, 300),
    right=st.integers(0, 300),
    how=st.sampled_from(["inner", "left"]),
    before=st.sampled_from([0, 20 * MINUTE, -10 * MINUTE, 600 * MINUTE]),
    width=st.sampled_from([10 * MINUTE, 200 * MINUTE]),
    disorder=st.sampled_from([0, 60 * MINUTE, 300 * MINUTE]),
    bound=st.sampled_from([0, 60 * MINUTE]),
    partitions=st.integers(1, 4),
    max_messages=st.integers(40, 700),
    routing=st.sampled_from(["broadcast", "aggregate"]),
    chooser=st.sampled_from([None, "time_aligned"]),
    crashes=st.frozensets(st.integers(0, 12)),
    seed=st.integers(0, 1_000),
)
def test_every_pair_comes_once_whatever_the_disorder_the_bounds_the_batches_and_the_crashes(
    left: int,
    right: int,
    how: str,
    before: int,
    width: int,
    disorder: int,
    bound: int,
    partitions: int,
    max_messages: int,
    routing: str,
    chooser: str | None,
    crashes: frozenset[int],
    seed: int,
) -> None:
    tables = sides(left, right, disorder, seed)
    after = width - before
    with tempfile.TemporaryDirectory() as directory:
        log = StreamLog(directory)
        for side, parts in tables.items():
            write_events(log, parts, side)
        app = joined(how, before, after, partitions, bound)
        job = LocalJob(app, log, max_messages=max_messages, routing={"watermark": routing}, chooser=chooser)
        job.run_to_end(crashes)
        assert job.status == "finished"
        one, other = (accepted(log, side, rows_of(parts)) for side, parts in tables.items())
        assert found(log) == batch_join(one, other, how, before, after)
        late = left + right - len(one) - len(other)
        assert late == sum(batch.summary["late_messages"] for batch in job.recorder.batches())
        if disorder <= bound:
            assert late == 0
        assert sum(job.recorder.open_rows().values()) == 0
        if how == "left" and found(log):
            assert not log.stream("out").to_pandas()["drained"].any()


@quick
@given(
    how=st.sampled_from(["inner", "left"]),
    after=st.sampled_from([10 * MINUTE, 200 * MINUTE]),
    before_drain=st.integers(0, 5),
    partitions=st.integers(1, 3),
    ended=st.sampled_from([(), ("right",), ("left",)]),
    crashes=st.frozensets(st.integers(0, 6)),
    seed=st.integers(0, 1_000),
)
def test_a_drain_emits_what_waits_for_a_match_and_says_so(
    how: str,
    after: int,
    before_drain: int,
    partitions: int,
    ended: tuple[str, ...],
    crashes: frozenset[int],
    seed: int,
) -> None:
    tables = sides(250, 200, 0, seed)
    with tempfile.TemporaryDirectory() as directory:
        log = StreamLog(directory)
        for side, parts in tables.items():
            write_events(log, parts, side, end=side in ended)
        app = joined(how, 0, after, partitions, 0)
        old = LocalJob(app, log, max_messages=70)
        for _ in range(before_drain):
            old.step()
        write_notification(log.metadata, old.deployment.run_id)
        old.run_to_end(crashes)
        assert sum(old.recorder.open_rows().values()) == 0
        cut = {
            side: [min(position, len(part)) for position, part in zip(old.plan.positions[side], parts, strict=True)]
            for side, parts in tables.items()
        }
        first, rest = (
            {
                side: rows_of(
                    [part.slice(0, n) if early else part.slice(n) for part, n in zip(parts, cut[side], strict=True)]
                )
                for side, parts in tables.items()
            }
            for early in (True, False)
        )
        early = batch_join(first["left"], first["right"], how, 0, after)
        assert found(log) == early
        if how == "left" and early:
            out = log.stream("out").to_pandas()
            alone = out["id_right"].isna() if "id_right" in out else pd.Series(True, index=out.index)
            drained = out["drained"].astype(bool)
            assert alone[drained].all(), "a pair is whole"
            times = pd.to_datetime(out["at"], utc=True)
            if not ended and len(first["right"]):
                # A row that waited when the drain came had more time to come: the right side had not passed its bound.
                reached = EPOCH_MS + (first["right"]["t"].max() - EPOCH_MS)
                ms = times.dt.tz_localize(None).astype("datetime64[ms]").astype("int64")
                waiting = alone & (ms + after >= reached) & out["key"].notna()
                assert drained[waiting].all()
        for side in tables:
            if side not in ended:
                log.stream(side).end()
        new = LocalJob(joined(how, 0, after, partitions, 0), log).run_to_end()
        assert new.status == "finished"
        assert found(log) == early + batch_join(rest["left"], rest["right"], how, 0, after)
        assert sum(batch.summary["late_messages"] for batch in new.recorder.batches()) == 0


def test_windows_behind_a_join_lose_nothing(log: StreamLog) -> None:
    """The join's output watermark stays behind what it may still emit: no pane closes too early, nothing is late."""
    tables = sides(400, 300, 60 * MINUTE, 3)
    for side, parts in tables.items():
        write_events(log, parts, side)
    app = Application("counted")
    one, other = (
        app.input(side, event_time="at", out_of_orderness="1h").partition_by("key", partitions=3, name=f"{side} by key")
        for side in ("left", "right")
    )
    both = one.join(other, on="key", within="3h", how="left")
    both.window(tumbling("1h"), by="key", late="late").aggregate(n=("id", "size")).send_to("panes")
    other.join(one, on="key", within="3h", event_time="at_right").window(
        tumbling("1h"), by="key", late="late too"
    ).aggregate(n=("id", "size")).send_to("panes of the other")
    LocalJob(app, log, max_messages=60).run_to_end()
    assert sum(log.stream("late").heads()) == sum(log.stream("late too").heads()) == 0
    rows = {side: rows_of(parts) for side, parts in tables.items()}
    pairs = batch_join(rows["left"], rows["right"], "left", 180 * MINUTE, 180 * MINUTE)
    hours = (rows["left"].set_index("id")["t"] // 3_600_000).to_dict()
    for stream, expected in (
        ("panes", Counter(hours[a] for a, b in pairs.elements())),
        ("panes of the other", Counter(hours[a] for a, b in pairs.elements() if b != NOBODY)),
    ):
        panes = log.stream(stream).to_pandas()
        starts = pd.to_datetime(panes["window_start"], utc=True).astype("int64") // 10**9 // 3_600
        if panes["window_start"].dt.unit != "ns":
            starts = panes["window_start"].astype("datetime64[ns, UTC]").astype("int64") // 10**9 // 3_600
        assert panes.groupby(starts.to_numpy())["n"].sum().to_dict() == dict(expected)


def test_a_stream_can_be_joined_with_itself(log: StreamLog) -> None:
    tables = events(200, partitions=2, disorder_ms=0)
    write_events(log, tables, "left")
    app = Application("itself")
    stream = app.input("left", event_time="at").partition_by("key", partitions=2)
    stream.join(stream, on="key", within=("-1ms", "20 min")).send_to("out")
    assert "left" in repr(app) and "inner join by key" in app._repr_html_()
    LocalJob(app, log, max_messages=50).run_to_end()
    rows = rows_of(tables)
    expected = batch_join(rows, rows, "inner", -1, 20 * MINUTE)
    assert len(expected) > 50 and found(log) == expected


@pytest.mark.parametrize(("rows", "hours", "chooser"), [(33_000, 3_000, None), (4_000, 400, "time_aligned")])
@pytest.mark.filterwarnings(
    "ignore:chooser='time_aligned' orders inputs by event time, but none is named for 'airlines'"
)
def test_flights_find_the_weather_of_their_hour_and_the_name_of_their_airline(
    log: StreamLog, rows: int, hours: int, chooser: str | None
) -> None:
    """Up to a tenth of the flights, three airports: a bootstrap table that is broadcast, and a join within an hour."""
    flights.write(log, limit=rows, batch_rows=3_000)
    weather.write(log, batch_rows=1_000, limit=3 * hours)
    airlines.write(log)
    app = Application("flights")
    names = app.input("airlines", bootstrap=True).broadcast().table("carrier")
    named = app.input("flights", event_time="event_time", out_of_orderness="12h").join(names, how="left")
    observed = app.input("weather", event_time="event_time")
    named.join(observed, on="origin", within=("59 min 59s 999ms", 0), how="left").send_to("out")
    job = LocalJob(app, log, max_messages=4_000, chooser=chooser)
    held = max(sum(report.open_rows for report in reports) for reports in job.batches())
    assert job.run_to_end().status == "finished"
    assert (held < 100) is (chooser is not None), "side by side in time, neither has to be remembered for long"

    truth = flights.table().slice(0, rows).to_pandas().merge(airlines.table().to_pandas(), on="carrier", how="left")
    truth["hour"] = truth["event_time"].dt.floor("h")
    hourly = weather.table().slice(0, 3 * hours).to_pandas().rename(columns={"event_time": "hour"})
    truth = truth.merge(hourly, on=["origin", "hour"], how="left")
    out = log.stream("out").to_pandas()
    assert list(out.columns)[12:14] == ["name", "event_time_right"] and out["name"].notna().all()
    order = ["landed_at", "origin", "flight", "carrier", "dest"]
    for column in ("carrier", "flight", "tailnum", "name", "temp", "wind_speed", "pressure"):
        ours, theirs = (frame.sort_values(order)[column].reset_index(drop=True) for frame in (out, truth))
        equal = (
            ours.to_numpy(dtype=object, na_value=None) == theirs.astype(object).where(theirs.notna(), None).to_numpy()
        )
        assert equal.all(), column
    assert 0 < out["temp"].isna().sum() < 100


@pytest.mark.parametrize("where", ["before partition_by", "behind it", "behind it, and not without rows"])
def test_a_task_that_never_has_a_row_of_the_other_side_names_its_columns_all_the_same(
    log: StreamLog, where: str
) -> None:
    """Only key-0 is on the right, so most tasks see none of it, and the output has one schema."""

    def renamed(frame: pd.DataFrame) -> pd.DataFrame:
        if where.endswith("rows"):
            assert len(frame)
        return frame.rename(columns={"value": "other", "at": "seen"})

    tables = sides(200, 200, 0, 2)
    right = [part.filter(pc.equal(part["key"], "key-0")) for part in tables["right"]]
    write_events(log, tables["left"], "left")
    write_events(log, right, "right")
    app = Application("sparse")
    other = source(app, "right")
    if where == "before partition_by":
        other = other.map(renamed, event_time="seen").partition_by("key", partitions=4, name="r")
    else:
        other = other.partition_by("key", partitions=4, name="r").map(renamed, event_time="seen")
    left = source(app, "left").partition_by("key", partitions=4, name="l")
    left.join(other, on="key", within="1h", how="left").send_to("out")
    if where.endswith("rows"):
        with pytest.raises(SchemaMismatch, match="'seen': "):  # nobody can know what this function would return
            LocalJob(app, log, max_messages=50).run_to_end()
        return
    LocalJob(app, log, max_messages=50).run_to_end()
    rows = batch_join(rows_of(tables["left"]), rows_of(right), "left", 60 * MINUTE, 60 * MINUTE)
    assert found(log) == rows
    assert {"seen", "other", "id_right"} <= set(log.stream("out").to_pandas().columns)


# Tables.


def test_a_table_follows_its_stream_is_kept_over_a_drain_and_holds_no_time_back(log: StreamLog) -> None:
    names, orders = log.create("names", 1), log.create("orders", 2)

    def app() -> Application:
        made = Application("shop")
        table = made.input("names", bootstrap=True).broadcast().table("who")
        stream = made.input("orders", event_time="at").join(table, on="by", suffixes=("", "_of_table"))
        stream.window(tumbling("1h"), by=("name",)).aggregate(n=("id", "count")).send_to("panes")
        stream.send_to("out")
        return made

    def order(*rows: tuple[str, int]) -> None:
        for partition in range(2):
            mine = [row for row in rows if row[1] % 2 == partition]
            if mine:
                at = pa.array([EPOCH_MS + 3_600_000 * number for _, number in mine], pa.timestamp("ms", "UTC"))
                orders.append(
                    pa.table({"at": at, "by": [by for by, _ in mine], "id": [n for _, n in mine]}), partition, "at"
                )

    names.append(pa.table({"who": ["a", "b", None], "name": ["Ann", "Bob", "Null"], "id": [1, 2, 3]}))
    order(("a", 0), ("b", 1), ("c", 2), (None, 3))
    job = LocalJob(app(), log)
    list(job.batches())
    names.append(pa.table({"who": ["c", "a"], "name": ["Cid", "Anna"], "id": [4, 5]}))
    list(job.batches())
    order(("a", 4), ("b", 5), ("c", 6), ("a", 7))
    list(job.batches())
    out = log.stream("out").to_pandas()
    assert sorted(zip(out["id"], out["name"], strict=True)) == [
        (0, "Ann"),
        (1, "Bob"),
        (4, "Anna"),
        (5, "Bob"),
        (6, "Cid"),
        (7, "Anna"),
    ]
    assert "id_of_table" in out and "who" not in out
    assert len(log.stream("panes").to_pandas()) == 4, "time goes on although the table's stream has none and never ends"
    assert sum(job.recorder.open_rows().values()) == 2, "a table is no buffer: only the open windows of the last orders"
    write_notification(log.metadata, job.deployment.run_id)
    assert job.run_to_end().status == "drained"
    order(("c", 8))
    again = LocalJob(app(), log)
    list(again.batches())
    out = log.stream("out").to_pandas()
    assert out.loc[out["id"] == 8, "name"].tolist() == ["Cid"]
    again.release()


# What is refused.


def source(app: Application, stream: str) -> MessageStream:
    return app.input(stream, event_time="at")


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda a, b: a.join(b, on="key"), "needs a bound in time.*within='2h'.*table"),
        (lambda a, b: a.join(b, on="key", within="2h", how="outer"), "'inner' or 'left', not 'outer'"),
        (lambda a, b: a.join(b, on=[], within="2h"), "names of one or more key columns"),
        (lambda a, b: a.join(b, on=None, within="2h"), "names of one or more key columns"),
        (lambda a, b: a.join(b, on="key", within=("-2h", "1h")), "begins -2h before it"),
        (lambda a, b: a.join(b, on="key", within=("2h",)), "two of them"),
        (lambda a, b: a.join(b, on="key", within="2h", event_time="seen"), "'at', 'at_right', not 'seen'"),
        (lambda a, b: a.join(b, on="key", within="2h", how="left", event_time="at_right"), "can be missing.*is 'at'"),
        (lambda a, b: a.join(b, on="key", within="2h", suffixes=("x",)), "suffixes are two texts"),
        (lambda a, b: a.join(b, on="key", within="2h", suffixes=("", "")), "the same name: 'at', 'id', 'value'"),
        (lambda a, b: a.join(b, on="key", within="2h", late="late"), "go to two streams"),
        (lambda a, b: a.join("right", on="key"), "not with str"),
        (lambda a, b: a.join(b.table("key"), within="2h"), "A table knows no time.*'within'"),
        (lambda a, b: a.join(b.table("key"), on=("key", "id")), "1 column.s. of the stream to look it up by, not 2"),
        (lambda a, b: a.join(b.table(()), on="key"), "A table needs the names"),
        (
            lambda a, b: a.join(b, on="key", within="2h"),
            "equally many partitions.*'left' has 2, 'right' has 3.*broadcast",
        ),
        (lambda a, b: a.join(b.table("key")), "equally many partitions.*'left' has 2, 'right' has 3.*broadcast"),
        (
            lambda a, b: a.partition_by("key", partitions=3).join(b, on="key", within="2h"),
            "'refused.key' by key, 'right' as it was written.*on both sides, or .broadcast",
        ),
        (
            lambda a, b: a.partition_by("id", partitions=3).join(
                b.partition_by("key", partitions=3), on="key", within="1h"
            ),
            "joins by 'key', but a side is partitioned by 'id'",
        ),
        (
            lambda a, b: a.partition_by("key", "id", partitions=3).join(
                b.partition_by("id", "key", partitions=3), on=("key", "id"), within="1h"
            ),
            "needs both sides partitioned alike",
        ),
        (
            lambda a, b: a.broadcast().join(b, on="key", within="1h", how="left"),
            "left side, 'refused.broadcast', is broadcast",
        ),
        (
            lambda a, b: a.join(b.filter("id > 0").partition_by("value"), on="value", within="1h"),
            "partitioned alike|equally",
        ),
    ],
)
def test_a_join_that_would_not_give_what_it_says_is_refused_before_anything_runs(
    log: StreamLog, build: object, sentence: str
) -> None:
    for side, parts in sides(30, 30, 0, 1).items():
        write_events(log, parts, side)
    app = Application("refused")
    with pytest.raises(InvalidJoin, match=sentence):
        build(source(app, "left"), source(app, "right")).send_to("out")  # type: ignore[operator]
        LocalJob(app, log)


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_side_that_is_broadcast_goes_with_any_partitioning(log: StreamLog, how: str) -> None:
    tables = sides(120, 60, 0, 5)
    for side, parts in tables.items():
        write_events(log, parts, side)
    app = Application("wide")
    source(app, "left").join(source(app, "right").broadcast(), on="key", within="2h", how=how).send_to("out")
    LocalJob(app, log, max_messages=50).run_to_end()
    rows = {side: rows_of(parts) for side, parts in tables.items()}
    assert found(log) == batch_join(rows["left"], rows["right"], how, 120 * MINUTE, 120 * MINUTE)


def test_what_a_join_keeps_may_not_be_something_else_in_the_next_deployment(log: StreamLog) -> None:
    for side, parts in sides(60, 60, 0, 1).items():
        write_events(log, parts, side)
    job = LocalJob(joined("inner", 0, MINUTE, 2, 0), log, max_messages=30)
    job.step()
    job.release()
    with pytest.raises(IncompatibleCheckpoint, match=r"inner by key within .* of at and at"):
        LocalJob(joined("inner", 0, 2 * MINUTE, 2, 0), log)
    LocalJob(joined("inner", 0, MINUTE, 2, 0), log).run_to_end()


def test_an_error_in_a_join_names_the_join(log: StreamLog) -> None:
    for side, parts in sides(60, 60, 0, 1).items():
        write_events(log, parts, side)
    app = Application("spoilt")
    left = source(app, "left").map(lambda f: f, name="as it is").partition_by("key", partitions=2, name="l")
    right = (
        source(app, "right")
        .map(lambda f: f.assign(key=np.arange(len(f))), name="spoil")
        .partition_by("key", partitions=2, name="r")
    )
    left.join(right, on="key", within="1h").send_to("out")
    with pytest.raises(
        TaskFailed, match="'key' is of type string on the left and 'key' of type int64 on the right"
    ) as failed:
        LocalJob(app, log).run_to_end()
    assert failed.value.failure.operator.startswith("inner join by key")


def test_a_key_that_a_side_will_not_have_is_told_before_anything_runs(log: StreamLog) -> None:
    for side, parts in sides(30, 30, 0, 1).items():
        write_events(log, [parts[0]], side)
    for build, sentence in (
        (lambda a, b: a.join(b, on="kex", within="1h"), "'kex'.*inner join by kex, left"),
        (lambda a, b: a.join(b.table("kex"), on="key"), "'kex'.*table by kex"),
        (lambda a, b: a.join(b.table("key"), on="kex"), "'kex'.*inner join table by kex"),
        (lambda a, b: a.join(b, on="key", within="1h").filter("value_rite > 0"), "'value_rite'.*'value_right'"),
    ):
        app = Application("refused")
        build(source(app, "left"), source(app, "right")).send_to("out")
        with pytest.raises(UnknownColumn, match=sentence):
            LocalJob(app, log)


def test_a_join_is_drawn_with_its_sides_and_its_late_rows() -> None:
    edges = {(edge.source, edge.target, edge.label) for edge in joined("left", 0, 1, 2, 0).picture().edges}
    [join] = {target for _, target, label in edges if label == "right"}
    assert ("stream:left by key", join, "left") in edges and ("stream:right by key", join, "right") in edges
    assert (join, "stream:late left", "late rows, left") in edges
    assert (join, "stream:late right", "late rows, right") in edges
