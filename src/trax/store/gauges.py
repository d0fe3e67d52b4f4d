"""Read gauges for monitoring from the database; bounded reads, cheap enough for every few seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Integer, func, literal, select, text

from trax.bounds import PRIORITY_MAX
from trax.records.gauges import Gauges, GroupQueue, RecentRun
from trax.records.status import COUNT_LIMIT
from trax.records.tally import RunTotals, Span
from trax.store.dialect import document, rows_of
from trax.store.schema import tables
from trax.store.schema.work_queue import READY
from trax.store.types import sql_literal

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, FromClause, ScalarSelect

MAX_GROUPS: Final = 100
MAX_ENTRIES: Final = 100_000
"""How many entries are counted over all groups: with 100 groups, about 1000 of each."""
RECENT_RUNS: Final = 1000


def load_gauges(connection: Connection, *, now: datetime, tallied_to: datetime | None) -> Gauges:
    """Read all gauges; `tallied_to` is where the last read of totals ended, so none is counted twice."""
    newest = _newest_minute(connection)
    return Gauges(
        now=now,
        queues=tuple(_queues(connection)),
        recent=tuple(_recent_runs(connection)),
        ended=tuple(_totals_since(connection, tallied_to)),
        tallied_to=newest,
    )


def _queues(connection: Connection) -> list[GroupQueue]:
    """Count each group separately by index, so that a flooded group does not use up the bound of another."""
    t = tables(connection)
    group, queue = t.manifest_group.c, t.work_queue
    named = select(group.id, group.name).order_by(group.id).limit(MAX_GROUPS).subquery("named")
    groups = connection.execute(select(func.count()).select_from(named)).scalar_one()
    bound = min(COUNT_LIMIT, MAX_ENTRIES // (groups + 1))
    in_none, in_group = queue.c.group_id.is_(None), queue.c.group_id == named.c.id
    none = select(literal(""), *_queue_length_and_age(connection, in_none, bound))
    each = select(named.c.name, *_queue_length_and_age(connection, in_group, bound, named)).order_by(
        named.c.id
    )
    parameters = {"priorities": document({"number": number} for number in range(PRIORITY_MAX + 1))}
    return [GroupQueue(*row) for query in (none, each) for row in connection.execute(query, parameters)]


def _queue_length_and_age(
    connection: Connection, in_group: ColumnElement[bool], limit: int, *correlated: FromClause
) -> tuple[ScalarSelect[int], ScalarSelect[Any]]:
    """Count the ready entries of a group, and find the oldest: the first of each priority is read."""
    queue = tables(connection).work_queue
    priorities = rows_of(connection.dialect.name, "priorities", {"number": Integer()})
    moment = queue.c.created_at.type
    ready = (
        select(queue.c.group_id).where(text(READY), in_group).limit(limit).correlate(*correlated).subquery()
    )
    first = (
        select(func.coalesce(queue.c.scheduled_at, queue.c.created_at, type_=moment))
        .where(text(READY), in_group, queue.c.priority == priorities.c.number)
        .order_by(queue.c.created_at, queue.c.id)
        .limit(1)
        .correlate(priorities, *correlated)
        .scalar_subquery()
    )
    oldest = select(func.min(first, type_=moment)).select_from(priorities)
    return select(func.count()).select_from(ready).scalar_subquery(), oldest.scalar_subquery()


def _recent_runs(connection: Connection) -> list[RecentRun]:
    run = tables(connection).metadata.c
    columns = (run.train, run.state, run.created_at, run.started_at, run.ended_at)
    rows = connection.execute(select(*columns).order_by(run.id.desc()).limit(RECENT_RUNS))
    return [
        RecentRun(
            row.train,
            row.state,
            _seconds(row.created_at, row.started_at),
            _seconds(row.started_at, row.ended_at),
        )
        for row in rows
    ]


def _totals_since(connection: Connection, after: datetime | None) -> list[tuple[str, RunTotals]]:
    """The totals of the minutes since; none at the first read, which only finds the starting point."""
    if after is None:
        return []
    tally = tables(connection).tally.c
    columns = (tally.train, tally.completed, tally.failed, tally.cancelled, tally.seconds)
    rows = connection.execute(
        select(*columns).where(tally.span == sql_literal(Span.MINUTE), tally.at > after)
    )
    return [(train, RunTotals(*sums)) for train, *sums in rows]


def _newest_minute(connection: Connection) -> datetime | None:
    tally = tables(connection).tally.c
    newest = select(func.max(tally.at, type_=tally.at.type)).where(tally.span == sql_literal(Span.MINUTE))
    return connection.execute(newest).scalar()


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else max(0.0, (end - start).total_seconds())
