"""Each statement is compiled once a process, not once a store: half of what a small test takes."""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

if TYPE_CHECKING:
    from sqlalchemy import Dialect

STATEMENTS = 4_000


class _SharedCache:
    """In place of the attribute in which each engine keeps what it has compiled."""

    def __init__(self) -> None:
        self._caches: dict[type[Dialect], LRUCache[Any, Any]] = {}

    def __get__(self, engine: Engine, _owner: type[Engine]) -> LRUCache[Any, Any]:
        return self._caches.setdefault(type(engine.dialect), LRUCache(STATEMENTS))

    def __set__(self, engine: Engine, value: Any) -> None:
        """Let the engine believe that it has one of its own."""


def share_compiled_statements() -> None:
    """Let dialects of one class be equal, as keys of every cache, and let their engines share one."""
    for dialect in (SQLiteDialect_pysqlite, PGDialect_psycopg):
        dialect.__hash__ = _hash
        dialect.__eq__ = _is_equal
    Engine._compiled_cache = _SharedCache()


def _hash(self: Dialect) -> int:
    return hash(type(self))


def _is_equal(self: Dialect, other: object) -> bool:
    return type(self) is type(other)
