"""The lesson on startpoints, run as a user runs it: whichever airport and morning are chosen, its own checks hold."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest

from tests.notebooks.test_quickstart import NOTEBOOKS, kernels_and_jvms
from workbench.notebooks import execute, to_html


@pytest.mark.parametrize(
    ("months", "airport", "morning", "partitions"),
    [("7-7", "JFK", "2013-07-04T10:00", 3), ("6-7", "LGA", "2013-07-20T11:00", 5)],
)
def test_only_the_previewed_messages_come_again_and_the_result_is_true(
    tmp_path: Path, months: str, airport: str, morning: str, partitions: int
) -> None:
    before = kernels_and_jvms()
    executed, result = tmp_path / "07_startpoints.ipynb", tmp_path / "result.json"
    execute(
        NOTEBOOKS / "07_startpoints.ipynb",
        executed,
        {
            "log_dir": str(tmp_path / "a log"),
            "months": months,
            "airport": airport,
            "morning": morning,
            "partitions": partitions,
            "max_messages": 20_000,
            "result_file": str(result),
        },
        cell_seconds=300,
    )
    summary = json.loads(result.read_text())
    assert summary["status"] == "finished"
    assert 0 < summary["replayed_messages"] < summary["input_messages"]
    assert 0 < summary["wrong_rows"] < summary["result_rows"]
    assert set(summary) == {
        "status", "replayed_messages", "input_messages", "wrong_rows", "result_rows", "seconds",
    }  # fmt: skip
    assert kernels_and_jvms() <= before, "a notebook ends what it started"
    text = _text(executed)
    assert "startpoint(s)" not in text and f"Replayed: {summary['replayed_messages']:,} messages." in text
    assert 'on_rewind="keep"' in text, "the refusal says what to choose from"
    page = tmp_path / "page.html"
    to_html(executed, page)
    html = page.read_text()
    assert html.count("Plotly.newPlot") >= 2
    assert 'src="http' not in html and "src='http" not in html, "the page loads nothing from anywhere"


def _text(executed: Path) -> str:
    """All that the cells printed."""
    outputs = [out for cell in nbformat.read(executed, as_version=4).cells for out in cell.get("outputs", [])]
    return "".join(out.get("text", "") for out in outputs)
