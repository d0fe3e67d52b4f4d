"""Lists of the work queue's entries, newest first."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from sqlalchemy import text

from trax.records.states import QueueStatus
from trax.store import counting, work_queue
from trax.store.lists import Lists
from trax.store.names import group_id, manifest_id
from trax.store.paging import Search
from trax.store.schema import tables
from trax.store.types import word

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Table

    from trax.records.filters import EntryFilter


def _search(connection: Connection, wanted: EntryFilter) -> Search:
    queue = tables(connection).work_queue
    search = Search(table=queue, others=_others(connection, queue, wanted))
    if wanted.status is QueueStatus.QUEUED:
        # There may be any number of those, side by side.
        total = partial(_queued, connection)
        search = replace(search, indexed=(_is(QueueStatus.QUEUED),), total=total)
    if wanted.status is QueueStatus.CANCELLED:
        condition = work_queue.WHERE_STATUS[QueueStatus.CANCELLED]
        total = partial(counting.in_index, connection, queue, "work_queue_cancelled_idx", condition)
        search = search.narrowed(_is(QueueStatus.CANCELLED), total=total)
    if wanted.manifest is not None:
        search = search.narrowed(queue.c.manifest_id == manifest_id(connection, wanted.manifest))
    return search


def _others(connection: Connection, queue: Table, wanted: EntryFilter) -> list[ColumnElement[bool]]:
    named = {queue.c.train: wanted.train, queue.c.origin: wanted.origin}
    found: list[ColumnElement[bool]] = [
        column == value for column, value in named.items() if value is not None
    ]
    if wanted.group is not None:
        found.append(queue.c.group_id == group_id(connection, wanted.group))
    if wanted.status is QueueStatus.DISPATCHED:  # as most are: there is no index of those
        found.append(queue.c.status == word(QueueStatus.DISPATCHED))
    return found


def _is(status: QueueStatus) -> ColumnElement[bool]:
    """In the words of the indexes, which know no other."""
    return cast("ColumnElement[bool]", text(work_queue.WHERE_STATUS[status]))


def _queued(connection: Connection) -> int:
    return counting.queued(connection).number


ENTRIES: Final = Lists(search=_search, records=work_queue.records, record=work_queue.record)
page, listed, count = ENTRIES.page, ENTRIES.listed, ENTRIES.count
