"""Lists of records: pages along an index, bounded counts and estimates, and columns cut short."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    and_,
    case,
    func,
    null,
    select,
    text,
    true,
)

from trax.records.listing import COUNT_LIMIT, Count, RecordPage
from trax.store.dialect import allow_broad_plans, among, id_document, is_sqlite
from trax.store.schema import tables
from trax.store.schema.define import SCHEMA
from trax.store.schema.manifest import LIVE
from trax.store.schema.work_queue import DELAYED, PARKED, READY

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from sqlalchemy import ScalarSelect


PROBES: Final = 1_000

GOLDEN_RATIO: Final = 0.618_033_988_75


def count_up_to(connection: Connection, rows: Select[Any], estimate: Callable[[], int]) -> Count:
    """Count the rows up to COUNTED_TO; above that, return an estimate."""
    bounded = rows.limit(COUNT_LIMIT + 1).subquery()
    number = connection.execute(select(func.count()).select_from(bounded)).scalar_one()
    return Count(number) if number <= COUNT_LIMIT else Count(max(number, estimate()), exact=False)


def count_queued(connection: Connection) -> Count:
    """Count queued entries: ready, delayed and parked."""
    queue = tables(connection).work_queue
    parts = [
        count_up_to(
            connection,
            select(queue.c.id).where(text(condition)),
            lambda index=index, condition=condition: estimate_index_rows(connection, queue, index, condition),
        )
        for condition, index in (
            (READY, "work_queue_ready_idx"),
            (DELAYED, "work_queue_delayed_idx"),
            (PARKED, "work_queue_parked_at_idx"),
        )
    ]
    return Count(sum(part.number for part in parts), exact=all(part.exact for part in parts))


def count_running(connection: Connection) -> Count:
    """Count runs in progress; administrative runs are never in that state."""
    return count_in_state(connection, "in_progress", "metadata_running_idx")


def count_pending(connection: Connection) -> Count:
    return count_in_state(connection, "pending", "metadata_claim_idx")


def count_in_state(connection: Connection, state: str, index: str) -> Count:
    run, condition = tables(connection).metadata, f"state = '{state}'"
    return count_up_to(
        connection,
        select(run.c.id).where(text(condition)),
        lambda: estimate_index_rows(connection, run, index, condition),
    )


def count_dead_letters(connection: Connection) -> Count:
    """Count dead letters that await intervention."""
    letter, condition = tables(connection).dead_letter, "status = 'awaiting_intervention'"
    return count_up_to(
        connection,
        select(letter.c.id).where(text(condition)),
        lambda: estimate_index_rows(connection, letter, "dead_letter_awaiting_idx", condition),
    )


def count_active_manifests(connection: Connection) -> Count:
    """Count enabled manifests. There is no index on that: above the bound, extrapolate from the first."""
    manifest = tables(connection).manifest
    in_use = select(manifest.c.enabled).where(text(LIVE)).order_by(manifest.c.external_id)
    bounded = in_use.limit(COUNT_LIMIT + 1).subquery()
    enabled = func.count().filter(bounded.c.enabled.is_(True))
    number, read = connection.execute(select(enabled, func.count()).select_from(bounded)).one()
    if read <= COUNT_LIMIT:
        return Count(number)
    total = estimate_index_rows(connection, manifest, "manifest_live_idx", LIVE)
    return Count(round(total * number / read), exact=False)


def estimate_rows(connection: Connection, table: Table) -> int:
    """Estimate the rows of a table; on SQLite by the highest id."""
    if is_sqlite(connection):
        return connection.execute(select(func.coalesce(func.max(table.c.id), 0))).scalar_one()
    return _read_planner_estimate(connection, table.name)


def estimate_index_rows(connection: Connection, table: Table, index: str, condition: str) -> int:
    """Estimate the rows of a partial index; SQLite keeps no estimate, so sample the table."""
    return (
        _estimate_by_sample(connection, table, condition)
        if is_sqlite(connection)
        else _read_planner_estimate(connection, index)
    )


def _estimate_by_sample(connection: Connection, table: Table, condition: str) -> int:
    """Estimate from evenly spread ids (golden ratio: no periodic bias); a missing id does not match."""
    first, last = (connection.execute(select(end(table.c.id))).scalar() or 0 for end in (func.min, func.max))
    size = last + 1 - first
    probes = {first + int(size * (number * GOLDEN_RATIO % 1)) for number in range(PROBES)}
    query = select(func.count()).select_from(table).where(among(connection, table.c.id), text(condition))
    matches = connection.execute(query, {"ids": id_document(probes)}).scalar_one()
    return matches * size // len(probes)


def _read_planner_estimate(connection: Connection, name: str) -> int:
    """The row estimate of the last ANALYZE or VACUUM; PostgreSQL has -1 where there was none."""
    query = text("SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass(:name)")
    return max(0, connection.execute(query, {"name": f"{SCHEMA}.{name}"}).scalar() or 0)


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


F = TypeVar("F")

OMITTED_COLUMNS: Final = frozenset({"input", "output", "stack_trace", "junctions"})

SHORTENED_COLUMNS: Final = frozenset(
    {"failure_reason", "progress_message", "reason", "note", "message", "exception"}
)

MAX_CHARACTERS: Final = 300
"""How many characters of a message are read for a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordQuery(Generic[F, T]):
    """How records of one kind are searched (by a filter), read and built.

    The highest keys, as a rule the newest, come first, unless lists are `ascending`.
    """

    search: Callable[[Connection, F], Search]
    records: Callable[[Connection], Select[Any]]
    record: Callable[[Row[Any]], T]
    ascending: bool = False

    def page(
        self,
        connection: Connection,
        record_filter: F,
        *,
        before: Any = None,
        after: Any = None,
        limit: int = 50,
        brief: bool = False,
    ) -> RecordPage[T]:
        """The page below or above a key; it is marked incomplete if the search stopped at its bound."""
        search = self.search(connection, record_filter)
        if self.ascending and before is None and after is None:
            page_keys = first_page_of(connection, search, limit=limit)
        else:
            page_keys = page_of(connection, search, below=before, above=after, limit=limit)
        if not page_keys.keys:
            return build_page(page_keys, dict[int, T]())
        page = build_page(page_keys, self.load_by_keys(connection, search, page_keys.keys, brief=brief))
        return replace(page, items=page.items[::-1]) if self.ascending else page

    def load_by_keys(
        self, connection: Connection, search: Search, keys: Sequence[Any], *, brief: bool
    ) -> Mapping[Any, T]:
        query = self._records(connection, brief=brief)
        if search.key == "id":
            query = query.where(among(connection, search.keys))
            rows = connection.execute(query, {"ids": id_document(keys)})
        else:
            rows = connection.execute(query.where(search.keys.in_(keys)))
        return {getattr(row, search.key): self.record(row) for row in rows}

    def load_list(
        self,
        connection: Connection,
        record_filter: F,
        *,
        before: Any = None,
        after: Any = None,
        limit: int | None = 50,
        brief: bool = False,
    ) -> list[T]:
        """The records below `before` and above `after`, those next to the key; the search is not bounded."""
        search = self.search(connection, record_filter)
        query = self._records(connection, brief=brief).where(*search.indexed, *search.unindexed)
        if before is not None:
            query = query.where(search.keys < before)
        if after is not None:
            query = query.where(search.keys > after)
        upwards = self.ascending if (before is None) == (after is None) else after is not None
        ordered = query.order_by(search.keys if upwards else search.keys.desc()).limit(limit)
        records = [self.record(row) for row in connection.execute(ordered)]
        return records if upwards == self.ascending else records[::-1]

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


def equal_to(table: Table, filters: Mapping[str, Any], *names: str) -> list[ColumnElement[bool]]:
    """The conditions of filters whose value a column must have."""
    return [table.c[name] == filters[name] for name in names if filters.get(name) is not None]


def period_conditions(column: ColumnElement[Any], filters: Mapping[str, Any]) -> list[ColumnElement[bool]]:
    """The conditions of the filters `since` and `until`."""
    since, until = filters.get("since"), filters.get("until")
    return [
        *([] if since is None else [column >= since]),
        *([] if until is None else [column < until]),
    ]


def manifest_id(connection: Connection, external_id: str) -> ScalarSelect[int]:
    manifest = tables(connection).manifest
    return select(manifest.c.id).where(manifest.c.external_id == external_id).scalar_subquery()


def group_id(connection: Connection, name: str) -> ScalarSelect[int]:
    group = tables(connection).manifest_group
    return select(group.c.id).where(group.c.name == name).scalar_subquery()
