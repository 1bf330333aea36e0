"""The notebooks run as a user runs them: through papermill, with parameters, from a directory of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import psutil
import pytest
from papermill import PapermillExecutionError

from workbench.notebooks import execute, fresh_log, to_html

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


def kernels_and_jvms() -> set[int]:
    """Processes below this one that a notebook may have left."""
    return {child.pid for child in psutil.Process().children(recursive=True) if child.name() in ("java", "python")}


@pytest.mark.parametrize(("months", "partitions", "bound"), [("1-1", 4, "30 min"), ("6-7", 2, "12h")])
def test_the_quickstart_equals_sparks_own_batch_query(tmp_path: Path, months: str, partitions: int, bound: str) -> None:
    before = kernels_and_jvms()
    executed, result = tmp_path / "00_quickstart.ipynb", tmp_path / "result.json"
    execute(
        NOTEBOOKS / "00_quickstart.ipynb",
        executed,
        {
            "log_dir": str(tmp_path / "log"),
            "months": months,
            "partitions": partitions,
            "out_of_orderness": bound,
            "max_messages": 5_000,
            "result_file": str(result),
        },
        cell_seconds=300,
    )
    summary = json.loads(result.read_text())
    assert summary["status"] == "finished"
    assert summary["tasks"] == max(3, partitions)
    assert (summary["late_messages"] > 0) == (bound == "30 min"), "the longest lag is 640 minutes"
    assert set(summary) == {
        "status", "tasks", "input_messages", "late_messages", "control_messages", "batches", "result_rows", "seconds",
    }  # fmt: skip
    assert kernels_and_jvms() <= before, "a notebook ends what it started"
    page = tmp_path / "page.html"
    to_html(executed, page)
    html = page.read_text()
    assert html.count("Plotly.newPlot") >= 4
    assert 'src="http' not in html and "src='http" not in html, "the page loads nothing from anywhere"


def test_a_failed_notebook_is_left_readable_with_its_error(tmp_path: Path) -> None:
    executed = tmp_path / "00_quickstart.ipynb"
    with pytest.raises(PapermillExecutionError):
        execute(
            NOTEBOOKS / "00_quickstart.ipynb",
            executed,
            {"log_dir": str(tmp_path / "log"), "months": "1-1", "partitions": 0},
            cell_seconds=300,
        )
    # What a failed run left is this notebook's own: the next one may begin anew.
    assert fresh_log(tmp_path / "log", "00_quickstart").streams() == []
    outputs = [out for cell in nbformat.read(executed, as_version=4).cells for out in cell.get("outputs", [])]
    errors = [out for out in outputs if out.output_type == "error"]
    assert errors and errors[0].ename == "InvalidGraph"
    assert "at least 1, not 0" in errors[0].evalue


def test_the_quickstart_leaves_a_log_that_it_did_not_make_as_it_is(tmp_path: Path) -> None:
    from workbench.systems.log import StreamLog

    StreamLog(tmp_path / "log").create("precious", 1)
    with pytest.raises(
        PapermillExecutionError, match="that the notebook 00_quickstart did not make, so it is left as it"
    ):
        execute(
            NOTEBOOKS / "00_quickstart.ipynb",
            tmp_path / "00_quickstart.ipynb",
            {"log_dir": str(tmp_path / "log"), "months": "1-1"},
            cell_seconds=300,
        )
    assert StreamLog(tmp_path / "log", create=False).streams() == ["precious"]


def test_the_command_line_tells_how_far_an_application_is(tmp_path: Path) -> None:
    def workbench(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "workbench", *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "COLUMNS": "120"},
            cwd=NOTEBOOKS.parent,
            check=False,
        )

    missing = workbench("status", str(tmp_path / "nothing"), "hourly")
    assert missing.returncode == 1
    assert len(missing.stderr.splitlines()) <= 2 and "Traceback" not in missing.stderr
    assert not (tmp_path / "nothing").exists(), "asking about a log does not make one"

    from tests.support.jobs import events, hourly, write_events
    from tests.support.local import LocalJob
    from workbench.systems.log import StreamLog

    log = StreamLog(tmp_path / "log")
    write_events(log, events(300, partitions=2, disorder_ms=0))
    job = LocalJob(hourly(3), log, max_messages=100)
    job.step()
    job.step()
    shown = workbench("status", str(tmp_path / "log"), "hourly")
    assert shown.returncode == 0, shown.stderr
    assert "Partition 2" in shown.stdout and "active" in shown.stdout and "1970" not in shown.stdout
    assert "batches: 2" in shown.stdout
    assert "running" in shown.stdout
    job.recorder.end_run(job.deployment.run_id, 0, "failed", {"message": "no value for 37"})
    assert "failed\n  no value for 37" in workbench("status", str(tmp_path / "log"), "hourly").stdout
    other = workbench("status", str(tmp_path / "log"), "horly")
    assert other.returncode == 1 and "no run of an application 'horly'" in other.stderr
    shutil.rmtree(tmp_path / "log")
