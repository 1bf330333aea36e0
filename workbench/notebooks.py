"""Running a notebook with parameters, a page of it that needs no network, and a log of its own to start from."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.errors import ForeignDirectory
from workbench.systems.log import StreamLog

_MADE_BY = "made-by-a-notebook"
_START_SECONDS = 120
_PLOTLY = "application/vnd.plotly.v1+json"


def execute(
    notebook: Path, executed: Path, parameters: Mapping[str, Any], *, cell_seconds: int, progress: bool = False
) -> None:
    """Run a notebook through papermill in the directory of `executed`, where the result is left.

    Raises `papermill.PapermillExecutionError` when a cell fails; `executed` is written then too, with the error in it.
    """
    import papermill
    from traitlets.config import Config

    logging.getLogger("papermill").setLevel(logging.ERROR)
    papermill.execute_notebook(
        notebook,
        executed,
        dict(parameters),
        cwd=str(executed.parent),
        start_timeout=_START_SECONDS,
        execution_timeout=cell_seconds,
        progress_bar=progress,
        # The kernel talks over loopback; encrypted, it has nothing to warn about.
        config=Config({"KernelManager": {"transport_encryption": "auto"}}),
    )


def fresh_log(directory: str | Path, notebook: str) -> StreamLog:
    """A new log in `directory`, in the place of the one that an earlier run of the same `notebook` (its name) made there.

    A file in the directory says who made it. Raises `ForeignDirectory`, and removes nothing, where there is anything that
    this notebook did not make.
    """
    path = Path(directory)
    made_by = path / _MADE_BY
    if made_by.is_file() and not path.is_symlink() and made_by.read_bytes() == _note(notebook):
        shutil.rmtree(path)
    elif path.is_symlink() or (path.exists() and (not path.is_dir() or any(path.iterdir()))):
        raise ForeignDirectory.not_made_by(notebook, str(path))
    path.mkdir(parents=True, exist_ok=True)
    made_by.write_bytes(_note(notebook))
    return StreamLog(path)


def _note(notebook: str) -> bytes:
    said = (
        f"This directory was made by the notebook {notebook}, which removes it with all it holds when it runs again.\n"
    )
    return said.encode()


def to_html(executed: Path, page: Path) -> None:
    """Write a notebook as one HTML page: figures stay alive in it, and it loads nothing from anywhere."""
    import nbformat
    from nbconvert import HTMLExporter

    notebook = nbformat.read(executed, as_version=4)  # type: ignore[no-untyped-call]
    _figures_to_html(notebook)
    exporter = HTMLExporter(template_name="lab", mathjax_url="", require_js_url="")  # type: ignore[no-untyped-call]
    html, _ = exporter.from_notebook_node(notebook)
    page.write_text(html)


def _figures_to_html(notebook: Any) -> None:
    """Replace plotly's own format, which only a notebook program can draw. The library goes in with the first figure."""
    from workbench.plots import page_html

    first = True
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            figure = output.get("data", {}).get(_PLOTLY)
            if figure is not None:
                output["data"] = {"text/html": page_html(figure, with_library=first)}
                first = False
