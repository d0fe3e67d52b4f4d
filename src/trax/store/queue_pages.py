"""List, page and count work queue entries, newest first."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from sqlalchemy import text

from trax.records.states import QueueStatus
from trax.store import counting, work_queue
from trax.store.lists import RecordQuery
from trax.store.names import group_id, manifest_id
from trax.store.paging import Search
from trax.store.schema import tables
from trax.store.types import sql_literal

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Table

    from trax.records.filters import EntryFilter


def _search(connection: Connection, entry_filter: EntryFilter) -> Search:
    queue = tables(connection).work_queue
    search = Search(table=queue, unindexed=_unindexed_conditions(connection, queue, entry_filter))
    if entry_filter.status is QueueStatus.QUEUED:
        # There may be many queued entries, adjacent in the index.
        total = partial(_count_queued, connection)
        search = replace(search, indexed=(_has_status(QueueStatus.QUEUED),), total=total)
    if entry_filter.status is QueueStatus.CANCELLED:
        condition = work_queue.WHERE_STATUS[QueueStatus.CANCELLED]
        total = partial(
            counting.estimate_index_rows, connection, queue, "work_queue_cancelled_idx", condition
        )
        search = search.narrow(_has_status(QueueStatus.CANCELLED), total=total)
    if entry_filter.manifest is not None:
        search = search.narrow(queue.c.manifest_id == manifest_id(connection, entry_filter.manifest))
    return search


def _unindexed_conditions(
    connection: Connection, queue: Table, entry_filter: EntryFilter
) -> list[ColumnElement[bool]]:
    equal = {queue.c.train: entry_filter.train, queue.c.origin: entry_filter.origin}
    conditions: list[ColumnElement[bool]] = [
        column == value for column, value in equal.items() if value is not None
    ]
    if entry_filter.group is not None:
        conditions.append(queue.c.group_id == group_id(connection, entry_filter.group))
    if entry_filter.status is QueueStatus.DISPATCHED:  # most entries are dispatched, so there is no index
        conditions.append(queue.c.status == sql_literal(QueueStatus.DISPATCHED))
    return conditions


def _has_status(status: QueueStatus) -> ColumnElement[bool]:
    """The status condition, spelled exactly as in the partial indexes."""
    return cast("ColumnElement[bool]", text(work_queue.WHERE_STATUS[status]))


def _count_queued(connection: Connection) -> int:
    return counting.count_queued(connection).number


ENTRIES: Final = RecordQuery(
    search=_search, records=work_queue.select_records, record=work_queue.build_record
)
page, load_list, count = ENTRIES.page, ENTRIES.load_list, ENTRIES.count
