"""A column that is not there is told before anything runs, wherever it can be known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from workbench.engine.checks import check_sources
from workbench.errors import InvalidTime, UnknownColumn, WrongType
from workbench.graph import Application, MessageStream
from workbench.graph.columns import check_columns
from workbench.graph.expressions import columns_in
from workbench.systems.log import StreamLog
from workbench.windows import quantile, tumbling

FLIGHTS = pa.schema(
    [("at", pa.timestamp("ms", "UTC")), ("carrier", pa.string()), ("delay", pa.float64()), ("seats", pa.int64())]
)
Build = Callable[[MessageStream], object]


def check(build: Build, schema: pa.Schema | None = FLIGHTS) -> None:
    app = Application("app")
    build(app.input("flights", event_time="at"))
    check_columns(app.nodes, {"flights": schema})


def hourly(stream: MessageStream, **aggregates: tuple[str, str]) -> MessageStream:
    return stream.window(tumbling("1h")).aggregate(**(aggregates or {"n": ("*", "size")}))


WRONG: list[tuple[str, Build, str]] = [
    ("partition_by", lambda s: s.partition_by("carier"), "'carier' in the rows that reach 'partition_by carier'"),
    ("filter", lambda s: s.filter("dellay > 15 and seats > 3"), "'dellay' in the rows that reach 'filter dellay > 15"),
    ("key of a window", lambda s: hourly(s.window(tumbling("1h"), by="carier").aggregate(n=("*", "size"))), "'carier'"),
    ("aggregate", lambda s: hourly(s.partition_by("carrier"), p=("dealy", "mean")), "Did you mean 'delay'"),
    ("send_to", lambda s: s.send_to("out", key=("carrier", "dest")), "'dest' in the rows that reach 'send_to out'"),
    ("behind a broadcast", lambda s: s.broadcast().partition_by("carier"), "'carier'"),
    ("behind a stage", lambda s: s.partition_by("carrier").filter("delay > 0").partition_by("dest"), "'dest'"),
    (
        "behind a window",
        lambda s: hourly(s.partition_by("carrier")).partition_by("delay"),
        "has: 'carrier', 'drained', 'n', 'w",
    ),
    (
        "one of two branches",
        lambda s: hourly(s, p=("delay", "mean")).merge(hourly(s)).partition_by("p"),
        "has: 'drained', 'n', 'window_end'",
    ),
]


@pytest.mark.parametrize(("build", "sentence"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_a_column_that_no_row_will_have_is_told_with_the_operator_and_what_there_is(
    build: Build, sentence: str
) -> None:
    with pytest.raises(UnknownColumn) as refused:
        check(build)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    "build",
    [
        lambda s: hourly(s.filter("delay > 15").partition_by("carrier"), p=("delay", "mean")).send_to(
            "o", key="carrier"
        ),
        lambda s: s.map(lambda frame: frame).partition_by("made by the map").filter("so_is_this > 1"),
        lambda s: s.merge(s.flat_map(lambda frame: frame)).partition_by("carrier"),
        lambda s: s.filter("`no identifier` > 1"),
        lambda s: s.filter("index > 3 and at > Timestamp('2013-01-01') and sqrt(delay) < inf"),
        lambda s: s.filter(lambda frame: frame["anything"]),
    ],
)
def test_what_is_there_or_can_not_be_known_is_let_pass(build: Build) -> None:
    check(build)


def test_nothing_is_known_of_a_stream_without_rows() -> None:
    check(lambda s: s.partition_by("carier"), None)


def test_types_that_no_window_can_aggregate_and_no_time_can_have_are_told_too() -> None:
    with pytest.raises(WrongType, match="mean needs numbers, but column 'carrier' is of type string"):
        check(lambda s: hourly(s, m=("carrier", "mean")))
    with pytest.raises(InvalidTime, match="Column 'at' is of type string"):
        check(lambda s: s.send_to("out"), FLIGHTS.set(0, pa.field("at", pa.string())))
    with pytest.raises(UnknownColumn, match="no column 'at' in the stream 'flights'"):
        check(lambda s: s.send_to("out"), FLIGHTS.remove(0))
    # A column of nothing but nulls has no type yet.
    check(
        lambda s: hourly(s, m=("delay", "mean"), q=("seats", quantile(0.5))),
        FLIGHTS.set(2, pa.field("delay", pa.null())),
    )


@pytest.mark.parametrize(
    "expression",
    ["dep_delay > 15 and not cancelled", "key.isin(['a', other]) & ~(x.isna())", "abs(x) > 1 or name.str.len() == y"],
)
def test_the_columns_of_an_expression_are_those_without_which_pandas_refuses_it(expression: str) -> None:
    names = columns_in(expression)
    assert names
    values = {"key": ["a"], "name": ["n"], "other": ["b"], "cancelled": [False]}
    frame = pd.DataFrame({name: values.get(name, [1]) for name in names})
    frame.eval(expression, engine="python", local_dict={}, global_dict={})
    for name in names:
        with pytest.raises(pd.errors.UndefinedVariableError, match=name):
            frame.drop(columns=name).eval(expression, engine="python", local_dict={}, global_dict={})


def test_sources_are_checked_against_the_log_and_first_times_in_seconds_are_told(log_dir: Path) -> None:
    log = StreamLog(log_dir)
    flights, empty = log.create("flights", 3), log.create("empty", 1)
    app = Application("app")
    app.input("flights", event_time="at").merge(app.input("empty", event_time="at")).partition_by("carier")
    check_sources(app.nodes, log)
    seconds = pa.table({"at": [1_357_034_400, 1_357_034_460], "carrier": ["UA", "AA"]})
    flights.end(2)
    flights.append(seconds, 1)  # without time_column nobody has asked yet what these numbers are
    with pytest.raises(UnknownColumn, match="Did you mean 'carrier'"):
        check_sources(app.nodes, log)
    right = Application("right")
    right.input("flights", event_time="at").partition_by("carrier")
    with pytest.raises(InvalidTime, match=r"'at' has whole numbers such as 1357034400\..*unit='s'"):
        check_sources(right.nodes, log)
    flights.trim(1, 1)
    check_sources(right.nodes, log)
    assert empty.schema is None


def test_simulated_time_that_began_at_zero_may_get_as_far_as_it_likes(log_dir: Path) -> None:
    stream = (log := StreamLog(log_dir)).create("flights", 1)
    stream.append(pa.table({"at": [0, 3_600_000, 1_357_034_400]}))
    app = Application("app")
    app.input("flights", event_time="at").send_to("out")
    check_sources(app.nodes, log)
