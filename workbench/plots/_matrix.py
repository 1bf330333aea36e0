"""Consumers by producers: a facet per stream, cells in layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from workbench.plots._labels import label, task_number
from workbench.plots._theme import QUIET, dress, facet_title

_GAP = 84
_LARGE = 24
"""From so many rows or columns on, cells have no glyphs and not every row is named."""


@dataclass(frozen=True)
class Layer:
    """Cells that have something in common; `z` is nan everywhere else.

    `colour` fills all of them, or None takes the colour from `z` by the figure's colour axis. `hover` may use `%{x}`,
    `%{y}`, `%{z}` and `%{customdata}`.
    """

    name: str
    z: NDArray[np.float64]
    colour: str | None
    glyph: str
    hover: str
    customdata: NDArray[np.object_] | NDArray[np.float64] | None = None
    glyph_colour: str = "#1f2933"


@dataclass(frozen=True)
class Facet:
    """One stream: `rows` and `columns` are names, `margin` what stands to the right of each row."""

    title: str
    rows: list[str]
    columns: list[str]
    margin: list[str]
    layers: list[Layer]


def draw(facets: Sequence[Facet], question: str, subtitle: str, row_words: str, column_words: str) -> go.Figure:
    """Draw the facets below each other; `row_words` and `column_words` say what rows and columns are."""
    heights = [_height(len(facet.rows)) for facet in facets]
    plot_height = sum(heights) + _GAP * (len(facets) - 1)
    figure = make_subplots(
        rows=len(facets),
        row_heights=heights,
        vertical_spacing=_GAP / plot_height if len(facets) > 1 else 0,
    )
    widest = max(len(facet.columns) for facet in facets)
    shown: set[str] = set()
    for row, (facet, height) in enumerate(zip(facets, heights, strict=True), start=1):
        axis = str(row) if row > 1 else ""
        for layer in facet.layers:
            if np.isfinite(layer.z).any():
                _cells(figure, facet, layer, row, layer.name not in shown)
                shown.add(layer.name)
        facet_title(figure, facet.title, f"x{axis}", f"y{axis}")
        width = min(1.0, max(0.14, len(facet.columns) / widest))
        pixels = {"x": 800 * width, "y": height}
        figure.update_xaxes(
            **_ticks(facet.columns, pixels["x"], 22, column_words), domain=[0, width], showgrid=False, row=row, col=1
        )
        figure.update_yaxes(
            **_ticks(facet.rows, pixels["y"], 14, row_words), autorange="reversed", showgrid=False, row=row, col=1
        )
        _margin(figure, facet, height, f"x{axis}", f"y{axis}")
    figure.update_layout(legend={"itemclick": False, "itemdoubleclick": False})
    dress(figure, question, subtitle, plot_height)
    return figure.update_layout(margin={"r": 90}, legend={"x": 1.0, "xanchor": "right", "y": 1, "yref": "container",
                                "yanchor": "top", "orientation": "h"})  # fmt: skip


def _height(rows: int) -> int:
    return round(min(max(rows * 28, 34), max(440, rows * 2.5)))


def _cells(figure: go.Figure, facet: Facet, layer: Layer, row: int, in_legend: bool) -> None:
    small = max(len(facet.rows), len(facet.columns)) < _LARGE
    plain = {"colorscale": [[0, layer.colour], [1, layer.colour]], "showscale": False} if layer.colour else {}
    figure.add_heatmap(
        # Positions, not names: names may be cut to the same label.
        x=np.arange(len(facet.columns)),
        y=np.arange(len(facet.rows)),
        z=layer.z,
        customdata=layer.customdata,
        coloraxis=None if layer.colour else "coloraxis",
        xgap=2 if small else 0,
        ygap=2 if small else 0,
        text=np.where(np.isfinite(layer.z), layer.glyph, "") if small and layer.glyph else None,
        texttemplate="%{text}" if small and layer.glyph else None,
        textfont={"size": 12, "color": layer.glyph_colour},
        hoverongaps=False,
        hovertemplate=layer.hover + "<extra></extra>",
        name=f"{layer.glyph} {layer.name}".strip(),
        showlegend=False,
        row=row,
        col=1,
        **plain,
    )
    if layer.colour and in_legend:
        # A heat map's own legend entry is a colour scale; a square says it better.
        figure.add_scatter(
            x=[None], y=[None], mode="markers", hoverinfo="skip", name=f"{layer.glyph} {layer.name}".strip(),
            marker={"symbol": "square", "size": 12, "color": layer.colour}, showlegend=True, row=row, col=1,
        )  # fmt: skip


def _ticks(names: list[str], pixels: float, each: int, words: str) -> dict[str, object]:
    """Ticks for names at 0, 1, 2, …: numbers alone if all are tasks, and no more than fit."""
    numbers = [task_number(name) for name in names]
    tasks = all(number is not None for number in numbers)
    texts = [str(number) for number in numbers] if tasks else [label(name, 24) for name in names]
    longest = max(len(text) for text in texts)
    room = each if each < 20 else max(each, 7 * longest)
    step = max(1, int(np.ceil(len(names) * room / pixels)))
    return {
        "tickmode": "array",
        "tickvals": list(range(0, len(names), step)),
        "ticktext": texts[::step],
        "title_text": f"{words}<br>(Partition …)"
        if tasks and each < 20
        else f"{words} (Partition …)"
        if tasks
        else words,
        "range": [-0.5, len(names) - 0.5],
    }


def _margin(figure: go.Figure, facet: Facet, height: int, xaxis: str, yaxis: str) -> None:
    step = max(1, int(np.ceil(len(facet.rows) * 14 / height)))
    for index in range(0, len(facet.rows), step):
        figure.add_annotation(
            text=facet.margin[index], xref=f"{xaxis} domain", yref=yaxis, x=1, y=index, xanchor="left", xshift=6,
            showarrow=False, font={"size": 11, "color": QUIET},
        )  # fmt: skip
