"""The progress of a run below a notebook cell."""

from __future__ import annotations

import html
import time
from collections.abc import Callable
from dataclasses import replace

import ipywidgets
import traitlets
from IPython.display import display

from workbench.progress import ProgressSnapshot, RecentRate, describe, share

_STYLES = {
    "finished": "success",
    "drained": "success",
    "failed": "danger",
    "stopped": "warning",
    "abandoned": "warning",
}
_REDRAWS_PER_SECOND = 4


class ProgressPanel(ipywidgets.VBox):  # type: ignore[misc]
    """A bar and a line of words. All it shows is in its traits, so it can be asserted without a browser.

    Attributes: `fraction` (0 to 1; None hides the bar), `words` (plain text), `status` (that of the run), `last_error`
    (empty, or why the panel stopped to follow).
    """

    fraction = traitlets.Float(None, allow_none=True, min=0.0, max=1.0)
    words = traitlets.Unicode("")
    status = traitlets.Unicode("starting")
    last_error = traitlets.Unicode("")

    def __init__(self) -> None:
        self.bar = ipywidgets.FloatProgress(
            min=0.0, max=1.0, layout=ipywidgets.Layout(width="100%", height="14px", display="none")
        )
        self.text = ipywidgets.HTML()
        super().__init__([self.bar, self.text], layout=ipywidgets.Layout(max_width="860px"))
        self._show()

    @traitlets.observe("fraction", "words", "status", "last_error")
    def _show(self, change: object = None) -> None:
        self.bar.value = self.fraction or 0.0
        self.bar.layout.display = "none" if self.fraction is None else None
        self.bar.bar_style = _STYLES.get(self.status, "info")
        error = f" <em>{html.escape(self.last_error)}</em>" if self.last_error else ""
        self.text.value = (
            "<span style='font-variant-numeric: tabular-nums'>"
            f"<b>{html.escape(self.status)}</b> {html.escape(self.words)}{error}</span>"
        )


class NotebookProgress:
    """Follows a run in a `ProgressPanel`, at most four times a second.

    Both methods only set traits, so any thread may call them, whichever cell runs meanwhile.
    """

    def __init__(
        self, show: Callable[[ProgressPanel], object] = display, now: Callable[[], float] = time.monotonic
    ) -> None:
        """`show` puts the panel on the page, once and here; `now` is the clock, in seconds, that limits redraws."""
        self.panel = ProgressPanel()
        self._now = now
        self._rate = RecentRate()
        self._last_drawn: float | None = None
        self._latest: tuple[ProgressSnapshot, float] | None = None
        self._closed = False
        show(self.panel)

    def update(self, snapshot: ProgressSnapshot) -> None:
        """Take over `snapshot`; drawn now, or with a later one if the last was drawn just now."""
        if self._closed:
            return
        self._latest = snapshot, self._rate.add(snapshot)
        now = self._now()
        if self._last_drawn is None or now - self._last_drawn >= 1 / _REDRAWS_PER_SECOND:
            self._last_drawn = now
            self._draw(snapshot.status)

    def close(self, final_status: str) -> None:
        """Draw the last snapshot and `final_status`; later calls do nothing."""
        if not self._closed:
            self._closed = True
            self._draw(final_status)

    def _draw(self, status: str) -> None:
        try:
            # One redraw for all traits, not one for each.
            with self.panel.hold_trait_notifications():
                self.panel.status = status
                if self._latest is not None:
                    snapshot, rate = self._latest
                    self.panel.fraction = share(replace(snapshot, status=status))
                    self.panel.words = describe(snapshot, rate)
        except Exception as error:  # whatever the page does, the run goes on and says so here
            self._closed = True
            self.panel.last_error = f"{type(error).__name__}: {error}"
