"""A measured figure beside its peer and its limit, what was demanded of it, and the table of all."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

_COLUMNS = ("name", "unit", "ours", "peer", "limit", "ratio")
_NOTE_WIDTH = 112


@dataclass(frozen=True)
class Demand:
    """A bound on a result's ratio, or on `ours` where there is no ratio to speak of."""

    sentence: str
    at_most: float | None = None
    at_least: float | None = None
    of_ours: bool = False

    def verdict(self, result: Result) -> str:
        """ "met" or "missed by 12 %", with what was demanded; "not measured" where the figure is missing."""
        figure = result.ours if self.of_ours else result.ratio
        if figure is None:
            return f"{self.sentence}: not measured"
        missed = 0.0
        if self.at_most is not None:
            missed = max(missed, figure / self.at_most - 1)
        if self.at_least is not None:
            missed = max(missed, 1 - figure / self.at_least)
        return f"{self.sentence}: " + (f"missed by {missed:.0%}" if missed > 0 else "met") + f" ({_short(figure)})"


@dataclass(frozen=True)
class Result:
    """One line of the table. `ours`, `peer` and `limit` are medians in `unit`; `ratio` is what `demands` are about."""

    name: str
    unit: str
    ours: float | None
    peer: float | None = None
    limit: float | None = None
    ratio: float | None = None
    notes: str = ""
    demands: Sequence[Demand] = field(default=())

    def verdicts(self) -> list[str]:
        return [demand.verdict(self) for demand in self.demands]

    def to_json(self) -> dict[str, object]:
        """{name, unit, ours, peer, limit, ratio, notes}; the notes begin with what was demanded and whether it was met."""
        fields: dict[str, object] = {column: getattr(self, column) for column in _COLUMNS}
        return {**fields, "notes": " · ".join([*self.verdicts(), *([self.notes] if self.notes else [])])}


def ratio(ours: float | None, other: float | None) -> float | None:
    """ours / other, or None where one of them is missing."""
    return None if ours is None or not other else ours / other


def table(results: Sequence[Result]) -> str:
    """The results in aligned columns; below each what was demanded, and what was measured exactly."""
    rows = [
        [result.name, result.unit, *(_short(getattr(result, column)) for column in _COLUMNS[2:])] for result in results
    ]
    widths = [max(map(len, column)) for column in zip(_COLUMNS, *rows, strict=True)]
    lines = [_aligned(_COLUMNS, widths), "  ".join("─" * width for width in widths)]
    for result, row in zip(results, rows, strict=True):
        lines.append(_aligned(row, widths))
        lines += [f"    » {verdict}" for verdict in result.verdicts()]
        lines += textwrap.wrap(result.notes, _NOTE_WIDTH, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines)


def write(results: Sequence[Result], path: Path) -> None:
    """Write the list that other tools read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps([result.to_json() for result in results], indent=2, ensure_ascii=False) + "\n")
    draft.replace(path)


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    words = [cell.ljust(width) for cell, width in zip(cells[:2], widths[:2], strict=True)]
    numbers = [cell.rjust(width) for cell, width in zip(cells[2:], widths[2:], strict=True)]
    return "  ".join([*words, *numbers]).rstrip()


def _short(figure: float | None) -> str:
    """Three significant digits, with separators for large numbers."""
    if figure is None:
        return "–"
    if abs(figure) >= 100:
        return f"{figure:,.0f}"
    return f"{figure:.3g}"
