"""Which chooser a job has: what `chooser=` and `batch_size=` say, as plain data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.choosers.base import MakeChooser, MessageChooser
from workbench.choosers.batching import checked_batch_size
from workbench.choosers.own import FunctionChooser, Pick, by
from workbench.errors import InvalidChooser

ROUND_ROBIN, TIME_ALIGNED, STARTING_ALIGNMENT, OWN = "round_robin", "time_aligned", "starting_alignment", "own"
BUILT_IN = (ROUND_ROBIN, TIME_ALIGNED, STARTING_ALIGNMENT)

_WORDS = {ROUND_ROBIN: "round robin", TIME_ALIGNED: "earliest", STARTING_ALIGNMENT: "aligned"}

ChooserOption = str | type[MessageChooser] | Callable[[], MessageChooser] | Pick | by | None


@dataclass(frozen=True)
class ChooserPolicy:
    """What decides among inputs of equal priority, and for how many messages it then stays with one.

    `kind` is 'round_robin', 'time_aligned', 'starting_alignment', or 'own' for a chooser that `own` makes; then `name`
    says which. Priorities and bootstrap streams are not part of it: they belong to the inputs. A larger `batch_size`
    makes runs longer: each run is a processing step of a task, about a millisecond.
    """

    kind: str = ROUND_ROBIN
    batch_size: int = 1
    name: str = ""
    own: MakeChooser | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        checked_batch_size(self.batch_size)
        if self.kind not in (*BUILT_IN, OWN):
            raise InvalidChooser.unknown(self.kind, BUILT_IN)
        if self.kind == OWN and self.own is None:
            raise InvalidChooser.without_tie_breaker(self.name or OWN)

    @classmethod
    def from_option(cls, value: ChooserPolicy | ChooserOption = None, batch_size: int = 1) -> ChooserPolicy:
        """The policy that a user's `chooser=` means. None is round robin; a policy is returned as it is.

        A name may be written with hyphens. A subclass of `MessageChooser`, `by(key)` or a function without parameters
        makes choosers; a function of one parameter is given the outstanding envelopes and returns one of them (see
        `FunctionChooser`). Raises `InvalidChooser`.
        """
        if isinstance(value, ChooserPolicy):
            return value
        if value is None:
            return cls(batch_size=batch_size)
        if isinstance(value, str):
            kind = value.strip().lower().replace("-", "_").replace(" ", "_")
            if kind not in BUILT_IN:
                raise InvalidChooser.unknown(value, BUILT_IN)
            return cls(kind, batch_size)
        make = _maker(value)
        name = getattr(value, "__name__", type(value).__name__).strip("<>")
        return cls(OWN, batch_size, name, make)

    @property
    def word(self) -> str:
        """Why a message goes before others of equal priority."""
        word = _WORDS.get(self.kind, self.name)
        return word if self.batch_size == 1 else f"{word}, batches of {self.batch_size}"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types. The code of a user's own chooser is not among them, its name is."""
        return {"kind": self.kind, "batch_size": self.batch_size, "name": self.name}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], own: MakeChooser | None = None) -> ChooserPolicy:
        """The inverse of `to_json`. Raises `InvalidChooser` for one of the user's own that is not given again."""
        return cls(data["kind"], data["batch_size"], data["name"], own)


def _maker(value: object) -> MakeChooser:
    if isinstance(value, MessageChooser):
        raise InvalidChooser.one_for_all(value)
    if isinstance(value, type):
        if not issubclass(value, MessageChooser) or inspect.isabstract(value):
            raise InvalidChooser.not_a_chooser(value)
        return value
    if not callable(value):
        raise InvalidChooser.not_a_chooser(value)
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        raise InvalidChooser.not_a_chooser(value) from None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [each for each in parameters if each.default is each.empty and each.kind in positional]
    if not needed:
        return value
    if len(needed) > 1:
        raise InvalidChooser.not_a_chooser(value)
    return _Picking(value)


@dataclass(frozen=True)
class _Picking:
    """Makes choosers that ask a function. A class and no lambda, so that it can be pickled where the function can."""

    pick: Pick

    def __call__(self) -> FunctionChooser:
        return FunctionChooser(self.pick)
