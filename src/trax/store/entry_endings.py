"""Find entries whose job has ended, with the last run of each."""

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


class EntryResult(NamedTuple):
    """An entry whose job has ended: `status` is None if the entry was deleted, `run` if it has no record."""

    entry_id: int
    status: str | None
    run: Metadata | None


def load_ended(connection: Connection, ids: Iterable[int]) -> list[EntryResult]:
    """The entries among `ids` whose job has ended, with the last run of each.

    A retry puts the entry back to queued in the transaction that ends the run, so a job between two runs is
    never reported as ended.
    """
    rows = list(connection.execute(_select_ended(connection.dialect.name), {"ids": id_document(ids)}))
    runs = metadata.load_by_ids(connection, [row.metadata_id for row in rows if row.metadata_id is not None])
    return [EntryResult(row.id, row.status, runs.get(row.metadata_id)) for row in rows]


@cache
def _select_ended(dialect: str) -> Select[Any, Any, Any]:
    t = tables_for(dialect)
    queue, run = t.work_queue, t.metadata
    wanted = ids_of(dialect)
    is_active = select(run.c.id).where(run.c.id == queue.c.metadata_id, text(ACTIVE)).exists()
    is_over = or_(
        queue.c.id.is_(None),
        queue.c.status == "cancelled",
        and_(queue.c.status == "dispatched", ~is_active),
    )
    joined = wanted.outerjoin(queue, queue.c.id == wanted.c.id)
    return select(wanted.c.id, queue.c.status, queue.c.metadata_id).select_from(joined).where(is_over)
