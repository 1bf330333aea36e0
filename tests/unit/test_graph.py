"""What an application says when it is declared wrong, and how it falls into stages."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable

import pytest

from workbench.engine import deploy
from workbench.errors import InvalidAggregate, InvalidDuration, InvalidGraph, InvalidName
from workbench.graph import Application
from workbench.graph.job_plan import plan_job
from workbench.graph.nodes import Broadcast, Input, PartitionBy
from workbench.graph.stages import JobOutline
from workbench.windows import quantile, tumbling


def two_stages() -> Application:
    app = Application("app")
    (
        app.input("source", event_time="t", out_of_orderness="1 min")
        .filter("x > 1")
        .partition_by("k", partitions=4)
        .window(tumbling("1h"))
        .aggregate(n=("x", "count"))
        .send_to("out")
    )
    return app


def test_a_stage_begins_behind_each_intermediate_stream_and_knows_its_upstream_tasks() -> None:
    plan = plan_job("app", two_stages().nodes, {"source": 3})
    assert [stage.name for stage in plan.stages] == ["stage 1: source", "stage 2: app.k"]
    assert plan.tasks == 4
    assert plan.input("source").upstream_tasks == ()
    assert plan.input("app.k").upstream_tasks == ("Partition 0", "Partition 1", "Partition 2")
    assert [read.stream for read in plan.inputs_of(3)] == ["app.k"]
    assert plan.output("out").partitions == 4
    assert JobOutline.from_json(pickle.loads(pickle.dumps(plan.outline.to_json()))) == plan.outline


def test_the_default_partition_count_is_that_of_the_widest_input_and_of_the_log_if_it_is_there() -> None:
    app = Application("app")
    app.merge(app.input("a"), app.input("b")).partition_by("k").send_to("out")
    assert plan_job("app", app.nodes, {"a": 2, "b": 5}).output("app.k").partitions == 5
    assert plan_job("app", app.nodes, {"a": 2, "b": 5, "app.k": 3}).output("app.k").partitions == 3


def test_every_task_reads_a_broadcast_stream() -> None:
    app = Application("app")
    app.input("a").broadcast(name="all").send_to("out")
    app.input("b").send_to("other")
    plan = plan_job("app", app.nodes, {"a": 1, "b": 3})
    assert plan.tasks == 3
    assert [plan.input("all").partition_of(task) for task in range(3)] == [0, 0, 0]
    assert plan.input("all").upstream_tasks == ("Partition 0",)


def test_only_tasks_that_consume_something_of_a_writer_are_its_upstream_tasks() -> None:
    """A task that consumes nothing of a branch never says anything in it: who waits for it waits for ever."""
    app = Application("app")
    narrow, wide = app.input("narrow"), app.input("wide")
    narrow.partition_by("k", partitions=2, name="from narrow").send_to("a")
    wide.partition_by("k", partitions=2, name="from wide").send_to("b")
    narrow.merge(wide).partition_by("k", partitions=2, name="from both").send_to("c")
    plan = plan_job("app", app.nodes, {"narrow": 1, "wide": 3})
    assert plan.input("from narrow").upstream_tasks == ("Partition 0",)
    assert len(plan.input("from wide").upstream_tasks) == 3
    assert len(plan.input("from both").upstream_tasks) == 3


def test_streams_with_different_numbers_of_partitions_can_not_be_grouped_together_by_key() -> None:
    app = Application("app")
    left = app.input("a", event_time="t").partition_by("k", partitions=3, name="left")
    right = app.input("b", event_time="t").partition_by("k", partitions=2, name="right")
    left.merge(right).window(tumbling("1h")).aggregate(n=("x", "count")).send_to("out")
    with pytest.raises(InvalidGraph, match="'left' has 3, 'right' has 2"):
        plan_job("app", app.nodes, {"a": 1, "b": 1})


def test_an_input_can_be_used_twice_but_not_declared_in_two_ways() -> None:
    app = Application("app")
    app.input("a", event_time="t")
    app.input("a", event_time="t")
    assert sum(isinstance(node, Input) for node in app.nodes) == 1
    with pytest.raises(InvalidGraph, match="different options"):
        app.input("a", event_time="other")


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda a: a.input("s").window(tumbling("1h")), "needs event times"),
        (
            lambda a: a.input("s", event_time="t").partition_by("k").window(tumbling("1h"), by="other"),
            "spread over several",
        ),
        (lambda a: a.input("s").map("x + 1"), "takes a function"),
        (lambda a: a.input("s").merge(Application("b").input("s")), "two applications"),
        (lambda a: a.input("s", event_time="t").merge(a.input("u", event_time="v")), "different event-time columns"),
        (lambda a: a.input("s").partition_by("k", partitions=0), "at least 1, not 0"),
        (lambda a: a.input("s").partition_by(), "needs a key column"),
        (lambda a: a.input("s", event_time="t").window(tumbling("1h")).aggregate(), "has no aggregates"),
    ],
)
def test_what_can_not_be_meant_is_refused_where_it_is_written(build, sentence: str) -> None:
    with pytest.raises(InvalidGraph, match=sentence):
        build(Application("app"))


def test_deploy_has_the_keywords_and_defaults_of_the_engines_own() -> None:
    def options(function: Callable[..., object]) -> list[tuple[str, object, str]]:
        parameters = inspect.signature(function).parameters.values()
        return [(p.name, p.default, str(p.annotation)) for p in parameters if p.kind is p.KEYWORD_ONLY]

    assert options(Application.deploy) == options(deploy)
    assert "max_messages" in dict(inspect.signature(Application.deploy).parameters)
    with pytest.raises(TypeError, match="max_mesages"):
        Application("app").deploy(None, None, max_mesages=3)
    said = inspect.getdoc(Application.deploy) or ""
    assert all(f"{name}:" in said for name, _, _ in options(deploy)), "each option is explained"


def test_intermediate_streams_are_named_by_what_is_declared_not_by_how_many_operators_came_before() -> None:
    def streams(build: Callable[[Application], object]) -> list[str]:
        app = Application("app")
        build(app)
        return [node.stream for node in app.nodes if isinstance(node, Broadcast | PartitionBy)]

    names = ["app.carrier", "app.broadcast"]
    assert streams(lambda app: app.input("a").partition_by("carrier").broadcast()) == names
    assert streams(lambda app: app.input("a").filter("x > 1").partition_by("carrier").filter("y").broadcast()) == names

    def twice(app: Application) -> None:
        app.input("a").broadcast().send_to("o")
        app.input("b").broadcast().send_to("p")

    app = Application("app")
    twice(app)
    with pytest.raises(InvalidGraph, match=r"'app\.broadcast' is written by two operators, .*rename one"):
        plan_job("app", app.nodes, {"a": 1, "b": 1})


def test_wrong_durations_aggregates_and_names_are_refused_where_they_are_written() -> None:
    app = Application("app")
    with pytest.raises(InvalidDuration):
        app.input("s", event_time="t", out_of_orderness="soon")
    with pytest.raises(InvalidAggregate, match="median"):
        app.input("s", event_time="t").window(tumbling("1h")).aggregate(m=("x", "median"))
    with pytest.raises(InvalidAggregate):
        quantile(1.5)
    for name in ("", " a", "a\nb", "x" * 201, 7):
        with pytest.raises(InvalidName):
            app.input(name)
    for name in ("", 7, "a\nb"):
        with pytest.raises(InvalidName, match="The name of an application must"):
            Application(name)
    with pytest.raises(InvalidName, match="The name of a stream must"):
        app.input("")


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda a: a.input("s"), "sends nothing anywhere"),
        (lambda a: (a.input("s").send_to("o"), a.input("u").send_to("o")), "written by two operators"),
        (lambda a: a.input("s").send_to("s"), "a loop"),
    ],
)
def test_a_graph_that_can_not_run_is_refused_when_it_is_planned(build, sentence: str) -> None:
    app = Application("app")
    build(app)
    with pytest.raises(InvalidGraph, match=sentence):
        plan_job("app", app.nodes, {"s": 1, "u": 1})


def test_an_application_tells_and_draws_itself_with_names_as_text() -> None:
    app = Application("<script>alert(1)</script>")
    app.input("a&b").partition_by("k", name='"q"').map(len, name="'<i>'").send_to("o")
    assert "stage 2" in repr(app)
    drawn = app._repr_html_()
    assert "<script>" not in drawn
    assert "&lt;script&gt;" in drawn
