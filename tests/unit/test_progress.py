"""Where progress is shown, and what is shown there."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from workbench.errors import UnknownEnvironment
from workbench.progress import (
    Environment,
    Probes,
    ProgressSnapshot,
    QuietProgress,
    RecentRate,
    TerminalProgress,
    clock,
    describe,
    detect,
    progress_for,
    share,
)

ROOT = Path(__file__).parents[2]
HALFWAY = ProgressSnapshot(
    messages=1_500,
    total=3_000,
    batches=12,
    lowest_watermark="2013-01-01 05:00",
    late=0,
    elapsed_s=65.0,
    status="running",
)


def probes(
    terminal: bool = False, kernel: bool = False, widgets: bool = True, environ: Mapping[str, str] | None = None
) -> Probes:
    return Probes(stderr_is_terminal=terminal, kernel=kernel, widgets=widgets, environ=environ or {})


@pytest.mark.parametrize(
    ("situation", "facts", "expected"),
    [
        ("a script in a terminal", probes(terminal=True), Environment.TERMINAL),
        ("a script with stderr in a file", probes(), Environment.QUIET),
        ("CI with a terminal", probes(terminal=True, environ={"CI": "true"}), Environment.QUIET),
        ("CI switched off by its value", probes(terminal=True, environ={"CI": "false"}), Environment.TERMINAL),
        ("JupyterLab", probes(kernel=True, environ={"JPY_SESSION_NAME": "/a.ipynb"}), Environment.NOTEBOOK),
        ("VS Code", probes(kernel=True, environ={"VSCODE_PID": "7"}), Environment.NOTEBOOK),
        ("Colab", probes(kernel=True, environ={"COLAB_RELEASE_TAG": "r"}), Environment.NOTEBOOK),
        ("papermill in a terminal", probes(kernel=True, terminal=True), Environment.QUIET),
        (
            "papermill from a notebook, marked",
            probes(kernel=True, environ={"JPY_SESSION_NAME": "/a.ipynb", "PAPERMILL": "1"}),
            Environment.QUIET,
        ),
        (
            "JupyterLab, kernel without ipywidgets",
            probes(kernel=True, widgets=False, environ={"JPY_SESSION_NAME": "/a.ipynb"}),
            Environment.QUIET,
        ),
        ("an override in CI", probes(environ={"CI": "1", "TIDEMARK_PROGRESS": "Terminal"}), Environment.TERMINAL),
        ("an override to nothing", probes(terminal=True, environ={"TIDEMARK_PROGRESS": "quiet"}), Environment.QUIET),
    ],
)
def test_where_progress_is_shown_follows_from_the_situation(
    situation: str, facts: Probes, expected: Environment
) -> None:
    assert detect(facts) is expected, situation


def test_an_environment_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(UnknownEnvironment, match=r"'terminl'.*'notebook', 'quiet', 'terminal'.*mean 'terminal'"):
        detect(probes(environ={"TIDEMARK_PROGRESS": "terminl"}))
    with pytest.raises(UnknownEnvironment, match="can not be shown in 'browser'"):
        progress_for("browser")


def test_a_process_with_its_stderr_in_a_pipe_is_quiet_and_prints_nothing() -> None:
    code = (
        "from workbench.progress import *\n"
        "display = progress_for()\n"
        "display.update(ProgressSnapshot(1, 2, 1, 'not yet known', 0, 1.0, 'running'))\n"
        "display.close('finished')\n"
        "import sys\n"
        "assert not {'tqdm', 'ipywidgets', 'IPython', 'plotly', 'pyspark'} & set(sys.modules)\n"
        "print(type(display).__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": ""},
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("QuietProgress\n", "", 0)


def test_a_notebook_run_by_nbclient_is_quiet_and_one_of_a_jupyter_server_gets_the_panel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nbformat
    from nbclient import NotebookClient

    for name in ("CI", "JPY_SESSION_NAME", "TIDEMARK_PROGRESS", "VSCODE_PID", "PAPERMILL", "NBCLIENT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    cell = (
        "import os, threading\n"
        "from workbench.progress import *\n"
        "snapshot = ProgressSnapshot(1, 2, 1, 'not yet known', 0, 1.0, 'running')\n"
        "quiet = progress_for()\n"
        "quiet.update(snapshot); quiet.close('finished')\n"
        "assert type(quiet).__name__ == 'QuietProgress'\n"
    )
    # What a Jupyter server adds to the environment of the kernels it starts.
    second = (
        "os.environ['JPY_SESSION_NAME'] = '/lesson.ipynb'\n"
        "panel = progress_for()\n"
        "thread = threading.Thread(target=panel.update, args=(snapshot,)); thread.start(); thread.join()\n"
        "panel.close('finished')\n"
        "assert panel.panel.fraction == 1.0, panel.panel.last_error\n"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in (cell, second)])
    NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(tmp_path)}}).execute()

    assert notebook.cells[0].outputs == []
    [shown] = notebook.cells[1].outputs
    assert "application/vnd.jupyter.widget-view+json" in shown.data
    state = json.dumps(notebook.metadata.widgets)
    assert "1 of 2 messages, watermark not yet known, batch 1" in state


def test_the_words_put_first_what_a_narrow_terminal_must_not_cut() -> None:
    assert describe(HALFWAY, 250.4) == "1,500 of 3,000 messages, watermark 2013-01-01 05:00, batch 12, 250/s, 1:05"
    assert "3 late" in describe(replace(HALFWAY, late=3), 0.0)
    assert describe(replace(HALFWAY, total=None), 0.0).startswith("1,500 messages, ")


@pytest.mark.parametrize(("seconds", "shown"), [(0, "0:00"), (42.9, "0:42"), (725, "12:05"), (10_807, "3:00:07")])
def test_elapsed_time_reads_as_a_clock(seconds: float, shown: str) -> None:
    assert clock(seconds) == shown


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, 0.5),
        ({"total": None}, None),
        ({"total": 0}, 0.0),
        ({"total": 0, "status": "finished"}, 1.0),
        ({"messages": 5_000}, 1.0),
        ({"status": "finished"}, 1.0),
    ],
)
def test_the_share_done_is_known_only_with_a_total_and_never_beyond_all(
    change: dict[str, object], expected: float | None
) -> None:
    assert share(replace(HALFWAY, **change)) == expected  # type: ignore[arg-type]


def test_the_rate_is_that_of_the_last_seconds_not_of_the_whole_run() -> None:
    rate = RecentRate(window_s=10)
    assert rate.add(replace(HALFWAY, messages=100, elapsed_s=2.0)) == 50
    for second in range(3, 60):
        latest = rate.add(replace(HALFWAY, messages=100, elapsed_s=float(second)))
    assert latest == 0
    assert rate.add(replace(HALFWAY, messages=1_100, elapsed_s=60.0)) == pytest.approx(100)
    assert rate.add(replace(HALFWAY, messages=0, elapsed_s=0.0)) == 0


class Terminal(io.StringIO):
    """A terminal's screen as far as tqdm writes on it: what stands in the last line."""

    def isatty(self) -> bool:
        return True

    @property
    def line(self) -> str:
        return self.getvalue().split("\r")[-1].strip("\n").rstrip()


def test_a_terminal_shows_one_line_that_fits_it_and_ends_with_the_final_status() -> None:
    screen = Terminal()
    display = TerminalProgress(screen, columns=lambda: 100)
    display.update(HALFWAY)
    display.update(replace(HALFWAY, messages=2_900))
    display.close("finished")
    display.close("finished")
    display.update(HALFWAY)
    assert screen.line.startswith("finished 100% |")
    assert screen.line.endswith("| 2,900/3,000, watermark 2013-01-01 05:00, batch 12, 45/s, 1:05")
    assert screen.getvalue().count("\n") == 1
    assert max(len(line.strip("\n")) for line in screen.getvalue().split("\r")) <= 100
    assert display.error is None


def test_a_failed_run_keeps_the_bar_where_it_was() -> None:
    screen = Terminal()
    display = TerminalProgress(screen, columns=lambda: 100)
    display.update(HALFWAY)
    display.close("failed")
    assert screen.line.startswith("failed  50% |")


def test_updates_many_times_a_second_are_not_drawn_each_time() -> None:
    screen = Terminal()
    display = TerminalProgress(screen, columns=lambda: 100)
    for messages in range(1_000):
        display.update(replace(HALFWAY, messages=messages))
    display.close("stopped")
    assert screen.getvalue().count("\r") < 50
    assert "| 999/3,000, " in screen.line


def test_a_terminal_that_goes_away_does_not_end_the_run() -> None:
    class Gone(Terminal):
        def write(self, text: str) -> int:
            raise BrokenPipeError("nobody reads")

    display = TerminalProgress(Gone(), columns=lambda: 100)
    display.update(HALFWAY)
    display.update(HALFWAY)
    display.close("finished")
    assert isinstance(display.error, BrokenPipeError)


def test_closing_before_the_first_update_shows_nothing() -> None:
    screen = Terminal()
    TerminalProgress(screen).close("failed")
    assert screen.getvalue() == ""
    assert isinstance(progress_for("quiet"), QuietProgress)


def test_the_panel_is_shown_once_and_follows_from_any_thread_without_printing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    from widgets.progress import NotebookProgress, ProgressPanel

    shown: list[ProgressPanel] = []
    seconds = iter(range(100))
    display = NotebookProgress(shown.append, now=lambda: float(next(seconds)))
    panel = display.panel
    assert (shown, panel.status, panel.bar.layout.display) == ([panel], "starting", "none")

    thread = threading.Thread(target=display.update, args=(HALFWAY,))
    thread.start()
    thread.join()
    assert (panel.fraction, panel.bar.value, panel.bar.layout.display) == (0.5, 0.5, None)
    assert panel.words.startswith("1,500 of 3,000 messages")

    display.close("finished")
    display.update(replace(HALFWAY, messages=1))
    assert (panel.fraction, panel.status, panel.bar.bar_style) == (1.0, "finished", "success")
    assert capfd.readouterr() == ("", "")


def test_the_panel_redraws_at_most_four_times_a_second_and_loses_no_last_word() -> None:
    from widgets.progress import NotebookProgress

    now = [0.0]
    display = NotebookProgress(lambda panel: None, now=lambda: now[0])
    drawn: list[str] = []
    display.panel.observe(lambda change: drawn.append(change["new"]), "words")
    for step in range(100):
        now[0] = step / 100
        display.update(replace(HALFWAY, messages=step))
    assert len(drawn) == 4
    display.close("failed")
    assert display.panel.words.startswith("99 of 3,000")
    assert display.panel.bar.bar_style == "danger"


def test_a_source_without_an_end_has_words_but_no_bar() -> None:
    from widgets.progress import NotebookProgress

    display = NotebookProgress(lambda panel: None)
    display.update(replace(HALFWAY, total=None, lowest_watermark="<i>not yet known</i>"))
    assert display.panel.bar.layout.display == "none"
    assert "&lt;i&gt;not yet known" in display.panel.text.value


def test_a_page_that_fails_is_shown_in_the_panel_and_does_not_end_the_run() -> None:
    from widgets.progress import NotebookProgress

    display = NotebookProgress(lambda panel: None)

    def fail(change: object) -> None:
        raise RuntimeError("the comm is closed")

    display.panel.observe(fail, "words")
    display.update(HALFWAY)
    display.close("finished")
    assert display.panel.last_error == "RuntimeError: the comm is closed"
