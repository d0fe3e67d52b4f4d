"""Whether the jobs that entries stand for are over."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import and_, or_, select, text

from trax.store import metadata
from trax.store.dialect import id_document, ids_of
from trax.store.schema import tables_for
from trax.store.schema.metadata import ACTIVE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection, Select

    from trax.records import Metadata


class EntryEnd(NamedTuple):
    """An entry whose job is over: `status` is None when the entry is gone, `run` when there is no record."""

    entry_id: int
    status: str | None
    run: Metadata | None


def ended(connection: Connection, ids: Iterable[int]) -> list[EntryEnd]:
    """Those of these entries whose job is over, with the last run of each.

    What is tried again goes back to the queue in the moment its run ends, so a job between two runs is never
    taken for one that is over.
    """
    rows = list(connection.execute(_ended(connection.dialect.name), {"ids": id_document(ids)}))
    runs = metadata.of_ids(connection, [row.metadata_id for row in rows if row.metadata_id is not None])
    return [EntryEnd(row.id, row.status, runs.get(row.metadata_id)) for row in rows]


@cache
def _ended(dialect: str) -> Select[Any, Any, Any]:
    t = tables_for(dialect)
    queue, run = t.work_queue, t.metadata
    given = ids_of(dialect)
    is_active = select(run.c.id).where(run.c.id == queue.c.metadata_id, text(ACTIVE)).exists()
    is_over = or_(
        queue.c.id.is_(None),
        queue.c.status == "cancelled",
        and_(queue.c.status == "dispatched", ~is_active),
    )
    joined = given.outerjoin(queue, queue.c.id == given.c.id)
    return select(given.c.id, queue.c.status, queue.c.metadata_id).select_from(joined).where(is_over)
