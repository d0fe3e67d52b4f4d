"""Runs that need attention: too long, never picked up, or left behind by whoever ran them."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Float, bindparam, func, literal_column, or_, select, text, update

from trax.events import Topic
from trax.records.states import CancelReason, State
from trax.store.announcing import announce
from trax.store.dialect import id_document, ids_of, moment, seconds_between, so_long_before, span_before
from trax.store.parking import has_expired, has_stranded
from trax.store.schema import tables, tables_for
from trax.store.text import storable
from trax.store.types import word

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Select, Table, Update

    from trax.store.pipeline import Step

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


class Trouble(NamedTuple):
    """What there is to attend to: most of the time, nothing."""

    timed_out: bool
    stale_pending: bool
    left_behind: bool
    stale_priorities: bool
    """A group's new priority is to be applied once more."""
    unstartable: bool
    """Entries have waited too long for a worker that takes them, or runs that were let in do."""


def looking_for_trouble(
    dialect: str,
    *,
    default: timedelta,
    stale_after: timedelta,
    lost_after: timedelta,
    unknown_after: timedelta,
    now: datetime | None,
) -> Step:
    """The step that tells, in one trip with other questions, whether any of the sweeps below has work."""
    given = {
        "now": now,
        "default_seconds": default.total_seconds(),
        "stale_after": span_before(dialect, now, stale_after),
        "lost_after": span_before(dialect, now, lost_after),
        "unknown_after": span_before(dialect, now, unknown_after),
    }
    return _trouble(dialect), given


def cancel_timed_out(connection: Connection, *, default: timedelta, now: datetime) -> list[int]:
    """Ask every run that takes longer than it may to stop. Time counts from the start of its execution."""
    given = {"now": now, "default_seconds": default.total_seconds()}
    late = [
        row.id
        for row in connection.execute(_nearly_timed_out(connection.dialect.name), given)
        if now - row.started_at > _allowed(row.timeout_seconds, default)
    ]
    return request_cancel(connection, late, CancelReason.TIMEOUT)


def request_cancel(
    connection: Connection, ids: Iterable[int], reason: CancelReason = CancelReason.REQUESTED
) -> list[int]:
    """Flag those of these runs that are in progress; returns which."""
    ids = list(ids)
    if not ids:
        return []
    given = {"ids": id_document(ids), "reason": reason.value}
    asked = list(connection.execute(_request_cancel(connection.dialect.name), given).scalars())
    if asked:
        announce(connection, Topic.CANCEL)
    return asked


def fail_stale_pending(
    connection: Connection, why: Failure, *, created_before: datetime, now: datetime
) -> list[Swept]:
    """Fail what was handed to somebody else and never begun. What waits for our own workers is not stale."""
    is_stale = waiting_elsewhere_since(tables(connection).metadata, created_before)
    return _fail(connection, why, *is_stale, now=now)


def fail_stale_in_progress(
    connection: Connection, why: Failure, *, started_before: datetime, alive_since: datetime, now: datetime
) -> list[Swept]:
    """Fail what began long ago and is held by no worker that still beats."""
    metadata = tables(connection).metadata
    is_old = metadata.c.started_at < started_before
    return _fail(
        connection, why, text(IN_PROGRESS), is_old, _is_left(connection.dialect.name, alive_since), now=now
    )


def fail_left_behind(
    connection: Connection, why: Failure, *, alive_since: datetime, now: datetime
) -> list[Swept]:
    """Fail what a worker held that has stopped beating. A live worker's run is never touched."""
    held = tables(connection).metadata.c.worker_id.is_not(None)
    return _fail(
        connection, why, text(IN_PROGRESS), held, _is_left(connection.dialect.name, alive_since), now=now
    )


def waiting_elsewhere_since(metadata: Table, moment: Any) -> tuple[ColumnElement[bool], ...]:
    """Runs that others are to execute, and that have waited for it since before this moment.

    Time counts from when they were handed over, else from when that was last put off, else from the start.
    """
    since = func.coalesce(metadata.c.submitted_at, metadata.c.handing_over_until, metadata.c.created_at)
    return (
        metadata.c.state == word(State.PENDING),
        metadata.c.submitter != literal_column("'local'"),
        since < moment,
    )


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


@cache
def _nearly_timed_out(dialect: str) -> Select[Any, Any, Any]:
    """Those whose time is up, or will be in a second: the database's arithmetic is not exact enough."""
    metadata = tables_for(dialect).metadata
    allowed = func.coalesce(metadata.c.timeout_seconds, bindparam("default_seconds", type_=Float))
    ran = seconds_between(dialect, metadata.c.started_at, moment(dialect))
    return select(metadata.c.id, metadata.c.started_at, metadata.c.timeout_seconds).where(
        text(IN_PROGRESS), ~metadata.c.cancel_requested, ran > allowed - 1
    )


@cache
def _trouble(dialect: str) -> Select[bool, bool, bool, bool, bool]:
    t = tables_for(dialect)
    alive_since = so_long_before(dialect, "lost_after")
    stale = select(t.metadata.c.id).where(
        *waiting_elsewhere_since(t.metadata, so_long_before(dialect, "stale_after"))
    )
    left = select(t.metadata.c.id).where(text(IN_PROGRESS), _is_left(dialect, alive_since))
    silent = select(t.worker.c.id).where(t.worker.c.heartbeat_at < alive_since)
    changed = select(t.manifest_group.c.id).where(t.manifest_group.c.apply_priority_at <= moment(dialect))
    left_behind = or_(left.exists(), silent.exists())
    unstartable = or_(has_expired(dialect, "unknown_after"), has_stranded(dialect, "lost_after"))
    return select(
        _nearly_timed_out(dialect).exists(), stale.exists(), left_behind, changed.exists(), unstartable
    )


def _is_left(dialect: str, alive_since: Any) -> ColumnElement[bool]:
    t = tables_for(dialect)
    beats = select(t.worker.c.id).where(
        t.worker.c.id == t.metadata.c.worker_id, t.worker.c.heartbeat_at >= alive_since
    )
    return ~beats.exists()


def _allowed(seconds: float | None, default: timedelta) -> timedelta:
    return default if seconds is None else timedelta(seconds=seconds)


@cache
def _request_cancel(dialect: str) -> Update:
    metadata = tables_for(dialect).metadata
    given = ids_of(dialect)
    return (
        update(metadata)
        .where(
            metadata.c.id == given.c.id,
            metadata.c.state == State.IN_PROGRESS.value,
            ~metadata.c.cancel_requested,
        )
        .values(cancel_requested=True, cancel_reason=bindparam("reason"))
        .returning(metadata.c.id)
    )
