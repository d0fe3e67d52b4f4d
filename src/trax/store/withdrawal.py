"""Taking entries back that have not passed the gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import select, text, update

from trax.records.states import QueueStatus
from trax.store.dialect import among, id_document
from trax.store.schema import tables
from trax.store.schema.work_queue import QUEUED
from trax.store.types import word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection


class Withdrawn(NamedTuple):
    """An entry that was taken back."""

    id: int
    manifest_id: int | None
    attempt: int
    origin: str


def manifests_of(connection: Connection, ids: Sequence[int]) -> list[int]:
    """The manifests of those of these entries that are queued."""
    queue = tables(connection).work_queue
    query = select(queue.c.manifest_id).distinct()
    query = query.where(among(connection, queue.c.id), text(QUEUED), queue.c.manifest_id.is_not(None))
    return list(connection.execute(query, {"ids": id_document(ids)}).scalars())


def withdraw(connection: Connection, ids: Sequence[int]) -> list[Withdrawn]:
    """Cancel those of these entries that are queued; returns those."""
    queue = tables(connection).work_queue
    statement = (
        update(queue)
        .where(among(connection, queue.c.id), text(QUEUED))
        .values(status=word(QueueStatus.CANCELLED))
        .returning(*(queue.c[name] for name in Withdrawn._fields))
    )
    return [Withdrawn(*row) for row in connection.execute(statement, {"ids": id_document(ids)})]
