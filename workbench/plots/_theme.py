"""How every figure looks: one palette for the five states, one for tasks, one layout.

The colours are of the Okabe–Ito and Tol sets, which people with any common colour blindness can tell apart; symbol, dash
or pattern repeats what colour says. Figures name no address: they draw without a network once plotly.js is there.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import plotly.graph_objects as go

from workbench.errors import UnknownColumn
from workbench.plots._labels import task_number

INK, QUIET, GRID, PAPER = "#1f2933", "#5f6b7a", "#e4e8ee", "#ffffff"
LATE = "#D55E00"
"""The one colour that means trouble: rows that came too late."""
RATE = "#4477AA"
CONTROL = "#AA3377"

TOP, BOTTOM, SIDE = 112, 64, 64
"""Margins in pixels. The top holds title and subtitle."""


@dataclass(frozen=True)
class StateLook:
    """What a state looks like wherever it is drawn."""

    colour: str
    symbol: str
    dash: str
    pattern: str
    words: str


STATES: dict[str, StateLook] = {
    "unknown": StateLook("#c3c9d2", "circle-open", "solid", ".", "not yet known"),
    "active": StateLook("#0072B2", "circle", "solid", "", "active"),
    "idle": StateLook("#E69F00", "diamond-open", "dot", "/", "idle"),
    "held": StateLook("#CC79A7", "square", "dash", "x", "held"),
    "finished": StateLook("#009E73", "star", "solid", "\\", "finished"),
}

# Neighbours differ in lightness as well as in hue.
_TASK_COLOURS = ("#332288", "#CC6677", "#117733", "#AA4499", "#88CCEE", "#882255", "#44AA99", "#999933", "#DDAA33")
_TASK_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "triangle-down", "cross")
_SHADES = ((0, 0.0), (0, 0.4), (255, 0.35))
OTHERS = "#8b95a3"


def _look(task: str) -> int:
    number = task_number(task)
    return zlib.crc32(task.encode()) if number is None else number


def task_colour(task: str) -> str:
    """A task's colour: by its number, so the same in every figure whatever else is shown.

    The second nine tasks have darker shades of the first nine's colours, the third lighter ones; then they return.
    """
    shade, hue = divmod(_look(task), len(_TASK_COLOURS))
    towards, by = _SHADES[shade % len(_SHADES)]
    channels = (int(_TASK_COLOURS[hue][at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(channel + (towards - channel) * by):02X}" for channel in channels)


def task_symbol(task: str) -> str:
    """A task's symbol, which tells apart the tasks that share a colour."""
    return _TASK_SYMBOLS[_look(task) % len(_TASK_SYMBOLS)]


_AXIS = {
    "gridcolor": GRID,
    "linecolor": "#b8c0cc",
    "zeroline": False,
    "ticks": "outside",
    "ticklen": 4,
    "tickcolor": "#b8c0cc",
    "tickfont": {"size": 11, "color": QUIET},
    "title": {"font": {"size": 12, "color": QUIET}, "standoff": 8},
    "automargin": True,
}
# A white card, not a transparent one: dark text stays legible on a dark page too.
TEMPLATE = go.layout.Template(
    layout={
        "paper_bgcolor": PAPER,
        "plot_bgcolor": "#fafbfc",
        "font": {
            "family": "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', Arial, sans-serif",
            "size": 12,
            "color": INK,
        },
        "xaxis": _AXIS,
        "yaxis": _AXIS,
        "hoverlabel": {"bgcolor": PAPER, "bordercolor": "#b8c0cc", "align": "left", "font": {"color": INK, "size": 12}},
        "legend": {"font": {"size": 11}, "tracegroupgap": 2, "itemwidth": 40, "xanchor": "left", "x": 1.02},
        "hovermode": "closest",
    }
)


def count_axis(most: float) -> dict[str, object]:
    """An axis of counts from 0: its ticks are whole numbers, also where there are few to count."""
    return {"rangemode": "tozero", "tickformat": "~s", **({"dtick": 1} if most <= 5 else {"nticks": 5})}


def dress(figure: go.Figure, question: str, subtitle: str, plot_height: int) -> go.Figure:
    """Give a figure its title (the one question it answers), its subtitle and the common look.

    `plot_height` is the height in pixels between the margins.
    """
    figure.update_layout(
        template=TEMPLATE,
        title={
            "text": f"<b>{question}</b>",
            "font": {"size": 17},
            "subtitle": {"text": subtitle, "font": {"size": 12, "color": QUIET}},
            "x": 0,
            "xref": "paper",
            "xanchor": "left",
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "pad": {"t": 18},
        },
        height=plot_height + TOP + BOTTOM,
        margin={"t": TOP, "b": BOTTOM, "l": SIDE, "r": 24},
        # A live figure that is redrawn keeps the reader's zoom.
        uirevision=question,
    )
    return figure


def nothing(question: str, message: str = "nothing recorded yet") -> go.Figure:
    """The figure of an empty frame."""
    figure = dress(go.Figure(), question, "", 160)
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    figure.add_annotation(
        text=message, xref="paper", yref="paper", x=0.5, y=0.5, showarrow=False, font={"size": 15, "color": QUIET}
    )
    return figure


def facet_title(figure: go.Figure, text: str, xaxis: str, yaxis: str) -> None:
    """Put `text` (escaped already) above the left edge of a facet; axes are named as in `x2`, `y3`."""
    figure.add_annotation(
        text=text,
        xref=f"{xaxis} domain",
        yref=f"{yaxis} domain",
        x=0,
        y=1,
        xanchor="left",
        yanchor="bottom",
        yshift=8,
        showarrow=False,
        font={"size": 12.5, "color": INK},
    )


def in_facet(figure: go.Figure, text: str, xaxis: str, yaxis: str) -> None:
    """Say in the middle of a facet why it is empty."""
    figure.add_annotation(
        text=text,
        xref=f"{xaxis} domain",
        yref=f"{yaxis} domain",
        x=0.5,
        y=0.5,
        showarrow=False,
        font={"size": 13, "color": QUIET},
    )


def require(frame: object, columns: tuple[str, ...], where: str) -> None:
    """Raise `UnknownColumn` if the frame of telemetry named `where` lacks a column."""
    known = [str(column) for column in frame.columns]  # type: ignore[attr-defined]
    for column in columns:
        if column not in known:
            raise UnknownColumn.from_known(column, known, where)
