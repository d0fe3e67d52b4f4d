"""What somebody sees who keeps watching: asked once a second, so every part of it reads an index briefly."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from sqlalchemy import func, select, text

from trax.records.glance import Due, Failure, Glance, UnderWay
from trax.records.states import State
from trax.records.status import COUNTED_TO
from trax.store import status
from trax.store.schema import tables

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from trax.store.schema import Tables

MINUTE: Final = timedelta(minutes=1)
SHOWN_TRAINS: Final = 6
SHOWN_MANIFESTS: Final = 3


def read(connection: Connection, trains: Sequence[str], *, now: datetime, lost_after: timedelta) -> Glance:
    """How the whole stands; what ended in the last minute is counted for these trains."""
    t = tables(connection)
    ended = _ended(connection, t, trains, since=now - MINUTE)
    return Glance(
        status=status.read(connection, now=now, lost_after=lost_after),
        under_way=_under_way(connection, t),
        completed=ended.get(State.COMPLETED, 0),
        failed=ended.get(State.FAILED, 0),
        next_due=_next_due(connection, t),
        last_failure=_last_failure(connection, t),
    )


def _under_way(connection: Connection, t: Tables) -> tuple[UnderWay, ...]:
    runs = (
        select(t.metadata.c.train, t.metadata.c.progress)
        .where(text("state = 'in_progress'"))
        .limit(COUNTED_TO)
        .subquery()
    )
    count = func.count()
    query = select(runs.c.train, count, func.max(runs.c.progress)).group_by(runs.c.train)
    rows = connection.execute(query.order_by(count.desc(), runs.c.train).limit(SHOWN_TRAINS))
    return tuple(UnderWay(*row) for row in rows)


def _ended(connection: Connection, t: Tables, trains: Sequence[str], *, since: datetime) -> dict[State, int]:
    """By the index of a train's endings, which is why they are named."""
    metadata = t.metadata.c
    runs = (
        select(metadata.state)
        .where(metadata.train.in_(trains), metadata.ended_at >= since)
        .limit(COUNTED_TO)
        .subquery()
    )
    rows = connection.execute(select(runs.c.state, func.count()).group_by(runs.c.state))
    return {State(state): count for state, count in rows}


def _next_due(connection: Connection, t: Tables) -> tuple[Due, ...]:
    manifest = t.manifest.c
    query = select(manifest.external_id, manifest.next_due_at).where(manifest.next_due_at.is_not(None))
    rows = connection.execute(query.order_by(manifest.next_due_at).limit(SHOWN_MANIFESTS))
    return tuple(Due(*row) for row in rows)


def _last_failure(connection: Connection, t: Tables) -> Failure | None:
    metadata = t.metadata.c
    what = func.coalesce(metadata.failure_exception, "")
    query = select(metadata.id, metadata.train, metadata.ended_at, what, metadata.failure_reason)
    row = connection.execute(
        query.where(text("state = 'failed'")).order_by(metadata.id.desc()).limit(1)
    ).one_or_none()
    if row is None:
        return None
    metadata_id, train, at, exception, reason = row
    return Failure(metadata_id, train, at, f"{exception}: {reason}" if reason else exception)
