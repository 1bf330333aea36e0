"""A notebook starts from a log of its own, and removes nothing that it did not make."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from workbench.errors import ForeignDirectory
from workbench.notebooks import fresh_log
from workbench.systems.log import StreamLog


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("there", [False, True], ids=["not there", "there and empty"])
def test_a_second_run_of_a_notebook_starts_from_a_log_without_the_streams_of_the_first(
    tmp_path: Path, there: bool
) -> None:
    directory = tmp_path / "of the notebook" / "log"
    if there:
        directory.mkdir(parents=True)
    fresh_log(directory, "mine").create("s", 1).append(pa.table({"x": [1]}))
    assert StreamLog(directory, create=False).streams() == ["s"]
    assert fresh_log(str(directory), "mine").streams() == []
    assert list(directory.rglob("*.arrow")) == []


def test_a_log_a_file_and_a_directory_that_the_notebook_did_not_make_are_left_as_they_are(tmp_path: Path) -> None:
    theirs, other, data, file = (tmp_path / name for name in ("theirs", "other", "data", "file"))
    StreamLog(theirs).create("s", 1).append(pa.table({"x": [1]}))
    fresh_log(other, "another notebook").create("s", 1)
    data.mkdir()
    (data / "thesis.txt").write_text("years of work")
    file.write_text("a file")
    (tmp_path / "mine").mkdir()
    fresh_log(tmp_path / "mine" / "log", "mine").create("s", 1)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "mine" / "log")
    before = contents(tmp_path)
    for directory in (theirs, other, data, file, link):
        with pytest.raises(
            ForeignDirectory, match=f"something at {directory} already that the notebook mine did not make"
        ):
            fresh_log(directory, "mine")
    assert contents(tmp_path) == before


def test_the_current_directory_is_not_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ForeignDirectory):
        fresh_log("", "mine")
    assert (tmp_path / "notes.txt").read_text() == "mine"
