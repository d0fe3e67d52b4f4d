"""Entries with a key: one job at a time for each key of a train, however many ask.

A key stays with its entry through every retry, and nothing is done when the job ends: whoever asks for the
key next looks whether it is still in use, and takes it over if not. So a job without a key pays nothing, and
the unique index decides between those who ask in the same moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import and_, or_, select, text, update

from trax.events import Topic
from trax.store.announcing import announce
from trax.store.dialect import document, insert
from trax.store.faults import wait_no_longer
from trax.store.schema import tables
from trax.store.schema.metadata import ACTIVE
from trax.store.schema.work_queue import KEYED
from trax.store.work_queue import get, record, records, row_of, rows_to_insert

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Row

    from trax.records.work_queue_entry import NewEntry, WorkQueueEntry
    from trax.store.schema import Tables

WAIT_SECONDS: Final = 10.0
"""How long whoever asks waits for another transaction that has taken the key and is not over."""


def add_or_find(connection: Connection, entry: NewEntry, *, now: datetime) -> WorkQueueEntry:
    """Write the entry, or find the one that has its key and whose job is not over.

    The holder's row is only read: a caller may keep this transaction open for long, and neither the gate nor
    a worker must wait for it. Only the key of what is over is taken away, a row that nobody else wants.
    """
    held = f"unique key {entry.unique_key!r} of train {entry.train!r}"
    with wait_no_longer(connection, seconds=WAIT_SECONDS, what=held):
        while True:
            added = _add_unless_held(connection, entry, now)
            if added is not None:
                announce(connection, Topic.WORK_QUEUE)
                return added
            holder = _holder(connection, entry)
            if holder is not None and not holder.is_over:
                return record(holder)
            if holder is not None:
                _free(connection, holder.id)


def _add_unless_held(connection: Connection, entry: NewEntry, now: datetime) -> WorkQueueEntry | None:
    """Of two who ask at once the second waits here for the first to commit, and then finds its entry."""
    queue = tables(connection).work_queue
    columns, rows = rows_to_insert(connection.dialect.name)
    # SQLite reads "FROM … ON" as the beginning of a join unless a WHERE stands between them.
    statement = (
        insert(connection, queue)
        .from_select(columns, rows.where(text("true")))
        .on_conflict_do_nothing(index_elements=[queue.c.unique_key, queue.c.train], index_where=text(KEYED))
        .returning(queue.c.id)
    )
    given = {"entries": document([row_of(entry, now)]), "now": now}
    entry_id = connection.execute(statement, given).scalar_one_or_none()
    return None if entry_id is None else get(connection, entry_id)


def _holder(connection: Connection, entry: NewEntry) -> Row[Any] | None:
    t = tables(connection)
    query = records(connection).add_columns(_is_over(t).label("is_over"))
    has_key = (t.work_queue.c.unique_key == entry.unique_key, t.work_queue.c.train == entry.train)
    return connection.execute(query.where(*has_key)).one_or_none()


def _free(connection: Connection, entry_id: int) -> None:
    t = tables(connection)
    is_it = (t.work_queue.c.id == entry_id, _is_over(t))
    freed = {"unique_key": None, "former_key": t.work_queue.c.unique_key}
    connection.execute(update(t.work_queue).where(*is_it).values(freed))


def _is_over(t: Tables) -> ColumnElement[bool]:
    """Withdrawn, or let through and its run has ended: what is tried again is queued in the same moment."""
    runs = select(t.metadata.c.id).where(t.metadata.c.id == t.work_queue.c.metadata_id, text(ACTIVE))
    status = t.work_queue.c.status
    return or_(status == "cancelled", and_(status == "dispatched", ~runs.exists()))
