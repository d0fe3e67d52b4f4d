"""Cancel queued entries, before they are dispatched."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import select, text, update

from trax.records.states import QueueStatus
from trax.store.dialect import among, id_document
from trax.store.schema import tables
from trax.store.schema.work_queue import QUEUED
from trax.store.types import sql_literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection


class WithdrawnEntry(NamedTuple):
    """A queued entry that was cancelled."""

    id: int
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
