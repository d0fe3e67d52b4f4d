"""Return entries to the queue after a run, and withdraw (cancel) queued entries."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import case, select, text, update

from trax.events import Topic
from trax.records.states import Origin, QueueStatus
from trax.store.announce import announce
from trax.store.dialect import among, document, id_document, ids_of, rows_of
from trax.store.groups import priority_now
from trax.store.schema import tables, tables_for
from trax.store.schema.work_queue import QUEUED
from trax.store.types import BigId, Utc, sql_literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Row, Select, Update


def load_by_runs(connection: Connection, metadata_ids: Iterable[int]) -> dict[int, Row[Any]]:
    """The entries of these runs, by the id of the run."""
    statement = _select_by_runs(connection.dialect.name)
    return {row.run_id: row for row in connection.execute(statement, {"ids": id_document(metadata_ids)})}


def put_back(connection: Connection, moments: Mapping[int, datetime | None], *, attempts: int) -> list[int]:
    """Queue the entries of these runs again, at once (None) or at a time; returns the ids of the entries.

    `attempts` is added to their attempt count.

    A scheduled entry comes back with origin requeue: a manifest can have only one scheduled entry, and the
    next one may exist already. The group priority is read again, since it may have changed.
    """
    if not moments:
        return []
    announce(connection, Topic.WORK_QUEUE)
    rows: Sequence[dict[str, Any]] = [
        {"metadata_id": metadata_id, "scheduled_at": moment, "ready": moment is None, "attempts": attempts}
        for metadata_id, moment in moments.items()
    ]
    statement = _put_back(connection.dialect.name)
    return list(connection.execute(statement, {"rows": document(rows)}).scalars())


@cache
def _select_by_runs(dialect: str) -> Select[Any]:
    queue, run, wanted = tables_for(dialect).work_queue, tables_for(dialect).metadata, ids_of(dialect)
    entries = select(queue, run.c.id.label("run_id")).join(run, run.c.entry_id == queue.c.id)
    return entries.join(wanted, wanted.c.id == run.c.id)


@cache
def _put_back(dialect: str) -> Update:
    t = tables_for(dialect)
    queue, run, group = t.work_queue, t.metadata, t.manifest_group
    kinds: dict[str, Any] = {
        "metadata_id": BigId,
        "scheduled_at": Utc(),
        "ready": queue.c.ready.type,
        "attempts": queue.c.attempt.type,
    }
    rows = rows_of(dialect, "rows", kinds)
    return (
        update(queue)
        .where(
            run.c.id == rows.c.metadata_id,
            queue.c.id == run.c.entry_id,
            text("status = 'dispatched'"),
        )
        .values(
            status=sql_literal(QueueStatus.QUEUED),
            origin=case(
                (text("origin IN ('schedule', 'retry')"), Origin.REQUEUE.value), else_=queue.c.origin
            ),
            ready=rows.c.ready,
            scheduled_at=rows.c.scheduled_at,
            group_priority=priority_now(queue, group),
            attempt=queue.c.attempt + rows.c.attempts,
            metadata_id=None,
            dispatched_at=None,
        )
        .returning(queue.c.id)
    )


class WithdrawnEntry(NamedTuple):
    """A queued entry that was cancelled."""

    id: int
    external_id: str
    manifest_id: int | None
    attempt: int
    origin: str


def manifests_of(connection: Connection, ids: Sequence[int]) -> list[int]:
    """Load the manifest ids of the queued entries among these."""
    queue = tables(connection).work_queue
    query = select(queue.c.manifest_id).distinct()
    query = query.where(among(connection, queue.c.id), text(QUEUED), queue.c.manifest_id.is_not(None))
    return list(connection.execute(query, {"ids": id_document(ids)}).scalars())


def withdraw(connection: Connection, ids: Sequence[int]) -> list[WithdrawnEntry]:
    """Cancel the queued entries among these. Returns them."""
    queue = tables(connection).work_queue
    statement = (
        update(queue)
        .where(among(connection, queue.c.id), text(QUEUED))
        .values(status=sql_literal(QueueStatus.CANCELLED))
        .returning(*(queue.c[name] for name in WithdrawnEntry._fields))
    )
    return [WithdrawnEntry(*row) for row in connection.execute(statement, {"ids": id_document(ids)})]
