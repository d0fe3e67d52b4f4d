"""Enqueue with a unique key: one job at a time per train and key.

A key stays with its entry through all retries, and is not released when the job ends: the next enqueue with
the key checks whether it is still in use, and takes it over if not. So jobs without a key cost nothing, and
the unique index decides between concurrent enqueues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import and_, or_, select, text, update

from trax.events import Topic
from trax.store.announcing import announce
from trax.store.dialect import document, insert
from trax.store.faults import limit_lock_wait
from trax.store.schema import tables
from trax.store.schema.metadata import ACTIVE
from trax.store.schema.work_queue import KEYED
from trax.store.work_queue import build_record, get, row_of, rows_to_insert, select_records

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Row

    from trax.records.work_queue_entry import NewEntry, WorkQueueEntry
    from trax.store.schema import Tables

WAIT_SECONDS: Final = 10.0
"""How long an enqueue waits for another open transaction that has taken the key."""


def add_or_find(connection: Connection, entry: NewEntry, *, now: datetime) -> WorkQueueEntry:
    """Insert the entry, or return the existing one with its key whose job has not ended.

    The holder's row is only read: a caller may keep this transaction open for long, and neither the
    dispatcher nor a worker must wait for it. Only the row of an ended job is written, to release its key.
    """
    key_text = f"unique key {entry.unique_key!r} of train {entry.train!r}"
    with limit_lock_wait(connection, seconds=WAIT_SECONDS, what=key_text):
        while True:
            added = _add_unless_held(connection, entry, now)
            if added is not None:
                announce(connection, Topic.WORK_QUEUE)
                return added
            holder = _holder(connection, entry)
            if holder is not None and not holder.is_over:
                return build_record(holder)
            if holder is not None:
                _release_key(connection, holder.id)


def _add_unless_held(connection: Connection, entry: NewEntry, now: datetime) -> WorkQueueEntry | None:
    """Insert unless the key is taken. The second of two concurrent inserts waits for the first to commit."""
    queue = tables(connection).work_queue
    columns, rows = rows_to_insert(connection.dialect.name)
    # SQLite parses "FROM … ON" as a join unless there is a WHERE in between.
    statement = (
        insert(connection, queue)
        .from_select(columns, rows.where(text("true")))
        .on_conflict_do_nothing(index_elements=[queue.c.unique_key, queue.c.train], index_where=text(KEYED))
        .returning(queue.c.id)
    )
    parameters = {"entries": document([row_of(entry, now)]), "now": now}
    entry_id = connection.execute(statement, parameters).scalar_one_or_none()
    return None if entry_id is None else get(connection, entry_id)


def _holder(connection: Connection, entry: NewEntry) -> Row[Any] | None:
    t = tables(connection)
    query = select_records(connection).add_columns(_is_over(t).label("is_over"))
    has_key = (t.work_queue.c.unique_key == entry.unique_key, t.work_queue.c.train == entry.train)
    return connection.execute(query.where(*has_key)).one_or_none()


def _release_key(connection: Connection, entry_id: int) -> None:
    t = tables(connection)
    conditions = (t.work_queue.c.id == entry_id, _is_over(t))
    values = {"unique_key": None, "former_key": t.work_queue.c.unique_key}
    connection.execute(update(t.work_queue).where(*conditions).values(values))


def _is_over(t: Tables) -> ColumnElement[bool]:
    """Cancelled, or dispatched and its run has ended. A retry is queued when the run is ended."""
    runs = select(t.metadata.c.id).where(t.metadata.c.id == t.work_queue.c.metadata_id, text(ACTIVE))
    status = t.work_queue.c.status
    return or_(status == "cancelled", and_(status == "dispatched", ~runs.exists()))
