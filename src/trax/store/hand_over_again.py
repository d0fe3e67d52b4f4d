"""Runs that somebody was to execute and nobody has begun: back to the outbox with them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Integer, bindparam, literal, select, text, update

from trax.records.states import QueueStatus
from trax.store.dialect import id_document, ids_of
from trax.store.metadata_sweeps import PENDING, waiting_elsewhere_since
from trax.store.schema import tables_for
from trax.store.types import Utc, word

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection, Update


def hand_over_again(
    connection: Connection, *, waiting_since: datetime, most: int, now: datetime
) -> list[int]:
    """Put runs that nobody began back to the outbox, unless that was done often enough; returns which.

    Each time counts as one of the `most` attempts of their entry to be dispatched. Whoever has such a run
    after all may still begin it: it moves the record then, and what is handed over once more finds nothing.
    """
    given = {"waiting_since": waiting_since, "most": most, "now": now}
    dialect = connection.dialect.name
    again = list(connection.execute(_give_back(dialect), given).scalars())
    if again:
        connection.execute(_count_attempt(dialect), {"ids": id_document(again)})
    return again


@cache
def _give_back(dialect: str) -> Update:
    """`handing_over_until` is the moment at which others may take a run; it is waited for from there on."""
    t = tables_for(dialect)
    run, entry = t.metadata, t.work_queue
    stale = waiting_elsewhere_since(run, bindparam("waiting_since", type_=Utc))
    may_go_again = (
        select(run.c.id)
        .join(entry, entry.c.external_id == run.c.external_id)
        .where(
            *stale,
            entry.c.metadata_id == run.c.id,
            entry.c.status == word(QueueStatus.DISPATCHED),
            entry.c.dispatch_attempts + literal(1, Integer) < bindparam("most", type_=Integer),
        )
    )
    return (
        update(run)
        .where(run.c.id.in_(may_go_again), text(PENDING))
        .values(submitted_at=None, handing_over_until=bindparam("now", type_=Utc))
        .returning(run.c.id)
    )


@cache
def _count_attempt(dialect: str) -> Update:
    t = tables_for(dialect)
    run, entry = t.metadata, t.work_queue
    given: Any = ids_of(dialect)
    names = select(run.c.external_id).join(given, given.c.id == run.c.id)
    attempts = entry.c.dispatch_attempts + literal(1, Integer)
    return update(entry).where(entry.c.external_id.in_(names)).values(dispatch_attempts=attempts)
