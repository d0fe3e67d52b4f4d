"""Entries that nobody could start: set aside from the queue, so that no visit to the gate wades through them.

`parked` says what an entry waits for, `parked_at` since when. Such an entry is not ready and holds no place.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import bindparam, func, select, text, update

from trax.records.states import QueueStatus, State
from trax.store.claim import PENDING_HERE
from trax.store.dialect import document, id_document, ids_of, moment, rows_of, so_long_before
from trax.store.manifest_locks import lock
from trax.store.schema import tables, tables_for
from trax.store.schema.work_queue import PARKED
from trax.store.types import BigId, Utc, word

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Row, Select, Update

KEYS_AT_MOST: Final = 1_000
SEPARATOR: Final = "\n"
"""Between the train and the group of a key; no name has a line break."""
EXPIRED_AT_ONCE: Final = 500
PENDING_AT_ONCE: Final = 1_000


class StrandedRun(NamedTuple):
    """A run that was let in and waits for a worker of ours."""

    id: int
    external_id: str
    train: str
    group: str | None


def train_of(key: str) -> str:
    """The train that a key is about."""
    return key.partition(SEPARATOR)[0]


def park(connection: Connection, keys: Mapping[int, str], *, now: datetime) -> None:
    """Set these entries aside, each until what its key names is there."""
    rows = document({"id": one, "key": key} for one, key in keys.items())
    connection.execute(_park(connection.dialect.name), {"rows": rows, "now": now})


def unpark(connection: Connection, keys: Iterable[str], *, limit: int) -> int:
    """Put entries that wait for these back into the queue, so many at most; returns how many."""
    given = {"keys": document({"key": key} for key in keys), "most": limit}
    return connection.execute(_unpark(connection.dialect.name), given).rowcount


def keys(connection: Connection, *, limit: int = KEYS_AT_MOST) -> list[str]:
    """What parked entries wait for, each found by one step along the index."""
    return list(connection.execute(_keys(connection.dialect.name), {"most": limit}).scalars())


def expire(connection: Connection, *, parked_before: datetime) -> list[Row[Any]]:
    """Withdraw entries that have waited since before that; returns them as they were, their manifests locked.

    The manifests come first, as for whoever else withdraws: two must not wait for each other.
    """
    queue = tables(connection).work_queue
    is_late = (text(PARKED), queue.c.parked_at < parked_before)
    found = select(queue.c.id, queue.c.manifest_id).where(*is_late).order_by(queue.c.parked_at)
    late = connection.execute(found.limit(EXPIRED_AT_ONCE)).all()
    if not late:
        return []
    lock(connection, {row.manifest_id for row in late if row.manifest_id is not None})
    withdraw = update(queue).where(queue.c.id.in_([row.id for row in late]), *is_late)
    return list(connection.execute(withdraw.values(status=word(QueueStatus.CANCELLED)).returning(queue)))


def stranded(connection: Connection, *, created_before: datetime) -> list[StrandedRun]:
    """The first runs that have waited for a worker of ours since before that."""
    t = tables(connection)
    run = t.metadata
    some = (
        select(run.c.id, run.c.external_id, run.c.train, run.c.group_id, run.c.created_at)
        .where(text(PENDING_HERE))
        .order_by(run.c.priority.desc(), run.c.id)
        .limit(PENDING_AT_ONCE)
        .subquery("some")
    )
    query = (
        select(some.c.id, some.c.external_id, some.c.train, t.manifest_group.c.name)
        .outerjoin(t.manifest_group, t.manifest_group.c.id == some.c.group_id)
        .where(some.c.created_at < created_before)
    )
    return [StrandedRun(*row) for row in connection.execute(query)]


def give_back(connection: Connection, ids: Sequence[int], *, reason: str, now: datetime) -> list[str]:
    """End those of these runs that nobody has begun, as if they had not been let in; returns their names."""
    given = {"ids": id_document(ids), "now": now, "reason": reason}
    return list(connection.execute(_give_back(connection.dialect.name), given).scalars())


def group_names(connection: Connection, ids: Iterable[int]) -> dict[int, str]:
    group = tables(connection).manifest_group
    given = ids_of(connection.dialect.name)
    query = select(group.c.id, group.c.name).join(given, given.c.id == group.c.id)
    return {row.id: row.name for row in connection.execute(query, {"ids": id_document(ids)})}


def has_expired(dialect: str, parameter: str) -> ColumnElement[bool]:
    """Whether an entry has waited for longer than the span of this parameter, as part of another question."""
    queue = tables_for(dialect).work_queue
    late = select(queue.c.id).where(text(PARKED), queue.c.parked_at < so_long_before(dialect, parameter))
    return late.exists()


def has_stranded(dialect: str, parameter: str) -> ColumnElement[bool]:
    """Whether one of the first runs that wait for a worker of ours has waited for longer than this span."""
    run = tables_for(dialect).metadata
    some = (
        select(run.c.created_at)
        .where(text(PENDING_HERE))
        .order_by(run.c.priority.desc(), run.c.id)
        .limit(PENDING_AT_ONCE)
        .subquery("waiting")
    )
    return select(some.c.created_at).where(some.c.created_at < so_long_before(dialect, parameter)).exists()


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
    present = smallest.cte("present", recursive=True)
    following = (
        select(func.min(queue.c.parked)).where(text(PARKED), queue.c.parked > present.c.key).scalar_subquery()
    )
    found = present.union_all(select(following).where(present.c.key.is_not(None)))
    return select(found.c.key).where(found.c.key.is_not(None)).limit(bindparam("most"))


@cache
def _give_back(dialect: str) -> Update:
    run = tables_for(dialect).metadata
    given = ids_of(dialect)
    return (
        update(run)
        .where(run.c.id == given.c.id, text("state = 'pending'"))
        .values(
            state=word(State.CANCELLED),
            ended_at=moment(dialect),
            failure_exception="NoWorker",
            failure_reason=bindparam("reason"),
        )
        .returning(run.c.external_id)
    )
