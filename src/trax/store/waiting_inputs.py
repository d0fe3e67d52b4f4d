"""Page through the inputs of queued entries and pending runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import literal, select

from trax.records.states import QueueStatus, State
from trax.store.dialect import allow_broad_plans, lift_limits
from trax.store.schema import tables
from trax.store.types import sql_literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection


class WaitingInput(NamedTuple):
    """A queued entry or pending run (`kind` is "entry" or "run"), with its input as JSON text."""

    kind: str
    id: int
    train: str
    input: str | None


def load_page(connection: Connection, *, after: WaitingInput | None, limit: int) -> Sequence[WaitingInput]:
    """Load the next page: first entries, then runs, each by id."""
    lift_limits(connection)
    allow_broad_plans(connection)
    entries = (
        [] if after is not None and after.kind == "run" else _load_page(connection, "entry", after, limit)
    )
    if len(entries) == limit:
        return entries
    last = after if after is not None and after.kind == "run" else None
    return [*entries, *_load_page(connection, "run", last, limit - len(entries))]


def _load_page(
    connection: Connection, kind: str, after: WaitingInput | None, limit: int
) -> list[WaitingInput]:
    t = tables(connection)
    table, is_waiting = (
        (t.work_queue, t.work_queue.c.status == sql_literal(QueueStatus.QUEUED))
        if kind == "entry"
        else (t.metadata, t.metadata.c.state == sql_literal(State.PENDING))
    )
    query = (
        select(literal(kind), table.c.id, table.c.train, table.c.input)
        .where(is_waiting, table.c.id > (after.id if after else 0))
        .order_by(table.c.id)
        .limit(limit)
    )
    return [WaitingInput(*row) for row in connection.execute(query)]
