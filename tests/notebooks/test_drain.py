"""The lesson on draining runs as a user runs it: fed live, refused, drained, upgraded."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat

from tests.notebooks.test_quickstart import NOTEBOOKS, kernels_and_jvms
from workbench.notebooks import execute, to_html


def test_a_live_job_is_drained_and_its_upgrade_leaves_no_flight_out_and_counts_none_twice(tmp_path: Path) -> None:
    before = kernels_and_jvms()
    executed, result = tmp_path / "05_drain.ipynb", tmp_path / "result.json"
    execute(
        NOTEBOOKS / "05_drain.ipynb",
        executed,
        {
            "log_dir": str(tmp_path / "log"),
            "months": "1-1",
            "feed_seconds": 12.0,
            "partitions": 3,
            "max_messages": 1_000,
            "result_file": str(result),
        },
        cell_seconds=200,
    )
    summary = json.loads(result.read_text())
    assert set(summary) == {
        "status", "flights", "admitted_by_old", "in_results_of_old", "in_results_of_new", "cancelled", "panes_drained",
        "drain_seconds", "carrier_hours", "divided_carrier_hours", "seconds",
    }  # fmt: skip
    assert summary["status"] == "finished"
    assert summary["flights"] == 27_004, "January"
    assert summary["in_results_of_old"] + summary["in_results_of_new"] + summary["cancelled"] == 27_004
    assert 0 < summary["in_results_of_old"] <= summary["admitted_by_old"] < 27_004
    assert summary["panes_drained"] > 0 and summary["divided_carrier_hours"] > 0
    assert kernels_and_jvms() <= before, "a notebook ends what it started"
    said = "\n".join(
        output.text
        for cell in nbformat.read(executed, as_version=4).cells
        for output in cell.get("outputs", [])
        if output.output_type == "stream"
    )
    assert "has changed in what its checkpoint keeps" in said and "Drain it with the version" in said
    page = tmp_path / "page.html"
    to_html(executed, page)
    html = page.read_text()
    assert html.count("Plotly.newPlot") >= 1 and "How far has the drain come?" in html
    assert 'src="http' not in html and "src='http" not in html, "the page loads nothing from anywhere"
