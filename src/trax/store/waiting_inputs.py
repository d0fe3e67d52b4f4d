"""The inputs of everything that waits to run, in pages: entries in the queue, and runs nobody has begun."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import literal, select

from trax.records.states import QueueStatus, State
from trax.store.dialect import lift_limits, plan_freely
from trax.store.schema import tables
from trax.store.types import word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection


class Waiting(NamedTuple):
    """Something that waits: `entry 7` or `run 12`, its train, and its input as JSON text."""

    kind: str
    id: int
    train: str
    input: str | None


def page(connection: Connection, *, after: Waiting | None, limit: int) -> Sequence[Waiting]:
    """The next of them: first the entries, then the runs, each in the order of their ids."""
    lift_limits(connection)
    plan_freely(connection)
    entries = [] if after is not None and after.kind == "run" else _page(connection, "entry", after, limit)
    if len(entries) == limit:
        return entries
    last = after if after is not None and after.kind == "run" else None
    return [*entries, *_page(connection, "run", last, limit - len(entries))]


def _page(connection: Connection, kind: str, after: Waiting | None, limit: int) -> list[Waiting]:
    t = tables(connection)
    table, waits = (
        (t.work_queue, t.work_queue.c.status == word(QueueStatus.QUEUED))
        if kind == "entry"
        else (t.metadata, t.metadata.c.state == word(State.PENDING))
    )
    query = (
        select(literal(kind), table.c.id, table.c.train, table.c.input)
        .where(waits, table.c.id > (after.id if after else 0))
        .order_by(table.c.id)
        .limit(limit)
    )
    return [Waiting(*row) for row in connection.execute(query)]
