"""Figures for a page that nobody but a browser reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go


def page_html(figure: Mapping[str, Any], *, with_library: bool) -> str:
    """A figure, given as the JSON that a notebook holds of it, as a piece of HTML that stays alive in a page.

    The first figure of a page brings the drawing library with it; nothing is loaded from anywhere.
    """
    drawn = go.Figure(data=figure["data"], layout=figure["layout"], skip_invalid=True)
    html: str = drawn.to_html(full_html=False, include_plotlyjs=with_library)
    return html
