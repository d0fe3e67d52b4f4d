"""Claim runs by id, for a receiver of runs that were handed over by a submitter."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, select, text, update

from trax.records.states import State
from trax.store.claim import Claimed, claim_columns
from trax.store.dialect import among, id_document, ids_of
from trax.store.schema import tables, tables_for
from trax.store.types import BigId, Utc, sql_literal

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from sqlalchemy import Connection, Update


def trains_of(connection: Connection, metadata_ids: Iterable[int]) -> dict[int, str]:
    """Load the train of each run. A run that does not exist is left out."""
    metadata = tables(connection).metadata
    query = select(metadata.c.id, metadata.c.train).where(among(connection, metadata.c.id))
    return {row.id: row.train for row in connection.execute(query, {"ids": id_document(metadata_ids)})}


def claim_by_id(
    connection: Connection, metadata_ids: Iterable[int], *, worker_id: int, host: str, now: datetime
) -> list[Claimed]:
    """Claim the runs that are still pending for this worker; others have already been claimed or ended."""
    parameters: dict[str, Any] = {"worker_id": worker_id, "host": host, "now": now}
    rows = connection.execute(
        _claim_by_id(connection.dialect.name), {**parameters, "ids": id_document(sorted(metadata_ids))}
    )
    return sorted((Claimed(*row) for row in rows), key=lambda run: (-run.priority, run.metadata_id))


@cache
def _claim_by_id(dialect: str) -> Update:
    """Lock in the order of ids: two receivers with the same runs must not deadlock."""
    metadata = tables_for(dialect).metadata
    ids = ids_of(dialect)
    pending = (
        select(metadata.c.id)
        .where(metadata.c.id.in_(select(ids.c.id)), text("state = 'pending'"))
        .order_by(metadata.c.id)
        .with_for_update()
    )
    return (
        update(metadata)
        .where(metadata.c.id.in_(pending), text("state = 'pending'"))
        .values(
            state=sql_literal(State.IN_PROGRESS),
            worker_id=bindparam("worker_id", type_=BigId),
            host=bindparam("host"),
            started_at=bindparam("now", type_=Utc),
        )
        .returning(*claim_columns(dialect))
    )
