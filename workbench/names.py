"""Names that appear in messages, checkpoints and on screen: SSPs, tasks, streams."""

from __future__ import annotations

import re
from typing import NamedTuple

from workbench.errors import InvalidName

LOG_SYSTEM = "log"
"""Name of the embedded system, `workbench.StreamLog`."""

_LONGEST_NAME = 200
_TASK_NAME = re.compile(r"Partition (0|[1-9][0-9]*)")


class SSP(NamedTuple):
    """One partition of one stream of one system (system-stream-partition)."""

    system: str
    stream: str
    partition: int

    def __str__(self) -> str:
        return f"{self.system}/{self.stream}[{self.partition}]"


def task_name(index: int) -> str:
    """The name of the task that consumes partition `index` of every input stream."""
    return f"Partition {index}"


def task_index(name: str) -> int:
    """The inverse of `task_name`. Raises `InvalidName` for any other text."""
    match = _TASK_NAME.fullmatch(name)
    if match is None:
        raise InvalidName.of_task(name)
    return int(match[1])


def checked_name(name: object, what: str = "stream") -> str:
    """Return `name` if it can name a stream or an application, else raise `InvalidName`.

    Any printable text of 1 to 200 characters is allowed, dots, slashes and quotes included: names are data here, never
    paths or code. Not allowed are control characters, surrogates, and white space at either end.
    """
    if not isinstance(name, str):
        raise InvalidName.wrong_type(what, name)
    if not 0 < len(name) <= _LONGEST_NAME:
        raise InvalidName.wrong_length(what, name, _LONGEST_NAME)
    if not all(character == " " or character.isprintable() for character in name) or name != name.strip():
        raise InvalidName.unprintable(what, name)
    return name
