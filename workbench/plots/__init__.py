"""Frames of telemetry drawn as figures; plotly is met only here.

Every figure is a pure function of one frame that a run recorded, so a prefix of the frame shows an earlier moment. Each
answers one question, which is its title, and has a text twin of the same name with `_table`, for tests, screen readers
and pages without scripts.
"""

from workbench.plots._batches import batches, batches_table
from workbench.plots._bookkeeping import bookkeeping, bookkeeping_table
from workbench.plots._choices import choices, choices_table
from workbench.plots._drains import drains, drains_table
from workbench.plots._end_of_stream import end_of_stream, end_of_stream_table
from workbench.plots._holds_back import who_holds_back, who_holds_back_table
from workbench.plots._late_rows import late_rows, late_rows_table
from workbench.plots._page import page_html
from workbench.plots._theme import STATES, StateLook, task_colour, task_symbol
from workbench.plots._watermarks import watermarks, watermarks_table

__all__ = [
    "STATES",
    "StateLook",
    "batches",
    "batches_table",
    "bookkeeping",
    "bookkeeping_table",
    "choices",
    "choices_table",
    "drains",
    "drains_table",
    "end_of_stream",
    "end_of_stream_table",
    "late_rows",
    "late_rows_table",
    "page_html",
    "task_colour",
    "task_symbol",
    "watermarks",
    "watermarks_table",
    "who_holds_back",
    "who_holds_back_table",
]
