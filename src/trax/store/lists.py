"""Query records of one kind: a page, a list, a count.

With `brief`, long columns are not read and texts are cut: lists do not show them. A single record is read
whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from sqlalchemy import Connection, Row, Select, func, null

from trax.store.dialect import among, id_document
from trax.store.paging import Search, build_page, count_rows, page_of

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

    from trax.records.count import Count
    from trax.records.page import RecordPage

F = TypeVar("F")
T = TypeVar("T")

OMITTED_COLUMNS: Final = frozenset({"input", "output", "stack_trace", "junctions"})
SHORTENED_COLUMNS: Final = frozenset(
    {"failure_reason", "progress_message", "reason", "note", "message", "exception"}
)
MAX_CHARACTERS: Final = 300
"""How many characters of a message are read for a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordQuery(Generic[F, T]):
    """How records of one kind are searched (by a filter), read and built; the newest come first."""

    search: Callable[[Connection, F], Search]
    records: Callable[[Connection], Select[Any]]
    record: Callable[[Row[Any]], T]

    def page(
        self,
        connection: Connection,
        record_filter: F,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
        brief: bool = False,
    ) -> RecordPage[T]:
        """The page below or above an id; it is marked incomplete if the search stopped at its bound."""
        search = self.search(connection, record_filter)
        page_keys = page_of(connection, search, below=before, above=after, limit=limit)
        if not page_keys.keys:
            return build_page(page_keys, dict[int, T]())
        query = self._records(connection, brief=brief).where(among(connection, search.keys))
        rows = connection.execute(query, {"ids": id_document(page_keys.keys)})
        return build_page(page_keys, {row.id: self.record(row) for row in rows})

    def load_list(
        self,
        connection: Connection,
        record_filter: F,
        *,
        before: int | None = None,
        limit: int = 50,
        brief: bool = False,
    ) -> list[T]:
        """The newest records below an id; the search is not bounded."""
        search = self.search(connection, record_filter)
        query = self._records(connection, brief=brief).where(*search.indexed, *search.unindexed)
        if before is not None:
            query = query.where(search.keys < before)
        return [
            self.record(row) for row in connection.execute(query.order_by(search.keys.desc()).limit(limit))
        ]

    def count(self, connection: Connection, record_filter: F, *, quick: bool = False) -> Count:
        return count_rows(connection, self.search(connection, record_filter), quick=quick)

    def _records(self, connection: Connection, *, brief: bool) -> Select[Any]:
        records = self.records(connection)
        return shorten(records) if brief else records


def shorten(records: Select[Any]) -> Select[Any]:
    """Select the records for a list: without long columns, and with texts cut."""
    return records.with_only_columns(*(_shorten_column(column) for column in records.selected_columns))


def _shorten_column(column: ColumnElement[Any]) -> ColumnElement[Any]:
    name = str(column.key)
    if name in OMITTED_COLUMNS:
        return null().label(name)
    return func.substr(column, 1, MAX_CHARACTERS).label(name) if name in SHORTENED_COLUMNS else column
