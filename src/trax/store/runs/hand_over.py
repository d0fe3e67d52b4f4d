"""The outbox: pending runs of remote submitters, until they are submitted or fail to be.

A server reserves a run for a limited time before it calls the submitter, so that no two servers submit the
same run. If the reservation expires without a result, that server is gone, and another one reserves the run.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Integer, Text, and_, bindparam, func, literal, select, text, update

from trax.records.states import QueueStatus, State
from trax.store.dialect import among, document, id_document, ids_of, rows_of
from trax.store.groups import priority_now
from trax.store.manifests.manifest_rows import lock
from trax.store.runs.rescue import PENDING, stale_remote_conditions
from trax.store.schema import tables_for
from trax.store.schema.metadata import OUTBOX
from trax.store.types import BigId, Utc, sql_literal, storable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Column, Connection, Row, Select, Table, Update


class OutboxRun(NamedTuple):
    """A run of the outbox that this server may submit. `input` is JSON text."""

    metadata_id: int
    external_id: str
    train: str
    input: str | None
    priority: int
    attempt: int


class FailedHandOver(NamedTuple):
    """A run that no submitter accepted, and why."""

    metadata_id: int
    failure_exception: str
    failure_reason: str
    stack_trace: str | None = None


def reserve(
    connection: Connection, *, submitter: str, limit: int, until: datetime, now: datetime
) -> list[OutboxRun]:
    """Reserve runs of this submitter until a time, by priority and then age."""
    parameters = {"to": submitter, "most": limit, "until": until, "now": now}
    reserved = [OutboxRun(*row) for row in connection.execute(_reserve(connection.dialect.name), parameters)]
    return sorted(reserved, key=lambda run: (-run.priority, run.metadata_id))


def mark_submitted(connection: Connection, metadata_ids: Sequence[int], *, now: datetime) -> None:
    """Record that these runs were submitted. They may have started or ended meanwhile."""
    if metadata_ids:
        parameters = {"ids": id_document(metadata_ids), "now": now}
        connection.execute(_mark_submitted(connection.dialect.name), parameters)


def fail(
    connection: Connection,
    failures: Sequence[FailedHandOver],
    *,
    junction: str,
    until: datetime,
    now: datetime,
) -> list[Row[Any]]:
    """Fail runs that no submitter accepted, if this server still has them reserved; returns them.

    A run that started nevertheless, or that another server has reserved since, is not changed. The manifests
    stay locked, so that the manager inserts no entry while theirs go back to the queue.
    """
    rows = document(
        failure._asdict()
        | {"failure_reason": storable(failure.failure_reason), "stack_trace": storable(failure.stack_trace)}
        for failure in failures
    )
    parameters = {"rows": rows, "until": until, "now": now, "junction": junction}
    failed = list(connection.execute(_fail(connection.dialect.name), parameters))
    lock(connection, {run.manifest_id for run in failed if run.manifest_id is not None})
    return failed


def load_withdrawable(connection: Connection, ids: Sequence[int], submitter: str) -> list[OutboxRun]:
    """The runs among `ids` that were submitted to this submitter and ended before they started."""
    metadata = tables_for(connection.dialect.name).metadata
    query = select(*_outbox_columns(metadata)).where(
        among(connection, metadata.c.id),
        metadata.c.submitter == submitter,
        metadata.c.submitted_at.is_not(None),
        metadata.c.started_at.is_(None),
        metadata.c.ended_at.is_not(None),
    )
    return [OutboxRun(*row) for row in connection.execute(query, {"ids": id_document(ids)})]


def entries_of(connection: Connection, metadata_ids: Iterable[int]) -> list[Row[Any]]:
    """Lock and load the entries of these runs; without entries cancelled meanwhile."""
    return list(connection.execute(_entries_of(connection.dialect.name), {"ids": id_document(metadata_ids)}))


def put_back(connection: Connection, moments: Mapping[int, datetime]) -> None:
    """Queue these entries again, each at its time, and count the dispatch attempt.

    The group priority is read again, since it may have changed.
    """
    rows = document({"id": entry_id, "scheduled_at": moment} for entry_id, moment in moments.items())
    connection.execute(_put_back(connection.dialect.name), {"rows": rows})


def supersede(connection: Connection, entry_ids: Iterable[int]) -> None:
    """Cancel entries that another entry has replaced meanwhile."""
    connection.execute(_supersede(connection.dialect.name), {"ids": id_document(entry_ids)})


def count_attempt(connection: Connection, entry_ids: Iterable[int]) -> None:
    """Count the last dispatch attempt of entries that are given up; nothing else changes."""
    connection.execute(_count_attempt(connection.dialect.name), {"ids": id_document(entry_ids)})


def give_up_manifests(
    connection: Connection, reasons: Mapping[int, tuple[str, int | None]], *, now: datetime
) -> None:
    """Mark manifests, locked by the caller, as given up (reason, run): the manager dead-letters them."""
    rows = document(
        {"id": manifest_id, "reason": storable(reason), "run": run}
        for manifest_id, (reason, run) in reasons.items()
    )
    connection.execute(_give_up_manifests(connection.dialect.name), {"rows": rows, "now": now})


@cache
def _reserve(dialect: str) -> Update:
    metadata = tables_for(dialect).metadata
    now = bindparam("now", type_=Utc)
    available = (
        select(metadata.c.id)
        .where(
            text(OUTBOX),
            metadata.c.submitter == bindparam("to"),
            metadata.c.handing_over_until.is_(None) | (metadata.c.handing_over_until <= now),
        )
        .order_by(metadata.c.priority.desc(), metadata.c.id)
        .limit(bindparam("most"))
        .with_for_update(skip_locked=True)
    )
    return (
        update(metadata)
        .where(metadata.c.id.in_(available))
        .values(handing_over_until=bindparam("until", type_=Utc))
        .returning(*_outbox_columns(metadata))
    )


def _outbox_columns(metadata: Table) -> list[Column[Any]]:
    return [metadata.c[name] for name in ("id", *OutboxRun._fields[1:])]


@cache
def _mark_submitted(dialect: str) -> Update:
    metadata = tables_for(dialect).metadata
    wanted = ids_of(dialect)
    return (
        update(metadata)
        .where(metadata.c.id == wanted.c.id, metadata.c.submitted_at.is_(None))
        .values(submitted_at=bindparam("now", type_=Utc), handing_over_until=None)
    )


@cache
def _fail(dialect: str) -> Update:
    metadata = tables_for(dialect).metadata
    failure_columns = {name: metadata.c[name].type for name in FailedHandOver._fields[1:]}
    failures = rows_of(dialect, "rows", {"metadata_id": BigId} | failure_columns)
    is_reserved_here = metadata.c.handing_over_until == bindparam("until", type_=Utc)
    return (
        update(metadata)
        .where(
            metadata.c.id == failures.c.metadata_id,
            func.coalesce(and_(text(OUTBOX), is_reserved_here), False),
        )
        .values(
            state=sql_literal(State.FAILED),
            ended_at=bindparam("now", type_=Utc),
            handing_over_until=None,
            failure_junction=bindparam("junction", type_=Text),
            **{name: failures.c[name] for name in failure_columns},
        )
        .returning(metadata.c.id, metadata.c.manifest_id)
    )


@cache
def _entries_of(dialect: str) -> Select[Any]:
    queue, run, wanted = tables_for(dialect).work_queue, tables_for(dialect).metadata, ids_of(dialect)
    return (
        select(queue)
        .join(run, run.c.entry_id == queue.c.id)
        .join(wanted, wanted.c.id == run.c.id)
        .where(queue.c.status == sql_literal(QueueStatus.DISPATCHED))
        .order_by(queue.c.id)
        .with_for_update(of=queue)
    )


@cache
def _put_back(dialect: str) -> Update:
    queue, group = tables_for(dialect).work_queue, tables_for(dialect).manifest_group
    rows = rows_of(dialect, "rows", {"id": BigId, "scheduled_at": Utc()})
    return (
        update(queue)
        .where(queue.c.id == rows.c.id)
        .values(
            status=sql_literal(QueueStatus.QUEUED),
            ready=False,
            scheduled_at=rows.c.scheduled_at,
            group_priority=priority_now(queue, group),
            dispatch_attempts=queue.c.dispatch_attempts + literal(1, Integer),
            metadata_id=None,
            dispatched_at=None,
        )
    )


@cache
def _supersede(dialect: str) -> Update:
    queue = tables_for(dialect).work_queue
    wanted = ids_of(dialect)
    return (
        update(queue)
        .where(queue.c.id == wanted.c.id)
        .values(
            status=sql_literal(QueueStatus.CANCELLED),
            dispatch_attempts=queue.c.dispatch_attempts + literal(1, Integer),
            dispatched_at=None,
        )
    )


@cache
def _count_attempt(dialect: str) -> Update:
    queue = tables_for(dialect).work_queue
    wanted = ids_of(dialect)
    attempts = queue.c.dispatch_attempts + literal(1, Integer)
    return update(queue).where(queue.c.id == wanted.c.id).values(dispatch_attempts=attempts)


@cache
def _give_up_manifests(dialect: str) -> Update:
    manifest = tables_for(dialect).manifest
    rows = rows_of(dialect, "rows", {"id": BigId, "reason": Text(), "run": BigId})
    return (
        update(manifest)
        .where(manifest.c.id == rows.c.id)
        .values(
            gave_up_reason=rows.c.reason,
            failed_metadata_id=rows.c.run,
            next_due_at=bindparam("now", type_=Utc),
        )
    )


def return_to_outbox(
    connection: Connection, *, waiting_since: datetime, max_attempts: int, now: datetime
) -> list[int]:
    """Return runs that were not started to the outbox, unless their attempts are used up; returns their ids.

    Each time counts as one dispatch attempt of the entry, up to the maximum. The first recipient may still
    start the run; then the second one finds that it is no longer pending.
    """
    parameters = {"waiting_since": waiting_since, "most": max_attempts, "now": now}
    dialect = connection.dialect.name
    returned = list(connection.execute(_return_to_outbox(dialect), parameters).scalars())
    count_dispatch_attempts(connection, returned)
    return returned


def count_dispatch_attempts(connection: Connection, metadata_ids: Sequence[int]) -> None:
    """Count one more dispatch attempt of the entries of these runs."""
    if metadata_ids:
        connection.execute(_count_repeat(connection.dialect.name), {"ids": id_document(metadata_ids)})


@cache
def _return_to_outbox(dialect: str) -> Update:
    """`handing_over_until = now` makes the run available at once, and restarts its waiting time."""
    t = tables_for(dialect)
    run, entry = t.metadata, t.work_queue
    stale = stale_remote_conditions(run, bindparam("waiting_since", type_=Utc))
    has_attempts_left = (
        select(run.c.id)
        .join(entry, entry.c.id == run.c.entry_id)
        .where(
            *stale,
            entry.c.metadata_id == run.c.id,
            entry.c.status == sql_literal(QueueStatus.DISPATCHED),
            entry.c.dispatch_attempts + literal(1, Integer) < bindparam("most", type_=Integer),
        )
    )
    return (
        update(run)
        .where(run.c.id.in_(has_attempts_left), text(PENDING))
        .values(submitted_at=None, handing_over_until=bindparam("now", type_=Utc))
        .returning(run.c.id)
    )


@cache
def _count_repeat(dialect: str) -> Update:
    t = tables_for(dialect)
    run, entry = t.metadata, t.work_queue
    wanted: Any = ids_of(dialect)
    entry_ids = select(run.c.entry_id).join(wanted, wanted.c.id == run.c.id)
    attempts = entry.c.dispatch_attempts + literal(1, Integer)
    return update(entry).where(entry.c.id.in_(entry_ids)).values(dispatch_attempts=attempts)
