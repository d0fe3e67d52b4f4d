"""Records that nobody needs any more, deleted in batches with the entries that led to them."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, delete, select

from trax.store.dialect import document, rows_of
from trax.store.schema import tables_for
from trax.store.types import BigId, Utc

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Delete, Select


def delete_ended(
    connection: Connection, *, trains: Iterable[str], ended_before: datetime, limit: int | None
) -> Counter[str]:
    """Delete records of these trains, at most so many; gives how many of each train.

    What has not ended has no moment of its end, so it is never found. Log lines go with their record; a
    child's record and a dead letter only forget it.
    """
    dialect = connection.dialect.name
    rows = _expired(connection, sorted(trains), ended_before, limit)
    if rows:
        given = document({"id": row.id, "external_id": row.external_id} for row in rows)
        connection.execute(_delete_entries(dialect), {"runs": given})
        connection.execute(_delete_runs(dialect), {"runs": given})
    return Counter(row.train for row in rows)


def _expired(connection: Connection, trains: Sequence[str], before: datetime, limit: int | None) -> list[Any]:
    """The oldest records of each train in turn, until there are enough.

    A question per train: each walks its own part of the index and stops. Asked for all trains at once,
    PostgreSQL reads the whole history, since most of it is as old as what is looked for.
    """
    rows: list[Any] = []
    for name in trains:
        room = None if limit is None else limit - len(rows)
        if room == 0:
            break
        query = ended_of(connection.dialect.name).limit(room)
        rows.extend(connection.execute(query, {"train": name, "before": before}).all())
    return rows


@cache
def ended_of(dialect: str) -> Select[Any, Any, Any]:
    """The records of one train that ended before a moment, oldest first, in the order of their index."""
    metadata = tables_for(dialect).metadata
    return (
        select(metadata.c.id, metadata.c.external_id, metadata.c.train)
        .where(metadata.c.train == bindparam("train"), metadata.c.ended_at < bindparam("before", type_=Utc))
        .order_by(metadata.c.ended_at)
    )


@cache
def _delete_entries(dialect: str) -> Delete:
    """The entry of a run shares its external id, which is indexed. One that waits for another try stays."""
    queue = tables_for(dialect).work_queue
    runs = _runs(dialect)
    led_there = select(queue.c.id).join(
        runs, (runs.c.external_id == queue.c.external_id) & (runs.c.id == queue.c.metadata_id)
    )
    return delete(queue).where(queue.c.id.in_(led_there))


@cache
def _delete_runs(dialect: str) -> Delete:
    metadata = tables_for(dialect).metadata
    return delete(metadata).where(metadata.c.id.in_(select(_runs(dialect).c.id)))


def _runs(dialect: str) -> Any:
    external_id = tables_for(dialect).metadata.c.external_id.type
    return rows_of(dialect, "runs", {"id": BigId, "external_id": external_id})
