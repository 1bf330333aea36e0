"""Consumers by producers: a facet per stream, cells in layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from workbench.plots._labels import escaped, label, task_number
from workbench.plots._theme import BOTTOM, QUIET, TOP, dress, facet_title

_GAP = 84
_SLANTED = 76
_LEAST = 150
"""Pixels that a colour bar needs, however few the rows."""
_FEW = 4
"""Fewer columns than these do not fill the width."""
_MARGIN, _BAR, _LEGEND = 72, 110, 32
"""Pixels to the right of the rows for what is written there, then for a colour bar; and below all for the legend."""
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
    glyph_colour: str | None = None
    """None: whatever is legible on the cell."""


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
    widest = max(_FEW, *(len(facet.columns) for facet in facets))
    widths = [min(1.0, max(0.14, len(facet.columns) / widest)) for facet in facets]
    across = [
        _ticks(facet.columns, 640 * width, False, column_words) for facet, width in zip(facets, widths, strict=True)
    ]
    gap = _GAP + (_SLANTED if any("tickangle" in ticks for ticks in across) else 0)
    plot_height = sum(heights) + gap * (len(facets) - 1)
    figure = make_subplots(
        rows=len(facets),
        row_heights=heights,
        vertical_spacing=gap / plot_height if len(facets) > 1 else 0,
    )
    shown: set[str] = set()
    for row, (facet, height) in enumerate(zip(facets, heights, strict=True), start=1):
        axis = str(row) if row > 1 else ""
        for layer in facet.layers:
            if np.isfinite(layer.z).any():
                _cells(figure, facet, layer, row, layer.name not in shown)
                shown.add(layer.name)
        facet_title(figure, facet.title, f"x{axis}", f"y{axis}")
        figure.update_xaxes(**across[row - 1], domain=[0, widths[row - 1]], showgrid=False, row=row, col=1)
        down = _ticks(facet.rows, height, True, row_words)
        figure.update_yaxes(**down, autorange="reversed", showgrid=False, row=row, col=1)
        _margin(figure, facet, height, f"x{axis}", f"y{axis}")
    dress(figure, question, subtitle, plot_height)
    # Below, where no width is too small for it: to the right it would be the first to be cut off.
    legend = {"orientation": "h", "x": 0, "xanchor": "left", "yref": "container", "y": 0, "yanchor": "bottom"}
    return figure.update_layout(
        height=plot_height + TOP + BOTTOM + _LEGEND,
        margin={"r": _MARGIN, "b": BOTTOM + _LEGEND},
        legend={**legend, "itemclick": False, "itemdoubleclick": False},
    )


def add_colour_bar(figure: go.Figure, words: str, colours: list[list[object]], most: float) -> None:
    """Give a figure that `draw` made a colour axis from 0 to `most`, with its bar to the right."""
    margin = figure.layout.margin
    height = figure.layout.height - margin.t - margin.b
    spare = max(0, _LEAST - height)
    figure.update_layout(
        height=figure.layout.height + spare,
        margin={"r": margin.r + _BAR, "b": margin.b + spare},
        coloraxis={
            "colorscale": colours,
            "cmin": 0,
            "cmax": most,
            "colorbar": {
                "title": {"text": words, "font": {"size": 11}},
                "tickfont": {"size": 11, "color": QUIET},
                "thickness": 12,
                "outlinewidth": 0,
                "lenmode": "pixels",
                "len": min(200, max(height, _LEAST) - 40),
                "xref": "container",
                "x": 1.0,
                "xanchor": "right",
                "xpad": 24,
                "y": 1.0,
                "yanchor": "top",
            },
        },
    )


def _height(rows: int) -> int:
    return round(min(max(rows * 28, 34), max(440, rows * 2.5)))


def _cells(figure: go.Figure, facet: Facet, layer: Layer, row: int, in_legend: bool) -> None:
    small = max(len(facet.rows), len(facet.columns)) < _LARGE
    hover = layer.hover.replace("%{x}", "Partition %{x}") if _numbered(facet.columns) else layer.hover
    plain = {"colorscale": [[0, layer.colour], [1, layer.colour]], "showscale": False} if layer.colour else {}
    figure.add_heatmap(
        x=_categories(facet.columns, _numbered(facet.columns)),
        y=_categories(facet.rows, False),
        z=layer.z,
        customdata=layer.customdata,
        coloraxis=None if layer.colour else "coloraxis",
        xgap=2 if small else 0,
        ygap=2 if small else 0,
        text=np.where(np.isfinite(layer.z), layer.glyph, "") if small and layer.glyph else None,
        texttemplate="%{text}" if small and layer.glyph else None,
        textfont={"size": 12, "color": layer.glyph_colour},
        hoverongaps=False,
        hovertemplate=hover + "<extra></extra>",
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


def _numbered(names: list[str]) -> bool:
    """Whether all names are those of tasks, so that side by side their numbers are enough."""
    return all(task_number(name) is not None for name in names)


def _categories(names: list[str], numbered: bool) -> list[str]:
    """What plotly knows the names by, and shows on hovering: short if that keeps them apart."""
    if numbered:
        return [str(task_number(name)) for name in names]
    short = [label(name, 24) for name in names]
    return short if len(set(short)) == len(names) else [escaped(name) for name in names]


def _ticks(names: list[str], pixels: float, upright: bool, words: str) -> dict[str, object]:
    """The settings of an axis of names: as many ticks as fit; side by side, tasks are numbers alone."""
    short = not upright and _numbered(names)
    categories = _categories(names, short)
    texts = categories if short else [label(name, 24) for name in names]
    each = 14 if upright else 12 + 7 * max(len(text) for text in texts)
    # Names that do not fit side by side are slanted; numbers, and rows, are thinned.
    slanted = not upright and not short and len(names) * each > pixels
    step = max(1, int(np.ceil(len(names) * (18 if slanted else each) / pixels)))
    return {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": categories,
        "tickmode": "array",
        "tickvals": categories[::step],
        "ticktext": texts[::step],
        "title_text": f"{words} (Partition …)" if short else words,
        **({"tickangle": -35} if slanted else {}),
    }


def _margin(figure: go.Figure, facet: Facet, height: int, xaxis: str, yaxis: str) -> None:
    categories = _categories(facet.rows, False)
    step = max(1, int(np.ceil(len(facet.rows) * 14 / height)))
    for index in range(0, len(facet.rows), step):
        figure.add_annotation(
            text=facet.margin[index], xref=f"{xaxis} domain", yref=yaxis, x=1, y=categories[index], xanchor="left",
            xshift=6, showarrow=False, font={"size": 11, "color": QUIET},
        )  # fmt: skip
