"""Park queue entries that no live worker can run, so that the dispatcher does not read them each cycle.

`parked` is the key of what an entry waits for, `parked_at` since when. A parked entry is not ready and uses
no capacity.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import bindparam, func, select, text, update

from trax.errors import RowsRefused
from trax.records.states import QueueStatus, State
from trax.records.work_queue_entry import PARKING_SEPARATOR
from trax.store.dialect import document, id_document, ids_of, now_parameter, rows_of, time_before_now
from trax.store.faults import savepoint
from trax.store.manifests.manifest_rows import lock
from trax.store.runs.claim import PENDING_HERE
from trax.store.schema import tables, tables_for
from trax.store.schema.work_queue import PARKED, READY
from trax.store.types import BigId, Utc, sql_literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Row, Select, Update

KEYS_AT_MOST: Final = 1_000
EXPIRED_AT_ONCE: Final = 500
PENDING_AT_ONCE: Final = 1_000


class UnclaimedRun(NamedTuple):
    """An admitted run that no local worker has claimed."""

    id: int
    train: str
    group: str | None


def train_of(key: str) -> str:
    """Return the train part of a parking key."""
    return key.partition(PARKING_SEPARATOR)[0]


def park(connection: Connection, keys: Mapping[int, str], *, now: datetime) -> dict[int, RowsRefused]:
    """Park entries, each until a worker for its key exists.

    Returns the error of each entry that the database does not let be parked. These are cancelled: they can
    never start, and would fail each cycle that reads them.
    """
    refused: dict[int, RowsRefused] = {}
    try:
        with savepoint(connection):
            _park_together(connection, keys, now)
    except RowsRefused:
        for entry_id, key in keys.items():
            try:
                with savepoint(connection):
                    _park_together(connection, {entry_id: key}, now)
            except RowsRefused as error:
                refused[entry_id] = error
    if refused:
        queue = tables(connection).work_queue
        cancel = update(queue).where(queue.c.id.in_(refused), text(READY))
        connection.execute(cancel.values(status=sql_literal(QueueStatus.CANCELLED)))
    return refused


def _park_together(connection: Connection, keys: Mapping[int, str], now: datetime) -> None:
    rows = document({"id": entry_id, "key": key} for entry_id, key in keys.items())
    connection.execute(_park(connection.dialect.name), {"rows": rows, "now": now})


def unpark(connection: Connection, keys: Iterable[str], *, limit: int) -> int:
    """Return entries with these keys to the queue, up to `limit`. Returns how many."""
    parameters = {"keys": document({"key": key} for key in keys), "most": limit}
    return connection.execute(_unpark(connection.dialect.name), parameters).rowcount


def keys(connection: Connection, *, limit: int = KEYS_AT_MOST) -> list[str]:
    """Load the distinct keys of parked entries, with one index lookup per key."""
    return list(connection.execute(_keys(connection.dialect.name), {"most": limit}).scalars())


def expire(connection: Connection, *, parked_before: datetime) -> list[Row[Any]]:
    """Cancel entries parked before that time. Returns the entries; their manifests are locked.

    Manifests are locked before entries, as in every cancellation: another order could deadlock.
    """
    queue = tables(connection).work_queue
    is_late = (text(PARKED), queue.c.parked_at < parked_before)
    found = select(queue.c.id, queue.c.manifest_id).where(*is_late).order_by(queue.c.parked_at)
    late = connection.execute(found.limit(EXPIRED_AT_ONCE)).all()
    if not late:
        return []
    lock(connection, {row.manifest_id for row in late if row.manifest_id is not None})
    cancel = update(queue).where(queue.c.id.in_([row.id for row in late]), *is_late)
    return list(connection.execute(cancel.values(status=sql_literal(QueueStatus.CANCELLED)).returning(queue)))


def load_unclaimed(connection: Connection, *, created_before: datetime) -> list[UnclaimedRun]:
    """Load the first pending runs for local workers that were created before that time."""
    t = tables(connection)
    run = t.metadata
    first = (
        select(run.c.id, run.c.train, run.c.group_id, run.c.created_at)
        .where(text(PENDING_HERE))
        .order_by(run.c.priority.desc(), run.c.id)
        .limit(PENDING_AT_ONCE)
        .subquery("some")
    )
    query = (
        select(first.c.id, first.c.train, t.manifest_group.c.name)
        .outerjoin(t.manifest_group, t.manifest_group.c.id == first.c.group_id)
        .where(first.c.created_at < created_before)
    )
    return [UnclaimedRun(*row) for row in connection.execute(query)]


def cancel_unclaimed(connection: Connection, ids: Sequence[int], *, reason: str, now: datetime) -> list[int]:
    """Cancel those runs that are still pending, to undo their admission. Returns their ids."""
    parameters = {"ids": id_document(ids), "now": now, "reason": reason}
    return list(connection.execute(_cancel_unclaimed(connection.dialect.name), parameters).scalars())


def group_names(connection: Connection, ids: Iterable[int]) -> dict[int, str]:
    group = tables(connection).manifest_group
    given = ids_of(connection.dialect.name)
    query = select(group.c.id, group.c.name).join(given, given.c.id == group.c.id)
    return {row.id: row.name for row in connection.execute(query, {"ids": id_document(ids)})}


def has_expired(dialect: str, parameter: str) -> ColumnElement[bool]:
    """Whether an entry has been parked longer than the bound duration, as a subquery."""
    queue = tables_for(dialect).work_queue
    late = select(queue.c.id).where(text(PARKED), queue.c.parked_at < time_before_now(dialect, parameter))
    return late.exists()


def has_unclaimed(dialect: str, parameter: str) -> ColumnElement[bool]:
    """Whether one of the first pending runs for local workers is older than the bound duration."""
    run = tables_for(dialect).metadata
    first = (
        select(run.c.created_at)
        .where(text(PENDING_HERE))
        .order_by(run.c.priority.desc(), run.c.id)
        .limit(PENDING_AT_ONCE)
        .subquery("waiting")
    )
    return select(first.c.created_at).where(first.c.created_at < time_before_now(dialect, parameter)).exists()


@cache
def _park(dialect: str) -> Update:
    queue = tables_for(dialect).work_queue
    given = rows_of(dialect, "rows", {"id": BigId, "key": queue.c.parked.type})
    return (
        update(queue)
        .where(queue.c.id == given.c.id, text("status = 'queued' AND ready"))
        .values(ready=False, parked=given.c.key, parked_at=bindparam("now", type_=Utc))
    )


@cache
def _unpark(dialect: str) -> Update:
    queue = tables_for(dialect).work_queue
    given = rows_of(dialect, "keys", {"key": queue.c.parked.type})
    some = select(queue.c.id).where(text(PARKED), queue.c.parked.in_(select(given.c.key)))
    return (
        update(queue)
        .where(queue.c.id.in_(some.limit(bindparam("most")).scalar_subquery()), text(PARKED))
        .values(ready=True, parked=None, parked_at=None)
    )


@cache
def _keys(dialect: str) -> Select[Any]:
    queue = tables_for(dialect).work_queue
    smallest = select(func.min(queue.c.parked).label("key")).where(text(PARKED))
    walk = smallest.cte("present", recursive=True)
    next_key = (
        select(func.min(queue.c.parked)).where(text(PARKED), queue.c.parked > walk.c.key).scalar_subquery()
    )
    all_keys = walk.union_all(select(next_key).where(walk.c.key.is_not(None)))
    return select(all_keys.c.key).where(all_keys.c.key.is_not(None)).limit(bindparam("most"))


@cache
def _cancel_unclaimed(dialect: str) -> Update:
    run = tables_for(dialect).metadata
    given = ids_of(dialect)
    return (
        update(run)
        .where(run.c.id == given.c.id, text("state = 'pending'"))
        .values(
            state=sql_literal(State.CANCELLED),
            ended_at=now_parameter(dialect),
            failure_exception="NoWorker",
            failure_reason=bindparam("reason"),
        )
        .returning(run.c.id)
    )
