"""What operators take from a user's functions and expressions, and what they say otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.support.local import LocalJob
from workbench.engine.failures import TaskFailed
from workbench.graph import Application, MessageStream
from workbench.systems.log import StreamLog

ROWS = pa.table(
    {"x": [1, 2, None, 4], "name": ["a", "b", None, "d"], "when": pa.array([1, 2, 3, 4], pa.timestamp("ms"))}
)


def outcome(directory: Path, build: Callable[[MessageStream], MessageStream]) -> pd.DataFrame:
    """What a single-stage application makes of `ROWS`."""
    log = StreamLog(directory / "log")
    source = log.create("in", 1)
    source.append(ROWS)
    source.end()
    app = Application("app")
    build(app.input("in")).send_to("out")
    LocalJob(app, log).run_to_end()
    return log.stream("out").to_pandas()


def test_what_one_branch_assigns_is_not_seen_by_the_other(tmp_path: Path) -> None:
    def spoil(frame: pd.DataFrame) -> pd.DataFrame:
        frame["x"] = 0
        frame.loc[0, "name"] = "spoilt"
        return frame[["x", "name"]]

    seen = outcome(tmp_path, lambda s: s.map(spoil).merge(s.map(lambda frame: frame[["x", "name"]])))
    assert seen["x"].tolist()[:4] == [0, 0, 0, 0]
    assert seen["name"].tolist()[4:6] == ["a", "b"]
    assert seen["x"].dropna().tolist()[4:] == [1, 2, 4]


@pytest.mark.parametrize(
    ("predicate", "kept"),
    [
        ("x > 1", [2, 4]),
        ("x > 1 and name != 'd'", [2]),
        ("name.isna()", [None]),
        (lambda frame: frame["x"] >= 2, [2, 4]),
        (lambda frame: np.array([True, False, True, False]), [1, None]),
        (lambda frame: [False, True, None, False], [2]),
        (lambda frame: (frame["x"] > 1).iloc[::-1], [2, 4]),
        (lambda frame: np.bool_(True), [1, 2, None, 4]),
    ],
)
def test_a_filter_keeps_what_is_true_and_null_is_not(tmp_path: Path, predicate: object, kept: list[int | None]) -> None:
    seen = outcome(tmp_path, lambda s: s.filter(predicate))
    assert [None if pd.isna(x) else x for x in seen["x"]] == kept


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda s: s.filter("x + 1"), "must give one boolean for each of 4 rows"),
        (lambda s: s.filter(lambda frame: [True]), "for each of 4 rows, not 1"),
        (lambda s: s.filter(lambda frame: frame), "one boolean for each of 4 rows, not DataFrame"),
        (lambda s: s.flat_map(lambda frame: frame["x"]), "must return a pandas DataFrame, not Series"),
        (lambda s: s.map(lambda frame: frame.assign(o=[object()] * 4)), "no Arrow type"),
        (
            lambda s: s.map(lambda frame: pd.concat([frame, frame], axis=1)),
            "several columns of the same name: name, when, x",
        ),
        (lambda s: s.map(lambda frame: frame.rename(columns={"x": 3})), "names are not text: 3"),
        (lambda s: s.map(lambda f: f).filter("y > 1"), "There is no column 'y' in the rows that reach"),
        (lambda s: s.filter("name.str.len() > when.dt.no_such_thing"), "no_such_thing"),
        (lambda s: s.filter(lambda frame: None), "one boolean for each of 4 rows, not NoneType"),
        (lambda s: s.map(lambda frame: frame.head(3)), "returned 3 rows for 4"),
    ],
)
def test_what_can_not_be_used_is_refused_in_a_sentence_that_names_the_operator(
    tmp_path: Path, build: Callable[[MessageStream], MessageStream], sentence: str
) -> None:
    with pytest.raises(TaskFailed) as failed:
        outcome(tmp_path, build)
    failure = failed.value.failure
    assert sentence in str(failure)
    assert failure.operator.split()[0] in ("filter", "map", "flat_map")
    assert failure.stage == "stage 1: in"
    assert len(str(failure).splitlines()) < 25


def test_an_index_that_a_function_leaves_is_not_a_column(tmp_path: Path) -> None:
    seen = outcome(tmp_path, lambda s: s.flat_map(lambda frame: frame.dropna().set_index("name", drop=False).tail(2)))
    assert list(seen.columns) == ["x", "name", "when"]
    assert seen["name"].tolist() == ["b", "d"]


def test_categories_become_their_values_and_the_next_function_sees_arrow_types(tmp_path: Path) -> None:
    types: list[str] = []

    def look(frame: pd.DataFrame) -> pd.DataFrame:
        types.extend(map(str, frame.dtypes))
        return frame

    seen = outcome(
        tmp_path,
        lambda s: s.map(
            lambda f: pd.DataFrame({"c": f["name"].astype("object").astype("category"), "n": np.arange(len(f))})
        ).map(look),
    )
    assert types == ["string[pyarrow]", "int64[pyarrow]"]
    assert seen["c"].dropna().tolist() == ["a", "b", "d"]


def test_a_sink_that_fails_is_not_called_again_to_find_the_row(tmp_path: Path) -> None:
    log = StreamLog(tmp_path / "log")
    log.create("in", 1).append(ROWS)
    calls: list[int] = []

    def deliver(frame: pd.DataFrame) -> None:
        calls.append(len(frame))
        raise ConnectionError("nobody there")

    app = Application("app")
    app.input("in").sink(deliver)
    with pytest.raises(TaskFailed, match="nobody there"):
        LocalJob(app, log).step()
    assert calls == [4]
