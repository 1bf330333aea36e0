"""Reading what a work order names: whole steps, or a lane piece by piece as the chooser has ordered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from workbench.engine.work import Step
from workbench.messages import ControlRun
from workbench.systems.log.index import Ref
from workbench.systems.log.segments import read_ref

Part: TypeAlias = "pa.Table | ControlRun"


def joined(segments: Path, step: Step) -> Iterator[Part]:
    """A step's rows and runs of control messages in offset order, neighbouring rows joined into one table."""
    yield from _join(_read(segments, ref) for ref in step.refs)


class Lane:
    """One step of a work order, taken in pieces. Segments are mapped when they are reached, each once."""

    def __init__(self, segments: Path, step: Step) -> None:
        self._segments = segments
        self._refs = list(step.refs)
        self._reached = step.first
        """The offset up to which messages were taken."""
        self._part: Part | None = None
        self._first = 0
        """The offset of the first message of `_part`."""

    def take(self, count: int) -> Iterator[Part]:
        """The next `count` offsets, neighbouring rows joined. Offsets without a message here are passed over."""
        self._reached += count
        yield from _join(self._pieces(self._reached))

    def rest(self) -> Iterator[Part]:
        """All that is left: what the job's source says itself, behind the last message that was chosen."""
        yield from _join(self._pieces(None))

    def _pieces(self, end: int | None) -> Iterator[Part]:
        while self._part is not None or self._refs:
            if self._part is None:
                if end is not None and self._refs[0]["o"] >= end:
                    return
                ref = self._refs.pop(0)
                self._part, self._first = _read(self._segments, ref), ref["o"]
            wanted = len(self._part) if end is None else min(len(self._part), end - self._first)
            piece, left = self._part[:wanted], self._part[wanted:]
            self._part, self._first = (left if len(left) else None), self._first + wanted
            if wanted:
                yield piece
            if end is not None and self._part is not None:
                return


def _read(segments: Path, ref: Ref) -> Part:
    return ControlRun.from_json(ref["ctl"]) if "ctl" in ref else read_ref(segments, ref)


def _join(parts: Iterable[Part]) -> Iterator[Part]:
    tables: list[pa.Table] = []
    for part in parts:
        if isinstance(part, ControlRun):
            if tables:
                yield _one(tables)
                tables = []
            yield part
        else:
            tables.append(part)
    if tables:
        yield _one(tables)


def _one(tables: list[pa.Table]) -> pa.Table:
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="permissive")
