"""Runs that need attention: too long, never picked up, or left behind by whoever ran them."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import select, text, update

from trax.records.states import State
from trax.store.dialect import id_document, rows_of
from trax.store.schema import tables, tables_for
from trax.store.text import storable
from trax.store.types import BigId

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Update

IN_PROGRESS = "state = 'in_progress'"
PENDING = "state = 'pending'"


class Failure(NamedTuple):
    """Why a run is failed from outside: who found it, what it is called, and the reason in words."""

    junction: str
    exception: str
    reason: str


class Swept(NamedTuple):
    """A run that was failed from outside, and the manifest it belongs to."""

    metadata_id: int
    manifest_id: int | None
    external_id: str
    exception: str
    reason: str


def cancel_timed_out(connection: Connection, *, default: timedelta, now: datetime) -> list[int]:
    """Ask every run that takes longer than it may to stop. Time counts from the start of its execution."""
    metadata = tables(connection).metadata
    running = select(metadata.c.id, metadata.c.started_at, metadata.c.timeout_seconds).where(
        text(IN_PROGRESS), ~metadata.c.cancel_requested, metadata.c.started_at.is_not(None)
    )
    late = [
        row.id
        for row in connection.execute(running)
        if now - row.started_at > _allowed(row.timeout_seconds, default)
    ]
    return request_cancel(connection, late)


def request_cancel(connection: Connection, ids: Iterable[int]) -> list[int]:
    """Flag those of these runs that are in progress; returns which."""
    ids = list(ids)
    if not ids:
        return []
    wanted = id_document(ids)
    return list(connection.execute(_request_cancel(connection.dialect.name), {"ids": wanted}).scalars())


def fail_stale_pending(
    connection: Connection, why: Failure, *, created_before: datetime, now: datetime
) -> list[Swept]:
    """Fail what was handed to somebody else and never begun. What waits for our own workers is not stale."""
    metadata = tables(connection).metadata
    handed_over = text("submitter IS NOT NULL AND submitter <> 'local'")
    return _fail(connection, why, text(PENDING), metadata.c.created_at < created_before, handed_over, now=now)


def fail_stale_in_progress(
    connection: Connection, why: Failure, *, started_before: datetime, alive_since: datetime, now: datetime
) -> list[Swept]:
    """Fail what began long ago and is held by no worker that still beats."""
    metadata = tables(connection).metadata
    is_old = metadata.c.started_at < started_before
    return _fail(connection, why, text(IN_PROGRESS), is_old, _is_left(connection, alive_since), now=now)


def fail_left_behind(
    connection: Connection, why: Failure, *, alive_since: datetime, now: datetime
) -> list[Swept]:
    """Fail what a worker held that has stopped beating. A live worker's run is never touched."""
    held = tables(connection).metadata.c.worker_id.is_not(None)
    return _fail(connection, why, text(IN_PROGRESS), held, _is_left(connection, alive_since), now=now)


def _fail(
    connection: Connection, why: Failure, *conditions: ColumnElement[bool] | Any, now: datetime
) -> list[Swept]:
    metadata = tables(connection).metadata
    statement = (
        update(metadata)
        .where(*conditions)
        .values(
            state=State.FAILED,
            ended_at=now,
            current_junction=None,
            junction_started_at=None,
            failure_junction=why.junction,
            failure_exception=why.exception,
            failure_reason=storable(why.reason),
        )
        .returning(metadata.c.id, metadata.c.manifest_id, metadata.c.external_id)
    )
    rows = connection.execute(statement)
    return [Swept(row.id, row.manifest_id, row.external_id, why.exception, why.reason) for row in rows]


def _is_left(connection: Connection, alive_since: datetime) -> ColumnElement[bool]:
    t = tables(connection)
    beats = select(t.worker.c.id).where(
        t.worker.c.id == t.metadata.c.worker_id, t.worker.c.heartbeat_at >= alive_since
    )
    return ~beats.exists()


def _allowed(seconds: float | None, default: timedelta) -> timedelta:
    return default if seconds is None else timedelta(seconds=seconds)


@cache
def _request_cancel(dialect: str) -> Update:
    metadata = tables_for(dialect).metadata
    given = rows_of(dialect, "ids", {"id": BigId})
    return (
        update(metadata)
        .where(
            metadata.c.id == given.c.id,
            metadata.c.state == State.IN_PROGRESS.value,
            ~metadata.c.cancel_requested,
        )
        .values(cancel_requested=True)
        .returning(metadata.c.id)
    )
