"""Return submitted runs that were not started in time to the outbox."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Integer, bindparam, literal, select, text, update

from trax.records.states import QueueStatus
from trax.store.dialect import id_document, ids_of
from trax.store.metadata_sweeps import PENDING, stale_remote_conditions
from trax.store.schema import tables_for
from trax.store.types import Utc, sql_literal

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection, Update


def return_to_outbox(
    connection: Connection, *, waiting_since: datetime, max_attempts: int, now: datetime
) -> list[int]:
    """Return runs that were not started to the outbox, unless their attempts are used up; returns their ids.

    Each time counts as one dispatch attempt of the entry, up to the maximum. The first recipient may still
    start the run; then the second one finds that it is no longer pending.
    """
    parameters = {"waiting_since": waiting_since, "most": max_attempts, "now": now}
    dialect = connection.dialect.name
    returned = list(connection.execute(_return_to_outbox(dialect), parameters).scalars())
    if returned:
        connection.execute(_count_repeat(dialect), {"ids": id_document(returned)})
    return returned


@cache
def _return_to_outbox(dialect: str) -> Update:
    """`handing_over_until = now` makes the run available at once, and restarts its waiting time."""
    t = tables_for(dialect)
    run, entry = t.metadata, t.work_queue
    stale = stale_remote_conditions(run, bindparam("waiting_since", type_=Utc))
    has_attempts_left = (
        select(run.c.id)
        .join(entry, entry.c.external_id == run.c.external_id)
        .where(
            *stale,
            entry.c.metadata_id == run.c.id,
            entry.c.status == sql_literal(QueueStatus.DISPATCHED),
            entry.c.dispatch_attempts + literal(1, Integer) < bindparam("most", type_=Integer),
        )
    )
    return (
        update(run)
        .where(run.c.id.in_(has_attempts_left), text(PENDING))
        .values(submitted_at=None, handing_over_until=bindparam("now", type_=Utc))
        .returning(run.c.id)
    )


@cache
def _count_repeat(dialect: str) -> Update:
    t = tables_for(dialect)
    run, entry = t.metadata, t.work_queue
    wanted: Any = ids_of(dialect)
    names = select(run.c.external_id).join(wanted, wanted.c.id == run.c.id)
    attempts = entry.c.dispatch_attempts + literal(1, Integer)
    return update(entry).where(entry.c.external_id.in_(names)).values(dispatch_attempts=attempts)
