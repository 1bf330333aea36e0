"""The options of `format("tidemark")`: what there is, what it means, and short errors where one is wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from workbench.errors import InvalidOption, TidemarkError
from workbench.names import checked_name

FORMAT = "tidemark"

_COMMON = ("path", "stream")
_READ = (*_COMMON, "control", "startingOffsets", "maxMessagesPerTrigger")
_WRITE = (*_COMMON, "partitions", "key", "partition", "time", "end", "writer", "checkpointLocation")


@dataclass(frozen=True)
class ReadOptions:
    """`path` (the log's directory), `stream`, and:

    control: "true" adds control messages and the columns that tell them and their position; default "false".
    startingOffsets: "oldest" (default), "upcoming", or JSON: a list with one item for each partition or an object from
        partition to item; an item is an offset, "oldest" or "upcoming"; partitions not named start at the oldest.
    maxMessagesPerTrigger: how many messages a streaming batch may hold over all partitions; default no limit.
    """

    path: str
    stream: str
    control: bool
    starting: str
    limit: int | None

    @classmethod
    def parsed(cls, options: Mapping[str, str]) -> ReadOptions:
        """Raises `InvalidOption`."""
        given = _known(options, _READ, 'spark.read.format("tidemark")')
        limit = given.get("maxMessagesPerTrigger")
        return cls(
            *_place(given, 'spark.read.format("tidemark")'),
            control=_flag(given, "control"),
            starting=given.get("startingOffsets", "oldest"),
            limit=None if limit is None else _positive("maxMessagesPerTrigger", limit),
        )

    def starting_offsets(self, oldest: list[int], heads: list[int]) -> list[int]:
        """Raises `InvalidOption` for offsets that are malformed or not in their partition."""
        asked = _json_or_text(self.starting)
        if asked in ("oldest", "upcoming"):
            items: dict[int, Any] = dict.fromkeys(range(len(heads)), asked)
        elif isinstance(asked, list) and len(asked) == len(heads):
            items = dict(enumerate(asked))
        elif isinstance(asked, dict) and all(key.isdecimal() and int(key) < len(heads) for key in asked):
            items = {int(key): value for key, value in asked.items()}
        else:
            expected = f"'oldest', 'upcoming', or JSON with an item for each of {len(heads)} partition(s)"
            raise InvalidOption.malformed("startingOffsets", self.starting, expected)
        return [
            _offset(items.get(partition, "oldest"), partition, first, head)
            for partition, (first, head) in enumerate(zip(oldest, heads, strict=True))
        ]


@dataclass(frozen=True)
class WriteOptions:
    """`path` (the log's directory), `stream`, and:

    partitions: creates the stream with so many partitions if it is not there.
    key: the column whose hash decides the partition. partition: the column that holds its number; it is not stored.
        With neither, rows are spread evenly.
    time: the column of the event time.
    end: "true" ends the stream after a batch write.
    writer: under which name a streaming query's batches are remembered as written. Needed only where its checkpoint is
        not in a local directory; a query with a new checkpoint needs a new name.
    """

    path: str
    stream: str
    partitions: int | None
    key: str | None
    partition: str | None
    time: str | None
    end: bool
    writer: str | None
    checkpoint: str | None

    @classmethod
    def parsed(cls, options: Mapping[str, str]) -> WriteOptions:
        """Raises `InvalidOption`."""
        given = _known(options, _WRITE, 'write.format("tidemark")')
        if "key" in given and "partition" in given:
            raise InvalidOption.malformed("partition", given["partition"], "left out where key is given")
        partitions = given.get("partitions")
        return cls(
            *_place(given, 'write.format("tidemark")'),
            partitions=None if partitions is None else _positive("partitions", partitions),
            key=given.get("key"),
            partition=given.get("partition"),
            time=given.get("time"),
            end=_flag(given, "end"),
            writer=given.get("writer"),
            checkpoint=given.get("checkpointLocation"),
        )

    def writer_key(self) -> str:
        """Who a streaming query is, the same after a restart and another one with a new checkpoint.

        The id that Spark keeps in the query's checkpoint; `writer` wins over it. Raises `InvalidOption` if there is
        neither.
        """
        if self.writer is not None:
            return f"writer:{checked_name(self.writer, 'writer')}"
        if self.checkpoint is not None:
            place = urlsplit(self.checkpoint)
            local = place.scheme in ("", "file")
            metadata = Path(unquote(place.path) if place.scheme else self.checkpoint) / "metadata"
            if local and metadata.is_file():
                return f"query:{json.loads(metadata.read_text())['id']}"
        raise InvalidOption.missing(
            "writer",
            'writeStream.format("tidemark")',
            "a name that stays the same over restarts of this query, because its checkpoint is not in a local directory "
            "given by the option checkpointLocation",
        )


@contextmanager
def short_errors() -> Iterator[None]:
    """Let a worker of Spark report our own errors by their sentence, without the stack of Spark's frames before it.

    Spark's worker reads the variable when it formats the exception, and then exits: nothing else is affected.
    """
    try:
        yield
    except TidemarkError:
        if "PYTHON_WORKER_FACTORY_PORT" in os.environ or "PYTHON_WORKER_FACTORY_SOCK_DIR" in os.environ:
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def _known(options: Mapping[str, str], known: tuple[str, ...], where: str) -> dict[str, str]:
    spelled = {name.lower(): name for name in known}
    for name in options:
        if name.lower() not in spelled:
            raise InvalidOption.unknown(name, known, where)
    return {spelled[name.lower()]: value for name, value in options.items()}


def _place(given: Mapping[str, str], where: str) -> tuple[str, str]:
    if not given.get("path"):
        raise InvalidOption.missing("path", where, "the directory of the log")
    if not given.get("stream"):
        raise InvalidOption.missing("stream", where, "the name of the stream")
    return given["path"], given["stream"]


def _flag(given: Mapping[str, str], name: str) -> bool:
    value = given.get(name, "false")
    if value.lower() not in ("true", "false"):
        raise InvalidOption.of_choice(name, value, ("true", "false"))
    return value.lower() == "true"


def _positive(name: str, value: str) -> int:
    if not value.strip().isdecimal() or int(value) < 1:
        raise InvalidOption.malformed(name, value, "a whole number of at least 1")
    return int(value)


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


def _offset(item: Any, partition: int, oldest: int, head: int) -> int:
    if item == "oldest":
        return oldest
    if item == "upcoming":
        return head
    if isinstance(item, int) and not isinstance(item, bool) and oldest <= item <= head:
        return item
    expected = f"'oldest', 'upcoming' or an offset from {oldest} to {head} for partition {partition}"
    raise InvalidOption.malformed("startingOffsets", item, expected)
