"""What is measured from the database: bounded reads, for a monitor that asks every few seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import func, literal, select, text, union_all

from trax.records.gauges import Gauges, GroupQueue, RecentRun
from trax.records.status import COUNTED_TO
from trax.records.tally import Span, Sums
from trax.store.schema import tables
from trax.store.schema.work_queue import READY
from trax.store.types import word

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection, Select, Table

GROUPS_AT_MOST: Final = 100
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
    group = t.manifest_group.c
    named = connection.execute(select(group.id, group.name).order_by(group.id).limit(GROUPS_AT_MOST))
    names: dict[int | None, str] = {None: "", **{row.id: row.name for row in named}}
    parts = [_queue(t.work_queue, group_id, position) for position, group_id in enumerate(names)]
    rows = {row.position: row for row in connection.execute(union_all(*parts))}
    return [
        GroupQueue(name, rows[position].ready, rows[position].oldest_at)
        for position, name in enumerate(names.values())
    ]


def _queue(queue: Table, group_id: int | None, position: int) -> Select[int, int, Any]:
    since = func.coalesce(queue.c.scheduled_at, queue.c.created_at, type_=queue.c.created_at.type)
    waiting = (
        select(since.label("since"))
        .where(text(READY), queue.c.group_id.is_(None) if group_id is None else queue.c.group_id == group_id)
        .limit(COUNTED_TO)
        .subquery()
    )
    oldest = func.min(waiting.c.since, type_=queue.c.created_at.type)
    return select(
        literal(position).label("position"), func.count().label("ready"), oldest.label("oldest_at")
    ).select_from(waiting)


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
