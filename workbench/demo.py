"""`make demo`: the quickstart notebook through papermill, on the real flights, with its result as one line of JSON."""

from __future__ import annotations

import json
import logging
import sys
import threading
from pathlib import Path

from workbench.errors import UnknownApplication
from workbench.systems.log import StreamLog

_NOTEBOOK = Path(__file__).resolve().parent.parent / "notebooks" / "00_quickstart.ipynb"
_APPLICATION = "hourly-delays"
_CELL_SECONDS = 900
_REPORT_SECONDS = 2.0


def run_demo(directory: Path) -> int:
    """Execute the quickstart. Leaves the executed notebook, an HTML copy and the log under `directory`; the exit code.

    A failed notebook is left where a finished one would be, with the error in it.
    """
    import nbformat
    import papermill
    from nbconvert import HTMLExporter

    directory = directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    executed, page, result = directory / _NOTEBOOK.name, directory / "00_quickstart.html", directory / "result.json"
    result.unlink(missing_ok=True)
    log_directory = directory / "log"
    logging.getLogger("papermill").setLevel(logging.ERROR)
    print(f"Running {_NOTEBOOK.name} in {directory}", file=sys.stderr)
    finished = threading.Event()
    reporter = threading.Thread(target=_report, args=(log_directory, finished), daemon=True)
    reporter.start()
    failure: papermill.PapermillExecutionError | None = None
    try:
        papermill.execute_notebook(
            _NOTEBOOK,
            executed,
            {"log_dir": str(log_directory), "result_file": str(result)},
            cwd=str(directory),
            start_timeout=120,
            execution_timeout=_CELL_SECONDS,
            progress_bar=sys.stderr.isatty(),
        )
    except papermill.PapermillExecutionError as error:
        failure = error
    finally:
        finished.set()
        reporter.join()
    html, _ = HTMLExporter(template_name="lab").from_notebook_node(  # type: ignore[no-untyped-call]
        nbformat.read(executed, as_version=4)  # type: ignore[no-untyped-call]
    )
    page.write_text(html)
    print(f"Executed notebook: {executed}\nHTML copy:         {page}", file=sys.stderr)
    if failure is not None:
        print(f"The notebook failed: {failure.ename}: {failure.evalue}", file=sys.stderr)
        print(json.dumps({"status": "failed", "error": failure.ename}))
        return 1
    print(json.dumps(json.loads(result.read_text())))
    return 0


def _report(log_directory: Path, finished: threading.Event) -> None:
    """Say on stderr how far the notebook's run is, from the log's record, whenever it has moved."""
    from workbench.engine.record import open_record

    said = ""
    while not finished.wait(_REPORT_SECONDS):
        if not (log_directory / StreamLog.MARKER).exists():
            continue
        try:
            totals = open_record(StreamLog(log_directory, create=False), _APPLICATION).totals()
        except UnknownApplication:
            continue
        line = f"  batch {totals['batches']}: {totals['input_messages']:,} messages read"
        if line != said:
            print(line, file=sys.stderr, flush=True)
            said = line
