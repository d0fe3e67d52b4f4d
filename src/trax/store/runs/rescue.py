"""Find and end runs that timed out, were never started, or lost their worker; end suspended sessions."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import Float, bindparam, func, literal_column, or_, select, text, update

from trax.bounds import duration_within_bounds
from trax.events import Topic
from trax.records.states import CancelReason, State
from trax.store.announce import announce
from trax.store.dialect import (
    id_document,
    ids_of,
    is_sqlite,
    now_parameter,
    seconds_between,
    time_before_now,
)
from trax.store.engine import APPLICATION_NAME, NAME_SUFFIX
from trax.store.queue.parking import has_expired, has_unclaimed
from trax.store.schema import tables, tables_for
from trax.store.schema.define import SCHEMA
from trax.store.types import sql_literal, storable

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime, timedelta

    from sqlalchemy import ColumnElement, Connection, Select, Table, Update


IN_PROGRESS = "state = 'in_progress'"
PENDING = "state = 'pending'"


class ReapCause(NamedTuple):
    """Why a run is reaped: the failure columns that are written to it."""

    junction: str
    exception: str
    reason: str


class ReapedRun(NamedTuple):
    """A run that was reaped, with its manifest and cause."""

    metadata_id: int
    manifest_id: int | None
    external_id: str
    exception: str
    reason: str
    has_started: bool = True
    """Whether its code began; if not, it is no failure and its entry goes back to the queue."""


class MaintenanceNeeds(NamedTuple):
    """Which maintenance tasks have work; usually none."""

    timed_out: bool
    stale_pending: bool
    lost_workers: bool
    stale_priorities: bool
    """A changed group priority must be applied to its entries again."""
    unstartable: bool
    """Parked entries have expired, or admitted runs wait too long for a worker."""


def cancel_timed_out(connection: Connection, *, default: timedelta, now: datetime) -> list[int]:
    """Request cancellation of runs that exceed their timeout, counted from `started_at`."""
    parameters = {"now": now, "default_seconds": default.total_seconds()}
    late = [
        row.id
        for row in connection.execute(_select_timed_out(connection.dialect.name), parameters)
        if now - row.started_at > _timeout_of(row.timeout_seconds, default)
    ]
    return request_cancel(connection, late, CancelReason.TIMEOUT)


def request_cancel(
    connection: Connection, ids: Iterable[int], reason: CancelReason = CancelReason.REQUESTED
) -> list[int]:
    """Set `cancel_requested` on the runs in progress. Returns their ids."""
    ids = list(ids)
    if not ids:
        return []
    parameters = {"ids": id_document(ids), "reason": reason.value}
    requested = list(connection.execute(_request_cancel(connection.dialect.name), parameters).scalars())
    if requested:
        announce(connection, Topic.CANCEL)
    return requested


def fail_stale_pending(
    connection: Connection, cause: ReapCause, *, created_before: datetime, now: datetime
) -> list[ReapedRun]:
    """Fail runs that were handed to a submitter and never started. Runs for local workers never go stale."""
    is_stale = stale_remote_conditions(tables(connection).metadata, created_before)
    return _fail(connection, cause, *is_stale, now=now)


def fail_stale_in_progress(
    connection: Connection,
    cause: ReapCause,
    *,
    started_before: datetime,
    alive_since: datetime,
    now: datetime,
) -> list[ReapedRun]:
    """Fail runs that started long ago and have no live worker."""
    metadata = tables(connection).metadata
    is_old = metadata.c.started_at < started_before
    return _fail(
        connection,
        cause,
        text(IN_PROGRESS),
        is_old,
        _has_no_live_worker(connection.dialect.name, alive_since),
        now=now,
    )


def fail_runs_of_lost_workers(
    connection: Connection, cause: ReapCause, *, alive_since: datetime, now: datetime
) -> list[ReapedRun]:
    """Fail the runs of workers that missed their heartbeat. Runs of live workers are not changed."""
    metadata = tables(connection).metadata
    return _fail(
        connection,
        cause,
        text(IN_PROGRESS),
        metadata.c.worker_id.is_not(None),
        metadata.c.started_at.is_not(None),
        _has_no_live_worker(connection.dialect.name, alive_since),
        now=now,
    )


def release_claims_of_lost_workers(
    connection: Connection, cause: ReapCause, *, alive_since: datetime, now: datetime
) -> list[ReapedRun]:
    """End the runs that workers had claimed, and not begun, when they missed their heartbeat."""
    is_unstarted = tables(connection).metadata.c.started_at.is_(None)
    has_no_worker = _has_no_live_worker(connection.dialect.name, alive_since)
    conditions = (text(IN_PROGRESS), is_unstarted, has_no_worker)
    released = _fail(connection, cause, *conditions, now=now, state=State.CANCELLED)
    return [run._replace(has_started=False) for run in released]


def stale_remote_conditions(metadata: Table, moment: Any) -> tuple[ColumnElement[bool], ...]:
    """Match pending runs of remote submitters that have waited since before `moment`.

    The wait counts from the hand-over, else from the last postponed attempt, else from creation.
    """
    since = func.coalesce(metadata.c.submitted_at, metadata.c.handing_over_until, metadata.c.created_at)
    return (
        metadata.c.state == sql_literal(State.PENDING),
        metadata.c.submitter != literal_column("'local'"),
        since < moment,
    )


def _fail(
    connection: Connection,
    cause: ReapCause,
    *conditions: ColumnElement[bool] | Any,
    now: datetime,
    state: State = State.FAILED,
) -> list[ReapedRun]:
    metadata = tables(connection).metadata
    statement = (
        update(metadata)
        .where(*conditions)
        .values(
            state=state,
            ended_at=now,
            current_junction=None,
            junction_started_at=None,
            failure_junction=cause.junction,
            failure_exception=cause.exception,
            failure_reason=storable(cause.reason),
        )
        .returning(metadata.c.id, metadata.c.manifest_id, metadata.c.external_id)
    )
    rows = connection.execute(statement)
    return [
        ReapedRun(row.id, row.manifest_id, row.external_id, cause.exception, cause.reason) for row in rows
    ]


@cache
def _select_timed_out(dialect: str) -> Select[Any, Any, Any]:
    """Select runs past their timeout, or within one second of it: SQL interval arithmetic is not exact."""
    metadata = tables_for(dialect).metadata
    allowed = func.coalesce(metadata.c.timeout_seconds, bindparam("default_seconds", type_=Float))
    ran = seconds_between(dialect, metadata.c.started_at, now_parameter(dialect))
    return select(metadata.c.id, metadata.c.started_at, metadata.c.timeout_seconds).where(
        text(IN_PROGRESS), ~metadata.c.cancel_requested, ran > allowed - 1
    )


@cache
def select_maintenance_needs(dialect: str) -> Select[bool, bool, bool, bool, bool]:
    """Check for all tasks above at once."""
    t = tables_for(dialect)
    alive_since = time_before_now(dialect, "lost_after")
    stale = select(t.metadata.c.id).where(
        *stale_remote_conditions(t.metadata, time_before_now(dialect, "stale_after"))
    )
    orphaned = select(t.metadata.c.id).where(text(IN_PROGRESS), _has_no_live_worker(dialect, alive_since))
    silent_workers = select(t.worker.c.id).where(t.worker.c.heartbeat_at < alive_since)
    changed_groups = select(t.manifest_group.c.id).where(
        t.manifest_group.c.apply_priority_at <= now_parameter(dialect)
    )
    lost_workers = or_(orphaned.exists(), silent_workers.exists())
    unstartable = or_(has_expired(dialect, "unknown_after"), has_unclaimed(dialect, "lost_after"))
    return select(
        _select_timed_out(dialect).exists(),
        stale.exists(),
        lost_workers,
        changed_groups.exists(),
        unstartable,
    )


def _has_no_live_worker(dialect: str, alive_since: Any) -> ColumnElement[bool]:
    t = tables_for(dialect)
    live_worker = select(t.worker.c.id).where(
        t.worker.c.id == t.metadata.c.worker_id, t.worker.c.heartbeat_at >= alive_since
    )
    return ~live_worker.exists()


def _timeout_of(seconds: float | None, default: timedelta) -> timedelta:
    return default if seconds is None else duration_within_bounds(seconds)


@cache
def _request_cancel(dialect: str) -> Update:
    metadata = tables_for(dialect).metadata
    ids = ids_of(dialect)
    return (
        update(metadata)
        .where(
            metadata.c.id == ids.c.id,
            metadata.c.state == State.IN_PROGRESS.value,
            ~metadata.c.cancel_requested,
        )
        .values(cancel_requested=True, cancel_reason=bindparam("reason"))
        .returning(metadata.c.id)
    )


# Behind a pooler another program may use a connection that still has our name, so the name is not enough: the
# session must also hold a lock in our tables.
TERMINATE_IDLE: Final = text(
    f"""
    SELECT pg_terminate_backend(pid)
    FROM pg_stat_activity AS activity
    WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
      AND (application_name = :ours OR application_name LIKE '%' || :mark)
      AND state IN ('idle in transaction', 'idle in transaction (aborted)')
      AND state_change < clock_timestamp() - make_interval(secs => :seconds)
      AND EXISTS (
          SELECT FROM pg_locks AS held WHERE held.pid = activity.pid AND granted
          AND relation IN (SELECT oid FROM pg_class WHERE relnamespace = to_regnamespace('{SCHEMA}')))
    """  # noqa: S608 - constants of the code
)


def end_suspended(connection: Connection, *, idle_for: timedelta) -> int:
    """Terminate Trax sessions that have held locks, idle in a transaction, for `idle_for`. Returns how many.

    SQLite does not need this: it frees the locks of a dead process, and waits for a suspended one.
    """
    if is_sqlite(connection):
        return 0
    parameters = {"ours": APPLICATION_NAME, "mark": NAME_SUFFIX, "seconds": idle_for.total_seconds()}
    return sum(bool(terminated) for terminated in connection.execute(TERMINATE_IDLE, parameters).scalars())
