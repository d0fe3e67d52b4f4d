"""Read the numbers of the live terminal view; once a second, so every part is a short index read."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from sqlalchemy import func, select, text

from trax.records.glance import LastFailure, LiveView, NextDue, RunningTrain
from trax.records.states import State
from trax.records.status import COUNT_LIMIT
from trax.store import status
from trax.store.schema import tables

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from trax.store.schema import Tables

MINUTE: Final = timedelta(minutes=1)
MAX_TRAINS: Final = 6
MAX_MANIFESTS: Final = 3


def read_live_view(
    connection: Connection, trains: Sequence[str], *, now: datetime, lost_after: timedelta
) -> LiveView:
    """Read the live view; runs that ended in the last minute are counted for these trains."""
    t = tables(connection)
    ended = _count_ended(connection, t, trains, since=now - MINUTE)
    return LiveView(
        status=status.load_status(connection, now=now, lost_after=lost_after),
        running=_active_trains(connection, t),
        completed=ended.get(State.COMPLETED, 0),
        failed=ended.get(State.FAILED, 0),
        next_due=_next_due(connection, t),
        last_failure=_last_failure(connection, t),
    )


def _active_trains(connection: Connection, t: Tables) -> tuple[RunningTrain, ...]:
    runs = (
        select(t.metadata.c.train, t.metadata.c.progress)
        .where(text("state = 'in_progress'"))
        .limit(COUNT_LIMIT)
        .subquery()
    )
    count = func.count()
    query = select(runs.c.train, count, func.max(runs.c.progress)).group_by(runs.c.train)
    rows = connection.execute(query.order_by(count.desc(), runs.c.train).limit(MAX_TRAINS))
    return tuple(RunningTrain(*row) for row in rows)


def _count_ended(
    connection: Connection, t: Tables, trains: Sequence[str], *, since: datetime
) -> dict[State, int]:
    """Count ended runs by state; the train names are needed for the index on (train, ended_at)."""
    metadata = t.metadata.c
    runs = (
        select(metadata.state)
        .where(metadata.train.in_(trains), metadata.ended_at >= since)
        .limit(COUNT_LIMIT)
        .subquery()
    )
    rows = connection.execute(select(runs.c.state, func.count()).group_by(runs.c.state))
    return {State(state): count for state, count in rows}


def _next_due(connection: Connection, t: Tables) -> tuple[NextDue, ...]:
    manifest = t.manifest.c
    query = select(manifest.external_id, manifest.next_due_at).where(manifest.next_due_at.is_not(None))
    rows = connection.execute(query.order_by(manifest.next_due_at).limit(MAX_MANIFESTS))
    return tuple(NextDue(*row) for row in rows)


def _last_failure(connection: Connection, t: Tables) -> LastFailure | None:
    metadata = t.metadata.c
    exception_name = func.coalesce(metadata.failure_exception, "")
    query = select(metadata.id, metadata.train, metadata.ended_at, exception_name, metadata.failure_reason)
    row = connection.execute(
        query.where(text("state = 'failed'")).order_by(metadata.id.desc()).limit(1)
    ).one_or_none()
    if row is None:
        return None
    metadata_id, train, at, exception, reason = row
    return LastFailure(metadata_id, train, at, f"{exception}: {reason}" if reason else exception)
