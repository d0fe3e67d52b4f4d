"""What is measured from the database: bounded reads, for a monitor that asks every few seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Integer, func, literal, select, text

from trax.bounds import PRIORITY_MAX
from trax.records.gauges import Gauges, GroupQueue, RecentRun
from trax.records.status import COUNTED_TO
from trax.records.tally import Span, Sums
from trax.store.dialect import document, rows_of
from trax.store.schema import tables
from trax.store.schema.work_queue import READY
from trax.store.types import word

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, FromClause, ScalarSelect

GROUPS_AT_MOST: Final = 100
COUNTED_IN_ALL: Final = 100_000
"""How many entries are counted, over all groups: of a hundred groups, each is counted to a thousand."""
RECENT_RUNS: Final = 1000


def read(connection: Connection, *, now: datetime, tallied_to: datetime | None) -> Gauges:
    """`tallied_to` is how far the last look came, so that nothing is counted twice."""
    newest = _newest_minute(connection)
    return Gauges(
        now=now,
        queues=tuple(_queues(connection)),
        recent=tuple(_recent(connection)),
        ended=tuple(_ended(connection, tallied_to)),
        tallied_to=newest,
    )


def _queues(connection: Connection) -> list[GroupQueue]:
    """Each group by itself, along the index within it: a flooded one hides no other."""
    t = tables(connection)
    group, queue = t.manifest_group.c, t.work_queue
    named = select(group.id, group.name).order_by(group.id).limit(GROUPS_AT_MOST).subquery("named")
    groups = connection.execute(select(func.count()).select_from(named)).scalar_one()
    most = min(COUNTED_TO, COUNTED_IN_ALL // (groups + 1))
    in_none, in_group = queue.c.group_id.is_(None), queue.c.group_id == named.c.id
    none = select(literal(""), *_waiting(connection, in_none, most))
    each = select(named.c.name, *_waiting(connection, in_group, most, named)).order_by(named.c.id)
    given = {"priorities": document({"number": number} for number in range(PRIORITY_MAX + 1))}
    return [GroupQueue(*row) for query in (none, each) for row in connection.execute(query, given)]


def _waiting(
    connection: Connection, is_in: ColumnElement[bool], most: int, *of: FromClause
) -> tuple[ScalarSelect[int], ScalarSelect[Any]]:
    """How many wait in a group, and since when: of each priority the one that is next is looked at."""
    queue = tables(connection).work_queue
    priorities = rows_of(connection.dialect.name, "priorities", {"number": Integer()})
    moment = queue.c.created_at.type
    ready = select(queue.c.group_id).where(text(READY), is_in).limit(most).correlate(*of).subquery()
    first = (
        select(func.coalesce(queue.c.scheduled_at, queue.c.created_at, type_=moment))
        .where(text(READY), is_in, queue.c.priority == priorities.c.number)
        .order_by(queue.c.created_at, queue.c.id)
        .limit(1)
        .correlate(priorities, *of)
        .scalar_subquery()
    )
    oldest = select(func.min(first, type_=moment)).select_from(priorities)
    return select(func.count()).select_from(ready).scalar_subquery(), oldest.scalar_subquery()


def _recent(connection: Connection) -> list[RecentRun]:
    run = tables(connection).metadata.c
    told = (run.train, run.state, run.created_at, run.started_at, run.ended_at)
    rows = connection.execute(select(*told).order_by(run.id.desc()).limit(RECENT_RUNS))
    return [
        RecentRun(
            row.train,
            row.state,
            _seconds(row.created_at, row.started_at),
            _seconds(row.started_at, row.ended_at),
        )
        for row in rows
    ]


def _ended(connection: Connection, after: datetime | None) -> list[tuple[str, Sums]]:
    """The minutes that were added up since; none at the first look, which only finds where to begin."""
    if after is None:
        return []
    tally = tables(connection).tally.c
    told = (tally.train, tally.completed, tally.failed, tally.cancelled, tally.seconds)
    rows = connection.execute(select(*told).where(tally.span == word(Span.MINUTE), tally.at > after))
    return [(train, Sums(*sums)) for train, *sums in rows]


def _newest_minute(connection: Connection) -> datetime | None:
    tally = tables(connection).tally.c
    newest = select(func.max(tally.at, type_=tally.at.type)).where(tally.span == word(Span.MINUTE))
    return connection.execute(newest).scalar()


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else max(0.0, (end - start).total_seconds())
