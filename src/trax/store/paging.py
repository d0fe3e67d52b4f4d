"""Pages of a long table, in both directions, and never at the price of walking all of it.

What is asked for has two halves. What an index answers narrows the walk. The rest is looked at row by row,
and only so many rows: then the page says how far it came, and the reader may go on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from sqlalchemy import ColumnElement, Connection, Table, and_, case, func, select, true

from trax.records.count import COUNTED_TO, Count
from trax.records.page import Page
from trax.store.counting import about
from trax.store.dialect import plan_freely

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from sqlalchemy import Select

T = TypeVar("T")

WINDOW: Final = 10_000
"""How many rows one page looks at, where they lie side by side."""
SPARSE_WINDOW: Final = 2_500
"""How many, where an index leads to rows that lie far apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Rows of a table in the order of a `key`, its id unless said otherwise, the greatest first.

    The `indexed` conditions narrow what is walked along, the `others` are looked at on the way. `total` tells
    about how many rows the indexed ones leave, where that is more than one would count: by default all rows
    of the table, and 0 where nobody knows.
    """

    table: Table
    indexed: Sequence[ColumnElement[bool]] = ()
    others: Sequence[ColumnElement[bool]] = ()
    total: Callable[[], int] | None = None
    key: str = "id"
    window: int | None = None

    def narrowed(self, *conditions: ColumnElement[bool], total: Callable[[], int] = lambda: 0) -> Search:
        """The same, along an index that leads to fewer rows, which lie far apart."""
        return replace(self, indexed=(*self.indexed, *conditions), total=total, window=SPARSE_WINDOW)

    @property
    def looks_at(self) -> int:
        """How many rows are looked at, at most."""
        return self.window or WINDOW

    @property
    def keys(self) -> ColumnElement[Any]:
        return self.table.c[self.key]


class Found(NamedTuple):
    """The keys of one page, the greatest first, and where to go on below and above it."""

    keys: list[Any]
    below: Any
    above: Any
    complete: bool


def page_of(connection: Connection, search: Search, *, below: Any, above: Any, limit: int) -> Found:
    """The page next below a key, or next above one; without either, the greatest there are."""
    if above is not None:
        keys, edge = _walked(connection, search, search.keys > above, up=True, limit=limit)
        shown = keys[:limit][::-1]
        more = keys[limit - 1] if len(keys) > limit else edge
        return Found(shown, shown[-1] if shown else above, more, edge is None)
    beyond = true() if below is None else search.keys < below
    keys, edge = _walked(connection, search, beyond, up=False, limit=limit)
    more = keys[limit - 1] if len(keys) > limit else edge
    back = None if below is None else keys[0] if keys else below
    return Found(keys[:limit], more, back, edge is None)


def paged(found: Found, records: Mapping[Any, T]) -> Page[T]:
    """The records of a page; one that is gone meanwhile is left out."""
    items = tuple(records[key] for key in found.keys if key in records)
    return Page(items=items, older=found.below, newer=found.above, complete=found.complete)


def first_page_of(connection: Connection, search: Search, *, limit: int) -> Found:
    """The smallest there are, the greatest of them first."""
    keys, edge = _walked(connection, search, true(), up=True, limit=limit)
    more = keys[limit - 1] if len(keys) > limit else edge
    return Found(keys[:limit][::-1], None, more, edge is None)


def counted(connection: Connection, search: Search, *, quick: bool = False) -> Count:
    """How many there are: exact to COUNTED_TO, beyond that what those that were looked at lead to expect.

    Where no index answers, few may fit among many: all are read to count them. A `quick` count does not, and
    may be an estimate of less.
    """
    most = min(COUNTED_TO, search.looks_at) if search.others else COUNTED_TO
    rows = _rows(search, true(), up=False, window=most + 1).subquery()
    fitting = func.count().filter(rows.c.fits)
    number, looked_at = connection.execute(select(fitting, func.count()).select_from(rows)).one()
    if looked_at <= most:
        return Count(number)
    at_least = number if quick or not search.others else _count_fitting(connection, search)
    if search.others and not quick and at_least <= COUNTED_TO:
        return Count(at_least)
    total = search.total() if search.total else about(connection, search.table)
    return Count(max(at_least, round(total * number / looked_at)), exact=False)


def _count_fitting(connection: Connection, search: Search) -> int:
    """How many rows fit, wherever they lie; counting stops one beyond COUNTED_TO."""
    plan_freely(connection)
    rows = select(search.keys).where(*search.indexed, *search.others).limit(COUNTED_TO + 1).subquery()
    return connection.execute(select(func.count()).select_from(rows)).scalar_one()


def id_at(connection: Connection, table: Table, moment: datetime) -> int:
    """The first id whose row was made at this moment or later.

    Ids grow with time, so no index by time is needed: the interval is halved some twenty times. Of two rows
    made in the same moment, the ids may be in the other order: who needs it exactly compares the moment, too.
    """
    first, last = (select(end(table.c.id)).scalar_subquery() for end in (func.min, func.max))
    whole = select(func.coalesce(first, 0).label("low"), func.coalesce(last + 1, 0).label("high"))
    halves = whole.cte("halves", recursive=True)
    low, high = halves.c.low, halves.c.high
    middle = (low + high) // 2
    made_at = (
        select(table.c.created_at).where(table.c.id >= middle).order_by(table.c.id).limit(1).scalar_subquery()
    )
    is_later = func.coalesce(made_at >= moment, true())
    half = select(case((is_later, low), else_=middle + 1), case((is_later, middle), else_=high))
    found = halves.union_all(half.where(low < high))
    return connection.execute(select(func.max(found.c.low))).scalar_one()


def _walked(
    connection: Connection, search: Search, beyond: ColumnElement[bool], *, up: bool, limit: int
) -> tuple[list[Any], Any]:
    """The keys that fit, one more than asked for if there are; and, if it was cut short, where it stopped."""
    rows = _rows(search, beyond, up=up, window=search.looks_at)
    walked = rows.subquery()
    order = walked.c.key if up else walked.c.key.desc()
    fitting = select(walked.c.key).where(walked.c.fits).order_by(order).limit(limit + 1)
    keys = list(connection.execute(fitting).scalars())
    if len(keys) > limit or not search.others:
        return keys, None
    last = rows.with_only_columns(search.keys).limit(1).offset(search.looks_at - 1)
    return keys, connection.execute(last).scalar()


def _rows(search: Search, beyond: ColumnElement[bool], *, up: bool, window: int) -> Select[*tuple[Any, ...]]:
    """The rows that are looked at, and whether each fits."""
    key = search.keys
    fits = and_(true(), *search.others).label("fits")
    query = select(key.label("key"), fits).where(beyond, *search.indexed)
    return query.order_by(key if up else key.desc()).limit(window)
