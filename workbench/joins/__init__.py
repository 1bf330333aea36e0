"""Joins of streams within a time bound, and of streams with tables. Pure: neither Spark nor the engine is met here."""

from workbench.joins.spec import KINDS, SUFFIXES, How, JoinSpec, LookupSpec, Side
from workbench.joins.store import Sizes
from workbench.joins.stream_join import JoinStore, StreamJoin
from workbench.joins.table_join import KeyedTable, join_table

__all__ = [
    "KINDS",
    "SUFFIXES",
    "How",
    "JoinSpec",
    "JoinStore",
    "KeyedTable",
    "LookupSpec",
    "Side",
    "Sizes",
    "StreamJoin",
    "join_table",
]
