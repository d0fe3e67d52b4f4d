"""Keyset pagination of large tables, in both directions, with a bound on the rows read.

A search has two kinds of conditions. Indexed ones limit the scan. The others are checked row by row, for a
limited number of rows: a page that stops early is not `complete` and says where to continue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from sqlalchemy import ColumnElement, Connection, Table, and_, case, func, select, true

from trax.records.count import COUNT_LIMIT, Count
from trax.records.page import RecordPage
from trax.store.counting import estimate_rows
from trax.store.dialect import allow_broad_plans

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from sqlalchemy import Select

T = TypeVar("T")

WINDOW: Final = 10_000
"""Rows read for one page, if they are adjacent."""
SPARSE_WINDOW: Final = 2_500
"""Rows read for one page, if an index leads to rows far apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Rows of a table in descending order of `key`, by default the id.

    `indexed` conditions limit the scan, `unindexed` ones are checked on each row read. `total` estimates how
    many rows match the indexed conditions when there are too many to count: by default all rows of the table,
    0 if unknown.
    """

    table: Table
    indexed: Sequence[ColumnElement[bool]] = ()
    unindexed: Sequence[ColumnElement[bool]] = ()
    total: Callable[[], int] | None = None
    key: str = "id"
    window: int | None = None

    def narrow(self, *conditions: ColumnElement[bool], total: Callable[[], int] = lambda: 0) -> Search:
        """Return a copy with more indexed conditions, whose rows are fewer and far apart."""
        return replace(self, indexed=(*self.indexed, *conditions), total=total, window=SPARSE_WINDOW)

    @property
    def max_rows(self) -> int:
        """The most rows that one page reads."""
        return self.window or WINDOW

    @property
    def keys(self) -> ColumnElement[Any]:
        return self.table.c[self.key]


class PageKeys(NamedTuple):
    """The keys of one page, in descending order, and the keys to continue from below and above it."""

    keys: list[Any]
    below: Any
    above: Any
    complete: bool


def page_of(connection: Connection, search: Search, *, below: Any, above: Any, limit: int) -> PageKeys:
    """Find the page below or above a key; without either, the page with the highest keys."""
    if above is not None:
        keys, stopped_at = _walk(connection, search, search.keys > above, up=True, limit=limit)
        page = keys[:limit][::-1]
        more = keys[limit - 1] if len(keys) > limit else stopped_at
        return PageKeys(page, page[-1] if page else above, more, stopped_at is None)
    beyond = true() if below is None else search.keys < below
    keys, stopped_at = _walk(connection, search, beyond, up=False, limit=limit)
    more = keys[limit - 1] if len(keys) > limit else stopped_at
    newer = None if below is None else keys[0] if keys else below
    return PageKeys(keys[:limit], more, newer, stopped_at is None)


def build_page(page_keys: PageKeys, records: Mapping[Any, T]) -> RecordPage[T]:
    """Build a page from its records. A record deleted in the meantime is left out."""
    items = tuple(records[key] for key in page_keys.keys if key in records)
    return RecordPage(items=items, older=page_keys.below, newer=page_keys.above, complete=page_keys.complete)


def first_page_of(connection: Connection, search: Search, *, limit: int) -> PageKeys:
    """Find the page with the lowest keys, in descending order."""
    keys, stopped_at = _walk(connection, search, true(), up=True, limit=limit)
    more = keys[limit - 1] if len(keys) > limit else stopped_at
    return PageKeys(keys[:limit][::-1], None, more, stopped_at is None)


def count_rows(connection: Connection, search: Search, *, quick: bool = False) -> Count:
    """Count the matches: exact up to COUNTED_TO, an estimate from the rows read beyond that.

    With unindexed conditions, the whole table is read if needed. A `quick` count skips that and may be a low
    estimate.
    """
    most = min(COUNT_LIMIT, search.max_rows) if search.unindexed else COUNT_LIMIT
    rows = _rows(search, true(), up=False, window=most + 1).subquery()
    fitting = func.count().filter(rows.c.fits)
    number, looked_at = connection.execute(select(fitting, func.count()).select_from(rows)).one()
    if looked_at <= most:
        return Count(number)
    at_least = number if quick or not search.unindexed else _count_fitting(connection, search)
    if search.unindexed and not quick and at_least <= COUNT_LIMIT:
        return Count(at_least)
    total = search.total() if search.total else estimate_rows(connection, search.table)
    return Count(max(at_least, round(total * number / looked_at)), exact=False)


def _count_fitting(connection: Connection, search: Search) -> int:
    """Count matching rows in the whole table, up to COUNTED_TO + 1."""
    allow_broad_plans(connection)
    rows = select(search.keys).where(*search.indexed, *search.unindexed).limit(COUNT_LIMIT + 1).subquery()
    return connection.execute(select(func.count()).select_from(rows)).scalar_one()


def id_at(connection: Connection, table: Table, moment: datetime) -> int:
    """Find the first id whose row was created at `moment` or later.

    Ids grow with time, so a binary search over ids needs no index on `created_at`. Rows created at nearly the
    same time may have ids in the other order: for an exact result also compare `created_at`.
    """
    first, last = (select(end(table.c.id)).scalar_subquery() for end in (func.min, func.max))
    whole = select(func.coalesce(first, 0).label("low"), func.coalesce(last + 1, 0).label("high"))
    halves = whole.cte("halves", recursive=True)
    low, high = halves.c.low, halves.c.high
    middle = (low + high) // 2
    created_at = (
        select(table.c.created_at).where(table.c.id >= middle).order_by(table.c.id).limit(1).scalar_subquery()
    )
    is_later = func.coalesce(created_at >= moment, true())
    half = select(case((is_later, low), else_=middle + 1), case((is_later, middle), else_=high))
    steps = halves.union_all(half.where(low < high))
    return connection.execute(select(func.max(steps.c.low))).scalar_one()


def _walk(
    connection: Connection, search: Search, beyond: ColumnElement[bool], *, up: bool, limit: int
) -> tuple[list[Any], Any]:
    """Return the matching keys, up to `limit` + 1, and the key where the scan stopped early, if it did."""
    rows = _rows(search, beyond, up=up, window=search.max_rows)
    scanned = rows.subquery()
    order = scanned.c.key if up else scanned.c.key.desc()
    fitting = select(scanned.c.key).where(scanned.c.fits).order_by(order).limit(limit + 1)
    keys = list(connection.execute(fitting).scalars())
    if len(keys) > limit or not search.unindexed:
        return keys, None
    last = rows.with_only_columns(search.keys).limit(1).offset(search.max_rows - 1)
    return keys, connection.execute(last).scalar()


def _rows(search: Search, beyond: ColumnElement[bool], *, up: bool, window: int) -> Select[*tuple[Any, ...]]:
    """Select the rows to read, and whether each one matches."""
    key = search.keys
    fits = and_(true(), *search.unindexed).label("fits")
    query = select(key.label("key"), fits).where(beyond, *search.indexed)
    return query.order_by(key if up else key.desc()).limit(window)
