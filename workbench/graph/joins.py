"""What a user says of a join, checked and turned into nodes: the words of `MessageStream.join` and `MessageStream.table`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench.errors import InvalidGraph, InvalidJoin
from workbench.graph import nodes
from workbench.joins import KINDS, SUFFIXES, JoinSpec, LookupSpec, Side
from workbench.names import checked_name
from workbench.windows.durations import Duration, duration_text, milliseconds

if TYPE_CHECKING:
    from workbench.graph.application import Application
    from workbench.graph.stages import Stage

Within = Duration | tuple[Duration, Duration]
Late = tuple[str | None, str | None]


class Table:
    """The latest row of each key of a stream, in order of arrival: made by `MessageStream.table`, looked up by `join`."""

    def __init__(self, application: Application, node: nodes.Table) -> None:
        self._application = application
        self._node = node

    @property
    def keys(self) -> tuple[str, ...]:
        return self._node.keys

    def __repr__(self) -> str:
        return f"<{self._node.label} of application {self._application.name!r}>"


def columns_of(keys: str | Sequence[str] | None, what: str) -> tuple[str, ...]:
    """One or more key columns, as a tuple. Raises `InvalidJoin`."""
    if isinstance(keys, str):
        return (keys,)
    found: tuple[Any, ...] = tuple(keys) if isinstance(keys, Sequence) else ()
    if not found or not all(isinstance(key, str) for key in found) or len(set(found)) < len(found):
        raise InvalidJoin.without_keys(what, keys)
    return found


def lookup_spec(table: Table, on: str | Sequence[str] | None, how: str, suffixes: tuple[str, str]) -> LookupSpec:
    """Raises `InvalidJoin`."""
    own = table.keys if on is None else columns_of(on, "A join")
    if len(own) != len(table.keys):
        raise InvalidJoin.other_keys(own, table.keys)
    return LookupSpec(own, table.keys, _how(how), _suffixes(suffixes))


def join_spec(
    times: tuple[str | None, str | None],
    on: str | Sequence[str] | None,
    within: Within | None,
    how: str,
    event_time: str | None,
    suffixes: tuple[str, str],
) -> JoinSpec:
    """`times` are the event-time columns of both sides. Raises `InvalidJoin`, `InvalidGraph`, `InvalidDuration`."""
    keys = columns_of(on, "A join")
    left_time, right_time = times
    if left_time is None or right_time is None:
        raise InvalidGraph.without_event_time(f"The join by {', '.join(keys)}")
    before, after = _bound(within)
    suffixes = _suffixes(suffixes)
    same = left_time == right_time and left_time not in keys
    choices: dict[Side, list[str]] = {
        "left": [left_time + suffixes[0]] if same else [left_time, left_time + suffixes[0]],
        "right": [right_time + suffixes[1]] if same else [right_time, right_time + suffixes[1]],
    }
    chosen = choices["left"][0] if event_time is None else event_time
    side: Side = "left" if chosen in choices["left"] else "right"
    if chosen not in choices[side]:
        raise InvalidJoin.not_an_event_time(chosen, [choices["left"][0], choices["right"][0]])
    if side == "right" and _how(how) == "left":
        raise InvalidJoin.event_time_may_be_missing(chosen, choices["left"][0])
    return JoinSpec(
        left_on=keys,
        right_on=keys,
        how=_how(how),
        suffixes=suffixes,
        left_time=left_time,
        right_time=right_time,
        before=before,
        after=after,
        event_side=side,
        event_time=chosen,
    )


def late_streams(late: Late | None) -> tuple[str | None, str | None]:
    """The streams for late rows of the left and of the right side. Raises `InvalidJoin`, `InvalidName`."""
    if late is None:
        return None, None
    if not isinstance(late, tuple | list) or len(late) != 2:
        raise InvalidJoin.late_is_not_two(late)
    left, right = (None if name is None else checked_name(name) for name in late)
    return left, right


def check_partition_keys(label: str, on: Sequence[str], sides: Sequence[tuple[str, ...]]) -> None:
    """What can be told before a log is known: each side's partition keys, () where unknown. Raises `InvalidJoin`."""
    for keys in sides:
        if keys and not set(keys) <= set(on):
            raise InvalidJoin.keys_not_together(label, on, keys)


def described_streams(stages: Sequence[Stage]) -> list[str]:
    """The input streams whose columns a left join has to name, also in a task to which no row of them has come."""
    found: set[str] = set()
    for stage in stages:
        for node in stage.operators:
            if isinstance(node, nodes.StreamJoin | nodes.TableJoin) and node.spec.how == "left":
                found |= _inputs_of(node.inputs[1])
    return sorted(found)


def _inputs_of(node: nodes.Node) -> set[str]:
    if isinstance(node, nodes.Input):
        return {node.stream}
    return set().union(*(_inputs_of(before) for before in node.inputs))


def _how(how: str) -> Any:
    if how not in KINDS:
        raise InvalidJoin.unknown_how(how, KINDS)
    return how


def _suffixes(suffixes: tuple[str, str] | None) -> tuple[str, str]:
    given: tuple[Any, ...] = tuple(suffixes) if isinstance(suffixes, tuple | list) else ()
    if len(given) != 2 or not all(isinstance(suffix, str) for suffix in given):
        raise InvalidJoin.not_suffixes(suffixes)
    return given[0], given[1]


def _bound(within: Within | None) -> tuple[int, int]:
    if within is None:
        raise InvalidJoin.without_bound()
    if isinstance(within, tuple | list):
        if len(within) != 2:
            raise InvalidJoin.unreadable_bound(within)
        before, after = (milliseconds(part, "bound of the join") for part in within)
    else:
        before = after = milliseconds(within, "bound of the join")
    if before + after < 0:
        raise InvalidJoin.empty_bound(duration_text(before), duration_text(after))
    return before, after


__all__ = [
    "SUFFIXES",
    "Late",
    "Table",
    "Within",
    "check_partition_keys",
    "columns_of",
    "described_streams",
    "join_spec",
    "late_streams",
    "lookup_spec",
]
