"""The three-stage job that the tests of drains kill, the version that can only follow a drain, and the truth for both."""

from __future__ import annotations

import pandas as pd

from workbench.drain import read_notifications
from workbench.engine.batch_plan import BatchPlan, read_plan
from workbench.engine.run import Run
from workbench.graph import Application
from workbench.systems.log import StreamLog
from workbench.windows import tumbling

NAME = "orders"
BETWEEN = ["by id", "by key"]


def three_stages() -> Application:
    """events → partition by id (2) → partition by key (3) → hourly windows → panes."""
    app = Application(NAME)
    stream = app.input("events", event_time="at").partition_by("id", partitions=2, name=BETWEEN[0])
    stream = stream.partition_by("key", partitions=3, name=BETWEEN[1])
    stream.window(tumbling("1h")).aggregate(n=("id", "count"), ids=("id", "sum")).send_to("panes")
    return app


def upgraded() -> Application:
    """The same application with a stage less, more partitions, and keys that are numbers: nothing between fits."""
    app = Application(NAME)
    stream = app.input("events", event_time="at").map(
        lambda rows: rows.assign(key=rows["key"].str.removeprefix("key-").astype("int64")), name="keys are numbers"
    )
    stream = stream.partition_by("key", partitions=5, name=BETWEEN[1])
    stream.window(tumbling("1h")).aggregate(n=("id", "count"), ids=("id", "sum")).send_to("new panes")
    return app


def newest_plan(log: StreamLog) -> BatchPlan:
    """The newest plan of the log's one job."""
    plan = read_plan(log.directory / "checkpoints" / "1")
    assert plan is not None
    return plan


def assert_drained(log: StreamLog, run: Run, since: list[int] | None = None) -> list[int]:
    """The run has drained, and of what was admitted since the offsets `since` (one for each partition; by default the
    beginning) every message passed each stage once. Returns the offsets up to which messages were admitted."""
    assert run.status == "drained"
    assert read_notifications(log.metadata).valid == [], "what was carried out is not asked for again"
    plan = newest_plan(log)
    drains = run.drains()
    assert not drains["pending"].any() and drains["open_rows"].sum() == 0
    events = log.stream("events").to_pandas(position=True)
    admitted = plan.positions["events"]
    first, last = (events["_partition"].map(dict(enumerate(of))) for of in (since or [0] * len(admitted), admitted))
    expected = sorted(events.loc[(events["_offset"] >= first) & (events["_offset"] < last), "id"])
    for name in BETWEEN:
        stream = log.stream(name)
        assert plan.positions[name] == stream.heads(), "nothing is left between the stages"
        assert sorted(stream.to_pandas()["id"]) == expected, f"each message is in {name!r} once"
    _assert_same(counted(events[events["_offset"] < last]), panes(log, "panes"))
    return admitted


def assert_upgrade_goes_on(log: StreamLog, run: Run) -> None:
    """`upgraded` has finished, and with what came before the drain every message of `events` is in one pane."""
    assert run.status == "finished"
    both = pd.concat([panes(log, "panes"), panes(log, "new panes")])
    _assert_same(counted(log.stream("events").to_pandas()), both.groupby(level=[0, 1]).sum())
    assert len(panes(log, "new panes")), "without a backlog the upgrade would prove less"
    assert log.stream(BETWEEN[1]).partitions == 5


def assert_no_files_are_left(log: StreamLog) -> None:
    """Segments that nobody refers to go when they are swept, and all that streams refer to are there."""
    log.sweep(0)
    held = {path.relative_to(log.segments_directory).as_posix() for path in log.segments_directory.glob("*/*.arrow")}
    refs = [ref for name in log.streams() for p in range(log.stream(name).partitions) for ref in log.resolve(name, p)]
    assert held == {ref["f"] for ref in refs if "f" in ref}


def counted(rows: pd.DataFrame) -> pd.DataFrame:
    """How many rows, and the sum of their ids, for each key (as a number) and hour."""
    keys = rows["key"].str.removeprefix("key-").astype("int64")
    hours = pd.to_datetime(rows["at"], utc=True).dt.floor("h").astype("datetime64[ms, UTC]")
    return rows.groupby([keys.rename("key"), hours.rename("hour")]).agg(n=("id", "count"), ids=("id", "sum"))


def panes(log: StreamLog, stream: str) -> pd.DataFrame:
    """What `counted` says, from the panes in a stream: a window that a drain cut in two has two of them."""
    found = log.stream(stream).to_pandas()
    if found.empty:
        return pd.DataFrame({"n": pd.Series(dtype="int64"), "ids": pd.Series(dtype="int64")})
    keys = found["key"].astype(str).str.removeprefix("key-").astype("int64")
    hours = pd.to_datetime(found["window_start"], utc=True).astype("datetime64[ms, UTC]")
    return found.groupby([keys.rename("key"), hours.rename("hour")])[["n", "ids"]].sum()


def _assert_same(expected: pd.DataFrame, found: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(found.sort_index(), expected.sort_index(), check_dtype=False)
