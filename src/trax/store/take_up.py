"""Runs taken up by their ids: the step from a submitter to whoever executes what it was handed."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, select, text, update

from trax.records.states import State
from trax.store.claim import Claimed, held_columns
from trax.store.dialect import among, id_document, ids_of
from trax.store.schema import tables, tables_for
from trax.store.types import BigId, Utc, word

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from sqlalchemy import Connection, Update


def trains_of(connection: Connection, metadata_ids: Iterable[int]) -> dict[int, str]:
    """Which train each of these runs is of; a run that does not exist is left out."""
    metadata = tables(connection).metadata
    query = select(metadata.c.id, metadata.c.train).where(among(connection, metadata.c.id))
    return {row.id: row.train for row in connection.execute(query, {"ids": id_document(metadata_ids)})}


def take_up(
    connection: Connection, metadata_ids: Iterable[int], *, worker_id: int, host: str, now: datetime
) -> list[Claimed]:
    """Move these runs to this worker, except those that are not pending any more: somebody else has them."""
    given: dict[str, Any] = {"worker_id": worker_id, "host": host, "now": now}
    rows = connection.execute(
        _take_up(connection.dialect.name), {**given, "ids": id_document(sorted(metadata_ids))}
    )
    return sorted((Claimed(*row) for row in rows), key=lambda run: (-run.priority, run.metadata_id))


@cache
def _take_up(dialect: str) -> Update:
    """Locked in the order of their ids: two that are handed the same runs must not wait for each other."""
    metadata = tables_for(dialect).metadata
    given = ids_of(dialect)
    wanted = (
        select(metadata.c.id)
        .where(metadata.c.id.in_(select(given.c.id)), text("state = 'pending'"))
        .order_by(metadata.c.id)
        .with_for_update()
    )
    return (
        update(metadata)
        .where(metadata.c.id.in_(wanted), text("state = 'pending'"))
        .values(
            state=word(State.IN_PROGRESS),
            worker_id=bindparam("worker_id", type_=BigId),
            host=bindparam("host"),
            started_at=bindparam("now", type_=Utc),
        )
        .returning(*held_columns(dialect))
    )
