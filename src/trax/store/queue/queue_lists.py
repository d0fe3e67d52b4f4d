"""List, page and count work queue entries, newest first; find ended jobs; read waiting inputs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from sqlalchemy import and_, literal, or_, select, text

from trax.records.states import QueueStatus, State
from trax.store import listing
from trax.store.dialect import allow_broad_plans, id_document, ids_of, lift_limits
from trax.store.listing import RecordQuery, Search, equal_to, group_id, manifest_id
from trax.store.queue import work_queue
from trax.store.runs import metadata
from trax.store.schema import tables, tables_for
from trax.store.schema.metadata import ACTIVE
from trax.store.types import sql_literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import ColumnElement, Connection, Select

    from trax.records import Metadata
    from trax.records.nouns import EntryFilter


def _search(connection: Connection, filters: EntryFilter) -> Search:
    queue, status = tables(connection).work_queue, filters.get("status")
    others = equal_to(queue, filters, "train", "origin")
    if (group := filters.get("group")) is not None:
        others.append(queue.c.group_id == group_id(connection, group))
    if status == QueueStatus.DISPATCHED:  # most entries are dispatched, so there is no index
        others.append(queue.c.status == sql_literal(QueueStatus.DISPATCHED))
    search = Search(table=queue, unindexed=others)
    if status == QueueStatus.QUEUED:
        # There may be many queued entries, adjacent in the index.
        total = partial(_count_queued, connection)
        search = replace(search, indexed=(_has_status(QueueStatus.QUEUED),), total=total)
    if status == QueueStatus.CANCELLED:
        condition = work_queue.WHERE_STATUS[QueueStatus.CANCELLED]
        total = partial(listing.estimate_index_rows, connection, queue, "work_queue_cancelled_idx", condition)
        search = search.narrow(_has_status(QueueStatus.CANCELLED), total=total)
    if (external_id := filters.get("external_id")) is not None:
        query = select(queue.c.id).where(queue.c.external_id == external_id)
        search = search.narrow(queue.c.id.in_(list(connection.execute(query).scalars())))
    if (manifest := filters.get("manifest")) is not None:
        search = search.narrow(queue.c.manifest_id == manifest_id(connection, manifest))
    return search


def _has_status(status: QueueStatus) -> ColumnElement[bool]:
    """The status condition, spelled exactly as in the partial indexes."""
    return cast("ColumnElement[bool]", text(work_queue.WHERE_STATUS[status]))


def _count_queued(connection: Connection) -> int:
    return listing.count_queued(connection).number


ENTRIES: Final = RecordQuery(
    search=_search, records=work_queue.select_records, record=work_queue.build_record
)
page, load_list, count = ENTRIES.page, ENTRIES.load_list, ENTRIES.count


class EntryResult(NamedTuple):
    """An entry whose job has ended: `status` is None if the entry was deleted, `run` if it has no record."""

    entry_id: int
    status: str | None
    run: Metadata | None


def load_ended(connection: Connection, ids: Iterable[int]) -> list[EntryResult]:
    """The entries among `ids` whose job has ended, with the last run of each.

    A retry puts the entry back to queued in the transaction that ends the run, so a job between two runs is
    never reported as ended.
    """
    rows = list(connection.execute(_select_ended(connection.dialect.name), {"ids": id_document(ids)}))
    runs = metadata.load_by_ids(connection, [row.metadata_id for row in rows if row.metadata_id is not None])
    return [EntryResult(row.id, row.status, runs.get(row.metadata_id)) for row in rows]


@cache
def _select_ended(dialect: str) -> Select[Any, Any, Any]:
    t = tables_for(dialect)
    queue, run = t.work_queue, t.metadata
    wanted = ids_of(dialect)
    is_active = select(run.c.id).where(run.c.id == queue.c.metadata_id, text(ACTIVE)).exists()
    is_over = or_(
        queue.c.id.is_(None),
        queue.c.status == "cancelled",
        and_(queue.c.status == "dispatched", ~is_active),
    )
    joined = wanted.outerjoin(queue, queue.c.id == wanted.c.id)
    return select(wanted.c.id, queue.c.status, queue.c.metadata_id).select_from(joined).where(is_over)


class WaitingInput(NamedTuple):
    """A queued entry or pending run (`kind` is "entry" or "run"), with its input as JSON text."""

    kind: str
    id: int
    train: str
    input: str | None


def load_page(connection: Connection, *, after: WaitingInput | None, limit: int) -> Sequence[WaitingInput]:
    """Load the next page: first entries, then runs, each by id."""
    lift_limits(connection)
    allow_broad_plans(connection)
    entries = (
        [] if after is not None and after.kind == "run" else _load_page(connection, "entry", after, limit)
    )
    if len(entries) == limit:
        return entries
    last = after if after is not None and after.kind == "run" else None
    return [*entries, *_load_page(connection, "run", last, limit - len(entries))]


def _load_page(
    connection: Connection, kind: str, after: WaitingInput | None, limit: int
) -> list[WaitingInput]:
    t = tables(connection)
    table, is_waiting = (
        (t.work_queue, t.work_queue.c.status == sql_literal(QueueStatus.QUEUED))
        if kind == "entry"
        else (t.metadata, t.metadata.c.state == sql_literal(State.PENDING))
    )
    query = (
        select(literal(kind), table.c.id, table.c.train, table.c.input)
        .where(is_waiting, table.c.id > (after.id if after else 0))
        .order_by(table.c.id)
        .limit(limit)
    )
    return [WaitingInput(*row) for row in connection.execute(query)]
