"""Partial aggregates: what a window store keeps. They are made from rows and merge in any order and any number.

Partials are a few Arrow tables, their sections. Section 0 has one row per key and range of windows, with the
components of `components`. Each further section belongs to one column with a quantile or a distinct count: one row per
key, range of windows and value, with its multiplicity `n`. Every section has the columns `key.0`, `key.1`, …, `first`
and `last`: for tumbling and sliding windows the first and last start of the windows the row belongs to, for sessions
the first and last event time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from workbench.windows.assigners import Session
from workbench.windows.components import reduce
from workbench.windows.grouping import Numbers, dense, group, normalized
from workbench.windows.sessions import merge_sessions
from workbench.windows.spec import WindowSpec


@dataclass(frozen=True)
class Partials:
    """Partial aggregates; see this module."""

    sections: tuple[pa.Table, ...]

    @property
    def rows(self) -> int:
        return sum(section.num_rows for section in self.sections)

    def numbers(self, field: str) -> Numbers:
        """`first` or `last` of all rows, one section after the other."""
        return np.concatenate([np.asarray(section[field]) for section in self.sections])

    def where(self, chosen: npt.NDArray[np.bool_]) -> Partials:
        """The rows that are chosen, of all sections one after the other."""
        if chosen.all():
            return self
        return Partials(
            tuple(s.filter(pa.array(part)) for s, part in zip(self.sections, self.apart(chosen), strict=True))
        )

    def take(self, rows: Numbers) -> Partials:
        """The rows with these numbers, in this order within each section."""
        parts, start = [], 0
        for section in self.sections:
            stop = start + section.num_rows
            parts.append(section.take(pa.array(rows[(rows >= start) & (rows < stop)] - start)))
            start = stop
        return Partials(tuple(parts))

    def apart(self, values: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        """Values per row, cut into sections."""
        return np.split(values, np.cumsum([section.num_rows for section in self.sections])[:-1])


def concatenate(parts: Sequence[Partials]) -> Partials:
    """All rows of the parts, unmerged; types that differ between batches are widened."""
    if len(parts) == 1:
        return parts[0]
    sections = zip(*(part.sections for part in parts), strict=True)
    return Partials(
        tuple(pa.concat_tables(tables, promote_options="permissive").combine_chunks() for tables in sections)
    )


@dataclass(frozen=True)
class Merged:
    """Partials in which every key and window has one row in section 0. `windows[i]` has the number of the window of
    each row of section i; numbers are those of the rows of section 0."""

    partials: Partials
    windows: tuple[Numbers, ...]


class PartialAggregation:
    """Makes and merges partials for one `WindowSpec`."""

    def __init__(self, spec: WindowSpec) -> None:
        self.keys = tuple(f"key.{i}" for i in range(len(spec.keys)))
        self.components = tuple(component for component in spec.components if component.kind != "values")
        self.valued = tuple(component.column for component in spec.components if component.kind == "values")
        self._assigner = spec.assigner

    def start(
        self,
        keys: Sequence[pa.ChunkedArray],
        columns: Sequence[pa.ChunkedArray],
        spans: tuple[Numbers, Numbers],
        times: Numbers,
        order: Numbers,
    ) -> Partials:
        """From rows: their keys, aggregated columns, first and last windows, event times and order of arrival."""
        keys = [normalized(key) for key in keys]
        ids, first, last = self._identify(keys, *spans)
        groups = dense(ids)
        # A component of rows has no column; any of the right length will do.
        rows_only = pa.chunked_array([pa.array(order)])
        steps = []
        for component in self.components:
            values = columns[component.column] if component.column >= 0 else rows_only
            steps += component.start(values, groups, times, order)
        sections = [self._section(keys, first, last, ids, groups.rows, reduce(steps, groups))]
        for column in self.valued:
            values = columns[column]
            there = np.flatnonzero(np.asarray(values.is_valid()))
            values = normalized(values.drop_null())
            of_values = group([ids[there], values], len(there))
            counts = np.bincount(of_values.ids, minlength=of_values.count)
            fields = {"value": values.take(pa.array(of_values.rows)), "n": pa.chunked_array([pa.array(counts)])}
            sections.append(self._section(keys, first, last, ids, there[of_values.rows], fields))
        return Partials(tuple(sections))

    def combine(self, partials: Partials) -> Partials:
        """The same aggregates in as few rows as possible."""
        return self.merge(partials).partials

    def merge(self, partials: Partials) -> Merged:
        """As `combine`, and says which rows belong to the same window. Every window has a row in section 0 if no other
        part of it is left out."""
        all_ids, first, last = self.identify(partials)
        merged, windows = [], []
        for number, (section, ids) in enumerate(zip(partials.sections, partials.apart(all_ids), strict=True)):
            if number == 0:
                groups = dense(ids)
                steps = [step for component in self.components for step in component.merge(section, groups)]
                fields = reduce(steps, groups)
                row_of = np.zeros(len(first), np.int64)
                row_of[ids] = groups.ids
            else:
                groups = group([ids, section["value"]], len(ids))
                fields = {"value": section["value"].take(pa.array(groups.rows))}
                fields |= reduce([("n", section["n"], "sum")], groups)
            keys = [section[key] for key in self.keys]
            merged.append(self._section(keys, first, last, ids, groups.rows, fields))
            windows.append(row_of[ids[groups.rows]])
        return Merged(Partials(tuple(merged)), tuple(windows))

    def identify(self, partials: Partials) -> tuple[Numbers, Numbers, Numbers]:
        """The window or session of each row, of all sections one after the other; first and last of each."""
        spans = [section.select([*self.keys, "first", "last"]) for section in partials.sections]
        joint = pa.concat_tables(spans, promote_options="permissive")
        keys = [joint[key] for key in self.keys]
        return self._identify(keys, np.asarray(joint["first"]), np.asarray(joint["last"]))

    def _identify(
        self, keys: Sequence[pa.ChunkedArray], first: Numbers, last: Numbers
    ) -> tuple[Numbers, Numbers, Numbers]:
        if isinstance(self._assigner, Session):
            return merge_sessions(group(keys, len(first)).ids, first, last, self._assigner.gap)
        bounds = [last] if self._assigner.is_tumbling else [first, last]
        groups = group([*keys, *bounds], len(first))
        return groups.ids, first[groups.rows], last[groups.rows]

    def _section(
        self,
        keys: Sequence[pa.ChunkedArray],
        first: Numbers,
        last: Numbers,
        ids: Numbers,
        rows: Numbers,
        fields: dict[str, pa.ChunkedArray],
    ) -> pa.Table:
        """A section with the keys and windows of these `rows`, and `fields` beside them."""
        chosen = pa.array(rows)
        columns = {name: key.take(chosen) for name, key in zip(self.keys, keys, strict=True)}
        return pa.table({**columns, "first": first[ids[rows]], "last": last[ids[rows]], **fields})
