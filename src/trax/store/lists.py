"""Lists of one kind of record: a page of it, as many as one wants, how many there are.

A list is read briefly where nobody looks at more: what may be long is left in the database, or its beginning
stands for it. Who opens one record reads it whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from sqlalchemy import Connection, Row, Select, func, null

from trax.store.dialect import among, id_document
from trax.store.paging import Search, counted, page_of, paged

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

    from trax.records.count import Count
    from trax.records.page import Page

F = TypeVar("F")
T = TypeVar("T")

LEFT_OUT: Final = frozenset({"input", "output", "stack_trace", "junctions"})
CUT: Final = frozenset({"failure_reason", "progress_message", "reason", "note", "message", "exception"})
CUT_TO: Final = 300
"""How many characters of what people and exceptions say stand in a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lists(Generic[F, T]):
    """How records of one kind are found (by a filter), read and made; the newest come first."""

    search: Callable[[Connection, F], Search]
    records: Callable[[Connection], Select[Any]]
    record: Callable[[Row[Any]], T]

    def page(
        self,
        connection: Connection,
        wanted: F,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
        brief: bool = False,
    ) -> Page[T]:
        """The page below or above an id. Where it stopped looking too early, it says so."""
        search = self.search(connection, wanted)
        found = page_of(connection, search, below=before, above=after, limit=limit)
        if not found.keys:
            return paged(found, dict[int, T]())
        query = self._records(connection, brief=brief).where(among(connection, search.keys))
        rows = connection.execute(query, {"ids": id_document(found.keys)})
        return paged(found, {row.id: self.record(row) for row in rows})

    def listed(
        self,
        connection: Connection,
        wanted: F,
        *,
        before: int | None = None,
        limit: int = 50,
        brief: bool = False,
    ) -> list[T]:
        """The newest below an id, however far apart they lie."""
        search = self.search(connection, wanted)
        query = self._records(connection, brief=brief).where(*search.indexed, *search.others)
        if before is not None:
            query = query.where(search.keys < before)
        return [
            self.record(row) for row in connection.execute(query.order_by(search.keys.desc()).limit(limit))
        ]

    def count(self, connection: Connection, wanted: F, *, quick: bool = False) -> Count:
        return counted(connection, self.search(connection, wanted), quick=quick)

    def _records(self, connection: Connection, *, brief: bool) -> Select[Any]:
        records = self.records(connection)
        return briefly(records) if brief else records


def briefly(records: Select[Any]) -> Select[Any]:
    """The same records for a list: what is long is not read, and what people say is cut."""
    return records.with_only_columns(*(_shortened(column) for column in records.selected_columns))


def _shortened(column: ColumnElement[Any]) -> ColumnElement[Any]:
    name = str(column.key)
    if name in LEFT_OUT:
        return null().label(name)
    return func.substr(column, 1, CUT_TO).label(name) if name in CUT else column
