"""The metadata store: small values under a namespace and a key, shared by a running job and external tools.

It takes the place of Samza's coordinator stream: startpoints, drain notifications and the like are written here by
anyone, at any time, and noticed by the job. What a value means is the matter of who reads it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from workbench.errors import InvalidMetadata

LARGEST_VALUE = 16 << 20
"""Bytes of the largest value."""


class MetadataStore(Protocol):
    """Values by (namespace, key). Each call is atomic; `transaction` makes several calls so."""

    def get(self, namespace: str, key: str) -> bytes | None:
        """The value, or None."""

    def put(self, namespace: str, key: str, value: bytes | str) -> None:
        """Write or replace a value; text is kept as UTF-8. Raises `InvalidMetadata` above `LARGEST_VALUE`."""

    def put_all(self, namespace: str, values: Mapping[str, bytes | str]) -> None:
        """Write or replace several values at once: all or none."""

    def delete(self, namespace: str, key: str) -> bool:
        """Remove a value. False if there was none."""

    def delete_all(self, namespace: str) -> int:
        """Remove a whole namespace; how many values it had."""

    def all(self, namespace: str) -> dict[str, bytes]:
        """Every value of a namespace, in the order of the keys."""

    def namespaces(self) -> list[str]:
        """Namespaces that have a value, sorted."""

    def transaction(self) -> AbstractContextManager[MetadataStore]:
        """Several operations as one: nobody sees some of them only, and an exception undoes them all."""


class Transactions(Protocol):
    """What an SQLite database must offer to hold a metadata store."""

    def connection(self) -> sqlite3.Connection: ...

    def writing(self) -> AbstractContextManager[sqlite3.Connection]: ...

    def reading(self) -> AbstractContextManager[sqlite3.Connection]: ...


class SqliteMetadataStore:
    """A `MetadataStore` in the table `metadata` of an SQLite database."""

    def __init__(self, database: Transactions) -> None:
        self._database = database

    def get(self, namespace: str, key: str) -> bytes | None:
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT value FROM metadata WHERE namespace = ? AND key = ?", (namespace, key)
            ).fetchone()
        return None if row is None else bytes(row[0])

    def put(self, namespace: str, key: str, value: bytes | str) -> None:
        self.put_all(namespace, {key: value})

    def put_all(self, namespace: str, values: Mapping[str, bytes | str]) -> None:
        rows = [(namespace, key, _encoded(namespace, key, value)) for key, value in values.items()]
        with self._database.writing() as connection:
            connection.executemany("INSERT OR REPLACE INTO metadata VALUES (?, ?, ?)", rows)

    def delete(self, namespace: str, key: str) -> bool:
        with self._database.writing() as connection:
            statement = "DELETE FROM metadata WHERE namespace = ? AND key = ?"
            return connection.execute(statement, (namespace, key)).rowcount > 0

    def delete_all(self, namespace: str) -> int:
        with self._database.writing() as connection:
            return connection.execute("DELETE FROM metadata WHERE namespace = ?", (namespace,)).rowcount

    def all(self, namespace: str) -> dict[str, bytes]:
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT key, value FROM metadata WHERE namespace = ? ORDER BY key", (namespace,)
            ).fetchall()
        return {key: bytes(value) for key, value in rows}

    def namespaces(self) -> list[str]:
        with self._database.reading() as connection:
            return [name for (name,) in connection.execute("SELECT DISTINCT namespace FROM metadata ORDER BY 1")]

    @contextmanager
    def transaction(self) -> Iterator[SqliteMetadataStore]:
        with self._database.writing():
            yield self


def _encoded(namespace: str, key: str, value: bytes | str) -> bytes:
    encoded = value.encode() if isinstance(value, str) else bytes(value)
    if len(encoded) > LARGEST_VALUE:
        raise InvalidMetadata.too_large(namespace, key, len(encoded), LARGEST_VALUE)
    return encoded
