"""The lesson on choosers runs as a user runs it: live flights beside a backfill, and a chooser of one's own."""

from __future__ import annotations

import json
from pathlib import Path

from tests.notebooks.test_quickstart import NOTEBOOKS, kernels_and_jvms
from workbench.notebooks import execute, to_html


def test_live_flights_do_not_wait_for_the_backfill_and_a_rule_of_ones_own_is_kept(tmp_path: Path) -> None:
    before = kernels_and_jvms()
    executed, result = tmp_path / "08_choosers.ipynb", tmp_path / "result.json"
    execute(
        NOTEBOOKS / "08_choosers.ipynb",
        executed,
        {
            "log_dir": str(tmp_path / "a log"),
            "backfill_months": "10-11",
            "live_limit": 12_000,
            "max_messages": 3_000,
            "aligned_days": 7,
            "delayed_limit": 300,
            "result_file": str(result),
        },
        cell_seconds=300,
    )
    summary = json.loads(result.read_text())
    assert summary["status"] == "finished"
    assert summary["live_wait_s"] < summary["live_wait_without_priorities_s"]
    assert summary["backfill_in_the_gaps"] > 0
    assert summary["unnamed_with_bootstrap"] == 0 < summary["unnamed_without_bootstrap"]
    assert summary["join_buffer"]["time_aligned"] == min(summary["join_buffer"].values())
    assert summary["own_chooser_messages"] == 900
    assert set(summary) == {
        "status", "live_wait_s", "live_wait_without_priorities_s", "backfill_in_the_gaps", "result_rows",
        "unnamed_without_bootstrap", "unnamed_with_bootstrap", "join_buffer",
        "own_chooser_messages", "seconds",
    }  # fmt: skip
    assert kernels_and_jvms() <= before, "a notebook ends what it started"
    page = tmp_path / "page.html"
    to_html(executed, page)
    html = page.read_text()
    assert html.count("Plotly.newPlot") >= 5
    assert 'src="http' not in html and "src='http" not in html, "the page loads nothing from anywhere"
