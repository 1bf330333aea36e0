"""`make demo`: the quickstart notebook through papermill, on the real flights, with its result as one line of JSON."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from workbench.errors import LogUnavailable, UnknownApplication
from workbench.systems.log import StreamLog

_NOTEBOOK = Path(__file__).resolve().parent.parent / "notebooks" / "00_quickstart.ipynb"
_APPLICATION = "hourly-delays"
_CELL_SECONDS = 900
_REPORT_SECONDS = 2.0


def run_demo(directory: Path) -> int:
    """Execute the quickstart. Leaves the executed notebook, an HTML copy and the log under `directory`; the exit code.

    A failed notebook is left where a finished one would be, with the error in it.
    """
    from papermill import PapermillExecutionError

    from workbench.notebooks import execute, to_html

    directory = directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    executed, page, result = directory / _NOTEBOOK.name, directory / "00_quickstart.html", directory / "result.json"
    result.unlink(missing_ok=True)
    log_directory = directory / "log"
    parameters = {"log_dir": str(log_directory), "result_file": str(result)}
    print(f"Running {_NOTEBOOK.name} in {directory}", file=sys.stderr)
    finished = threading.Event()
    reporter = threading.Thread(target=_report, args=(log_directory, time.time(), finished), daemon=True)
    reporter.start()
    failure: PapermillExecutionError | None = None
    try:
        execute(_NOTEBOOK, executed, parameters, cell_seconds=_CELL_SECONDS, progress=sys.stderr.isatty())
    except PapermillExecutionError as error:
        failure = error
    finally:
        finished.set()
        reporter.join()
    to_html(executed, page)
    print(f"Executed notebook: {executed}\nHTML copy:         {page}", file=sys.stderr)
    if failure is not None:
        print(f"The notebook failed: {failure.ename}: {failure.evalue}", file=sys.stderr)
        print(json.dumps({"status": "failed", "error": failure.ename}))
        return 1
    print(json.dumps(json.loads(result.read_text())))
    return 0


def _report(log_directory: Path, since: float, finished: threading.Event) -> None:
    """Say on stderr how far the notebook's run is, from the log's record, whenever it has moved."""
    from workbench.engine.record import open_record

    said = ""
    while not finished.wait(_REPORT_SECONDS):
        if not (log_directory / StreamLog.MARKER).exists():
            continue
        try:
            record = open_record(StreamLog(log_directory, create=False), _APPLICATION)
        except (UnknownApplication, LogUnavailable):  # an old log is being removed, a new one is being made
            continue
        totals = record.totals()
        line = f"batch {totals['batches']}: {totals['input_messages']:,} flights read, {totals['late_messages']:,} late"
        if line != said and totals["batches"]:
            print(f"  {time.time() - since:3.0f} s  {line}", file=sys.stderr, flush=True)
            said = line
