"""Insert and read work queue entries (table `work_queue`), also with a unique key."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import and_, func, insert, literal_column, or_, select, text, update

from trax.events import Topic
from trax.records.states import Origin, QueueStatus
from trax.records.work_queue_entry import NewEntry, WorkQueueEntry
from trax.store.announce import announce, is_caller_connection
from trax.store.dialect import (
    among,
    document,
    documents,
    id_document,
    is_sqlite,
    now_parameter,
    reserve_ids,
    rows_of,
)
from trax.store.dialect import insert as insert_on_conflict
from trax.store.faults import limit_lock_wait
from trax.store.pipeline import bulk_copy
from trax.store.schema import tables, tables_for
from trax.store.schema.metadata import ACTIVE
from trax.store.schema.work_queue import DELAYED, KEYED, PARKED, QUEUED, READY
from trax.store.types import BigId, parse_json, sql_literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Insert, Row, Select, Update

    from trax.store.schema import Tables


COPY_ABOVE: Final = 500
"""Up to this many rows, an INSERT from one document is as fast as COPY, and returns the ids."""

WHERE_STATUS: Final = {
    # Three parts, each with its own index: few entries may be queued in a long history.
    QueueStatus.QUEUED: f"(({READY}) OR ({DELAYED}) OR ({PARKED}))",
    QueueStatus.DISPATCHED: "status = 'dispatched'",
    QueueStatus.CANCELLED: "status = 'cancelled'",
}

ENTRY_COLUMNS: Final = NewEntry._fields
ENGINE_COLUMNS: Final = {"manifest_id", "dead_letter_id", "attempt", "scheduled_for"}
"""Columns that only servers and operators write: who may only enqueue has no right to insert into them."""
CALLER_COLUMNS: Final = tuple(name for name in ENTRY_COLUMNS if name not in ENGINE_COLUMNS)


def add(connection: Connection, entries: Sequence[NewEntry], *, now: datetime) -> list[int]:
    """Insert any number of entries. Returns their ids in the same order.

    A caller's connection may use any driver, so COPY is not used there.
    """
    if entries:
        announce(connection, Topic.WORK_QUEUE)
    if len(entries) > COPY_ABOVE and not is_caller_connection(connection):
        return _copy_in(connection, entries, now)
    statement = _insert(connection.dialect.name)
    ids: dict[str, int] = {}
    for start in range(0, len(entries), COPY_ABOVE):
        for rows in documents([row_of(entry, now) for entry in entries[start : start + COPY_ABOVE]]):
            inserted = connection.execute(statement, {"entries": rows, "now": now})
            ids |= {external_id: entry_id for entry_id, external_id in inserted}
    return [ids[entry.external_id] for entry in entries]


def row_of(entry: NewEntry, now: datetime) -> dict[str, Any]:
    """Build one row of the document. A missing key becomes NULL."""
    row: dict[str, Any] = {
        name: value for name, value in zip(ENTRY_COLUMNS, entry, strict=True) if value is not None
    }
    row["origin"] = entry.origin.value  # a plain string: serialising an enum is slow
    row["ready"] = _is_ready(entry, now)
    return row


def get(connection: Connection, entry_id: int) -> WorkQueueEntry | None:
    queue = tables(connection).work_queue
    row = connection.execute(select_records(connection).where(queue.c.id == entry_id)).one_or_none()
    return build_record(row) if row else None


def load_by_ids(connection: Connection, ids: Sequence[int]) -> dict[int, WorkQueueEntry]:
    """Load entries, keyed by id."""
    query = select_records(connection).where(among(connection, tables(connection).work_queue.c.id))
    return {row.id: build_record(row) for row in connection.execute(query, {"ids": id_document(ids)})}


def next_delayed_at(connection: Connection) -> datetime | None:
    """Return when the earliest delayed entry may run."""
    queue = tables(connection).work_queue
    return connection.execute(select(func.min(queue.c.scheduled_at)).where(text(DELAYED))).scalar()


def is_any_ready(connection: Connection) -> bool:
    """Whether an entry is ready to run."""
    queue = tables(connection).work_queue
    # ORDER BY forces the index: with a long queue, the planner may scan the whole history.
    first = select(queue.c.id).where(text(READY)).order_by(queue.c.group_priority.desc()).limit(1)
    return connection.execute(first).first() is not None


def is_any_waiting(connection: Connection) -> bool:
    """Whether an entry is ready, or parked for a worker that may exist by now."""
    queue = tables(connection).work_queue
    ready = select(queue.c.id).where(text(READY)).order_by(queue.c.group_priority.desc()).limit(1)
    parked = select(queue.c.id).where(text(PARKED)).limit(1)
    return connection.execute(select(or_(ready.exists(), parked.exists()))).scalar_one()


def attach_dead_letters(connection: Connection, letters: Mapping[int, int], *, now: datetime) -> set[int]:
    """Link each dead letter to the oldest startable entry of its manifest. Returns the manifests with one."""
    rows = document(
        {"manifest_id": manifest_id, "dead_letter_id": letter} for manifest_id, letter in letters.items()
    )
    statement = _attach_dead_letters(connection.dialect.name)
    return set(connection.execute(statement, {"rows": rows, "now": now}).scalars())


def _is_ready(entry: NewEntry, now: datetime) -> bool:
    """Whether the entry may run now. A delayed entry is promoted to ready when it is due."""
    return entry.scheduled_at is None or entry.scheduled_at <= now


@cache
def _attach_dead_letters(dialect: str) -> Update:
    queue = tables_for(dialect).work_queue
    letters = rows_of(dialect, "rows", {"manifest_id": BigId, "dead_letter_id": BigId})
    same = queue.alias("same")
    could_start = same.c.ready | (same.c.scheduled_at <= now_parameter(dialect))
    oldest = (
        select(func.min(same.c.id))
        .where(
            same.c.manifest_id == queue.c.manifest_id,
            same.c.status == literal_column("'queued'"),
            could_start,
        )
        .scalar_subquery()
    )
    return (
        update(queue)
        .where(queue.c.manifest_id == letters.c.manifest_id, queue.c.id == oldest, text(QUEUED))
        .values(dead_letter_id=letters.c.dead_letter_id)
        .returning(queue.c.manifest_id)
    )


@cache
def _insert(dialect: str) -> Insert:
    queue = tables_for(dialect).work_queue
    return insert(queue).from_select(*rows_to_insert(dialect)).returning(queue.c.id, queue.c.external_id)


@cache
def rows_to_insert(
    dialect: str, names: tuple[str, ...] = ENTRY_COLUMNS
) -> tuple[list[str], Select[*tuple[Any, ...]]]:
    """Return the column names and the SELECT that inserts a document of `row_of` rows."""
    queue = tables_for(dialect).work_queue
    types = {name: queue.c[name].type for name in (*names, "ready")}
    entries = rows_of(dialect, "entries", types)
    columns: dict[str, Any] = {name: entries.c[name] for name in types} | {
        "status": sql_literal(QueueStatus.QUEUED),
        "created_at": now_parameter(dialect),
    }
    return list(columns), select(*columns.values())


def _copy_in(connection: Connection, entries: Sequence[NewEntry], now: datetime) -> list[int]:
    queue = tables(connection).work_queue
    ids = reserve_ids(connection, queue, len(entries))
    names = ("id", "status", "created_at", "ready", *ENTRY_COLUMNS)
    rows = (
        (entry_id, QueueStatus.QUEUED.value, now, _is_ready(entry, now), *entry)
        for entry_id, entry in zip(ids, entries, strict=True)
    )
    bulk_copy(connection, queue, names, rows)
    return ids


def select_records(connection: Connection) -> Select[Any]:
    t = tables(connection)
    return (
        select(
            t.work_queue,
            t.manifest.c.external_id.label("manifest"),
            t.manifest_group.c.name.label("group_name"),
        )
        .select_from(t.work_queue)
        .outerjoin(t.manifest, t.manifest.c.id == t.work_queue.c.manifest_id)
        .outerjoin(t.manifest_group, t.manifest_group.c.id == t.work_queue.c.group_id)
    )


def build_record(row: Row[Any]) -> WorkQueueEntry:
    return WorkQueueEntry(
        id=row.id,
        external_id=row.external_id,
        train=row.train,
        status=QueueStatus(row.status),
        origin=Origin(row.origin),
        priority=row.priority,
        manifest=row.manifest,
        group=row.group_name,
        input=parse_json(row.input),
        metadata_id=row.metadata_id,
        scheduled_at=row.scheduled_at,
        created_at=row.created_at,
        dispatched_at=row.dispatched_at,
        dispatch_attempts=row.dispatch_attempts,
        dead_letter_id=row.dead_letter_id,
        parked_at=row.parked_at,
    )


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
                release_key(connection, holder.id, entry)


def _add_unless_held(connection: Connection, entry: NewEntry, now: datetime) -> WorkQueueEntry | None:
    """Insert unless the key is taken. The second of two concurrent inserts waits for the first to commit."""
    queue = tables(connection).work_queue
    names = ENTRY_COLUMNS if entry.origin is Origin.REQUEUE else CALLER_COLUMNS
    columns, rows = rows_to_insert(connection.dialect.name, names)
    # SQLite parses "FROM … ON" as a join unless there is a WHERE in between.
    statement = (
        insert_on_conflict(connection, queue)
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


def release_key(connection: Connection, holder_id: int, entry: NewEntry) -> None:
    """Release the key of an ended job. It stays ended; but another caller may have released the key."""
    if not is_sqlite(connection):
        connection.execute(select(func.trax.release_key(holder_id, entry.unique_key)))
        return
    queue = tables(connection).work_queue
    values = {"unique_key": None, "former_key": queue.c.unique_key}
    connection.execute(update(queue).where(queue.c.id == holder_id).values(values))


def _is_over(t: Tables) -> ColumnElement[bool]:
    """Cancelled, or dispatched and its run has ended. A retry is queued when the run is ended."""
    runs = select(t.metadata.c.id).where(t.metadata.c.id == t.work_queue.c.metadata_id, text(ACTIVE))
    status = t.work_queue.c.status
    return or_(status == "cancelled", and_(status == "dispatched", ~runs.exists()))
