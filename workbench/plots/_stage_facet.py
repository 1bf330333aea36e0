"""One facet of the watermark stairs: a stage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from workbench.plots._axes import Axis, at_point
from workbench.plots._labels import dates, drawable, label
from workbench.plots._stages import ACTIVE, FINISHED, HELD, IDLE, NAMES, UNKNOWN, Stage
from workbench.plots._stairs import band, corners, stretch
from workbench.plots._theme import OTHERS, QUIET, STATES, facet_title, in_facet, task_colour, task_symbol

_LOWEST = "minimum over the tasks"
_BAND = "from lowest to highest of all tasks"


@dataclass
class Facets:
    """Draws stages into the rows of `figure`, whose every row has a second y axis from 0 to 1.

    `most` bounds the points of a line. `ranks` gives tasks their place in the legend; `shown` is what stands there.
    """

    figure: go.Figure
    by: Axis
    most: int
    ranks: dict[str, int]
    shown: set[str] = field(default_factory=set)

    def _x(self, stage: Stage, positions: NDArray[np.int64]) -> list[Any]:
        return stage.batch[positions].tolist() if self.by == "batch" else dates(stage.time[positions])

    def draw(self, stage: Stage, row: int, columns: list[int]) -> None:
        """Draw a stage, of its tasks those of `columns` as lines."""
        # Each row has two y axes, the second for the stars; plotly counts them through.
        xaxis, yaxis = (f"x{row}" if row > 1 else "x"), (f"y{2 * row - 1}" if row > 1 else "y")
        if len(columns) < len(stage.tasks):
            self._band(stage, row)
        self._lowest(stage, row)
        for column in columns:
            self._task(stage, row, column)
        self._ends(stage, row)
        self.figure.add_scatter(
            x=self._x(stage, np.array([0, len(stage.batch) - 1])), y=[None, None], showlegend=False, row=row, col=1
        )
        facet_title(
            self.figure, f"{label(stage.name, 60)}   <span style='color:{QUIET}'>{_summary(stage)}</span>", xaxis, yaxis
        )
        if not drawable(stage.watermark).any():
            ended = bool((stage.state[-1] == FINISHED).all())
            in_facet(
                self.figure, "finished without a watermark" if ended else "no watermark is known yet", xaxis, yaxis
            )

    def _hover(self, what: str, note: str = "") -> str:
        return f"<b>{what}</b> · {at_point(self.by)}<br>watermark %{{y|%Y-%m-%d %H:%M:%S}} UTC{note}<extra></extra>"

    def _band(self, stage: Stage, row: int) -> None:
        known = drawable(stage.watermark)
        numbers = stage.watermark.astype(np.int64)
        some = np.asarray(known.any(axis=1))
        low = np.where(known, numbers, np.iinfo(np.int64).max).min(axis=1)
        high = np.where(known, numbers, np.iinfo(np.int64).min).max(axis=1)
        parts = (
            np.array_split(np.arange(len(some)), self.most)
            if len(some) > self.most
            else [np.array([i]) for i in range(len(some))]
        )
        first = np.array([part[0] for part in parts])
        nat = np.iinfo(np.int64).min
        lows = np.array([low[part][some[part]].min() if some[part].any() else nat for part in parts])
        highs = np.array([high[part][some[part]].max() if some[part].any() else nat for part in parts])
        # The last step needs a place to end.
        first, lows, highs = np.append(first, len(some) - 1), np.append(lows, lows[-1]), np.append(highs, highs[-1])
        x, y = band(self._x(stage, first), dates(lows.astype("datetime64[ms]")), dates(highs.astype("datetime64[ms]")))
        self.figure.add_scatter(
            x=x, y=y, mode="lines", fill="toself", fillcolor="rgba(68,119,170,0.16)", line={"width": 0}, hoverinfo="skip",
            name=_BAND, legendgroup="band", legendrank=2, showlegend="band" not in self.shown,
            row=row, col=1,
        )  # fmt: skip
        self.shown.add("band")

    def _lowest(self, stage: Stage, row: int) -> None:
        known = np.isin(stage.lowest_state, (ACTIVE, IDLE, HELD))
        positions = corners(stage.lowest, stage.lowest_state, self.most)
        x, y = stretch(self._x(stage, positions), dates(stage.lowest[positions]), known[positions])
        self.figure.add_scatter(
            x=x, y=y, mode="lines", line={"width": 8, "color": "rgba(31,41,51,0.22)", "shape": "hv"},
            hovertemplate=self._hover(_LOWEST), name=_LOWEST, legendgroup="minimum",
            legendrank=1, showlegend="minimum" not in self.shown, row=row, col=1,
        )  # fmt: skip
        self.shown.add("minimum")

    def _task(self, stage: Stage, row: int, column: int) -> None:
        task, state = stage.tasks[column], stage.state[:, column]
        colour = task_colour(task)
        positions = corners(stage.watermark[:, column], state, self.most)
        x, y = self._x(stage, positions), dates(stage.watermark[positions, column])
        for code in (ACTIVE, IDLE, HELD):
            drawn = state[positions] == code
            if not drawn.any():
                continue
            look = STATES[NAMES[code]]
            xs, ys = stretch(x, y, drawn)
            self.figure.add_scatter(
                x=xs, y=ys, mode="lines+markers",
                line={"width": 1.8, "color": colour, "shape": "hv", "dash": look.dash},
                marker={"symbol": task_symbol(task), "size": 6, "color": colour, "maxdisplayed": 9},
                hovertemplate=self._hover(label(task), "" if code == ACTIVE else f", {look.words}"),
                name=label(task), legendgroup=f"task {self.ranks[task]}", legendrank=self.ranks[task],
                showlegend=f"task {task}" not in self.shown, row=row, col=1,
            )  # fmt: skip
            self.shown.add(f"task {task}")

    def _ends(self, stage: Stage, row: int) -> None:
        """Stars at the top edge, one for each batch in which tasks finished."""
        finished = np.asarray(stage.state == FINISHED)
        new: NDArray[np.bool_] = finished & ~np.vstack([np.zeros((1, finished.shape[1]), dtype=bool), finished[:-1]])
        positions = np.flatnonzero(new.any(axis=1))
        if not len(positions):
            return
        texts = []
        for position in positions.tolist():
            names = [label(stage.tasks[column]) for column in np.flatnonzero(new[position]).tolist()]
            more = f" and {len(names) - 6} more" if len(names) > 6 else ""
            total = int(finished[position].sum())
            texts.append(f"{', '.join(names[:6])}{more}<br>{total} of {len(stage.tasks)} tasks have finished")
        look = STATES["finished"]
        self.figure.add_scatter(
            x=self._x(stage, positions), y=[1.0] * len(positions), mode="markers", cliponaxis=False, customdata=texts,
            marker={"symbol": look.symbol, "size": 11, "color": look.colour, "line": {"width": 1, "color": "#ffffff"}},
            hovertemplate=f"<b>finished</b> · {at_point(self.by)}<br>%{{customdata}}<extra></extra>", showlegend=False,
            row=row, col=1, secondary_y=True,
        )  # fmt: skip

    def legend(self, found: list[Stage]) -> None:
        """Say in the legend what dashes and stars mean, as far as they occur."""
        present = {int(code) for stage in found for code in np.unique(stage.state)}
        for code in (UNKNOWN, IDLE, HELD, FINISHED):
            if code not in present:
                continue
            look = STATES[NAMES[code]]
            words = f"{look.words} (no line)" if code == UNKNOWN else look.words
            lines = code in (IDLE, HELD)
            self.figure.add_scatter(
                x=[None], y=[None], mode="lines" if lines else "markers", hoverinfo="skip", name=words, legendrank=2000,
                line={"width": 1.8, "color": OTHERS, "dash": look.dash} if lines else None,
                marker=None if lines else {"symbol": look.symbol, "size": 10, "color": look.colour},
                row=1, col=1,
            )  # fmt: skip


def _summary(stage: Stage) -> str:
    counts = np.bincount(stage.state[-1], minlength=len(NAMES))
    present = [f"{count} {STATES[name].words}" for name, count in zip(NAMES, counts.tolist(), strict=True) if count]
    return f"{len(stage.tasks)} task{'s' if len(stage.tasks) != 1 else ''}: {', '.join(present)}"
