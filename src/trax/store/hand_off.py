"""The outbox: pending runs that somebody else is to execute, until they are handed over or given back.

Whoever hands a run over takes it for a while first, so that no two servers call a submitter for it at the
same time. When that while has passed without an answer, its server is gone, and another one takes it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Integer, Text, and_, bindparam, func, literal, select, text, update

from trax.records.states import QueueStatus, State
from trax.store.dialect import among, document, id_document, ids_of, rows_of
from trax.store.manifest_groups import priority_now
from trax.store.manifest_locks import lock
from trax.store.schema import tables_for
from trax.store.schema.metadata import OUTBOX
from trax.store.text import storable
from trax.store.types import BigId, Utc, word

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Column, Connection, Row, Select, Table, Update


class Taken(NamedTuple):
    """A run that this server may hand over. `input` is JSON text."""

    metadata_id: int
    external_id: str
    train: str
    input: str | None
    priority: int
    attempt: int


class FailedHandOff(NamedTuple):
    """A run that nobody took, and why."""

    metadata_id: int
    failure_exception: str
    failure_reason: str
    stack_trace: str | None = None


def take(connection: Connection, *, submitter: str, most: int, until: datetime, now: datetime) -> list[Taken]:
    """Take up to `most` runs of this submitter for handing over, highest priority first, then the older."""
    given = {"to": submitter, "most": most, "until": until, "now": now}
    taken = [Taken(*row) for row in connection.execute(_take(connection.dialect.name), given)]
    return sorted(taken, key=lambda run: (-run.priority, run.metadata_id))


def note_accepted(connection: Connection, metadata_ids: Sequence[int], *, now: datetime) -> None:
    """Remember that these were handed over. They may have begun, or ended, meanwhile."""
    if metadata_ids:
        given = {"ids": id_document(metadata_ids), "now": now}
        connection.execute(_note_accepted(connection.dialect.name), given)


def fail(
    connection: Connection,
    failures: Sequence[FailedHandOff],
    *,
    junction: str,
    until: datetime,
    now: datetime,
) -> list[Row[Any]]:
    """Fail the runs that nobody took, if they are still ours to hand over; returns those.

    A run that began all the same, or that another server has taken since, is left alone. Their manifests stay
    locked, so that the manager adds no entry while theirs go back.
    """
    rows = document(
        one._asdict()
        | {"failure_reason": storable(one.failure_reason), "stack_trace": storable(one.stack_trace)}
        for one in failures
    )
    given = {"rows": rows, "until": until, "now": now, "junction": junction}
    failed = list(connection.execute(_fail(connection.dialect.name), given))
    lock(connection, {run.manifest_id for run in failed if run.manifest_id is not None})
    return failed


def withdrawable(connection: Connection, ids: Sequence[int], submitter: str) -> list[Taken]:
    """Those of these runs that this submitter was handed, and that were over before anybody began them."""
    metadata = tables_for(connection.dialect.name).metadata
    query = select(*_columns_of_taken(metadata)).where(
        among(connection, metadata.c.id),
        metadata.c.submitter == submitter,
        metadata.c.submitted_at.is_not(None),
        metadata.c.started_at.is_(None),
        metadata.c.ended_at.is_not(None),
    )
    return [Taken(*row) for row in connection.execute(query, {"ids": id_document(ids)})]


def entries_of(connection: Connection, external_ids: Iterable[str]) -> list[Row[Any]]:
    """The entries these runs came from; one that was cancelled meanwhile is not among them."""
    names = document({"external_id": one} for one in external_ids)
    return list(connection.execute(_entries_of(connection.dialect.name), {"names": names}))


def put_back(connection: Connection, moments: Mapping[int, datetime]) -> None:
    """Queue these entries again, not before a moment each, and count the attempt.

    Their groups may have another priority by now.
    """
    rows = document({"id": one, "scheduled_at": moment} for one, moment in moments.items())
    connection.execute(_put_back(connection.dialect.name), {"rows": rows})


def supersede(connection: Connection, entry_ids: Iterable[int]) -> None:
    """Cancel entries whose place in the queue another one has taken meanwhile."""
    connection.execute(_supersede(connection.dialect.name), {"ids": id_document(entry_ids)})


def count_attempt(connection: Connection, entry_ids: Iterable[int]) -> None:
    """Count a last attempt of entries that are given up; they stay as they are."""
    connection.execute(_count_attempt(connection.dialect.name), {"ids": id_document(entry_ids)})


def give_up_manifests(
    connection: Connection, reasons: Mapping[int, tuple[str, int | None]], *, now: datetime
) -> None:
    """Have the manager write a dead letter for each of these, whose rows are locked: why, and which run."""
    rows = document(
        {"id": one, "reason": storable(reason), "run": run} for one, (reason, run) in reasons.items()
    )
    connection.execute(_give_up_manifests(connection.dialect.name), {"rows": rows, "now": now})


@cache
def _take(dialect: str) -> Update:
    metadata = tables_for(dialect).metadata
    now = bindparam("now", type_=Utc)
    wanted = (
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
        .where(metadata.c.id.in_(wanted))
        .values(handing_over_until=bindparam("until", type_=Utc))
        .returning(*_columns_of_taken(metadata))
    )


def _columns_of_taken(metadata: Table) -> list[Column[Any]]:
    return [metadata.c[name] for name in ("id", *Taken._fields[1:])]


@cache
def _note_accepted(dialect: str) -> Update:
    metadata = tables_for(dialect).metadata
    given = ids_of(dialect)
    return (
        update(metadata)
        .where(metadata.c.id == given.c.id, metadata.c.submitted_at.is_(None))
        .values(submitted_at=bindparam("now", type_=Utc), handing_over_until=None)
    )


@cache
def _fail(dialect: str) -> Update:
    metadata = tables_for(dialect).metadata
    written = {name: metadata.c[name].type for name in FailedHandOff._fields[1:]}
    given = rows_of(dialect, "rows", {"metadata_id": BigId} | written)
    still_ours = metadata.c.handing_over_until == bindparam("until", type_=Utc)
    return (
        update(metadata)
        .where(metadata.c.id == given.c.metadata_id, func.coalesce(and_(text(OUTBOX), still_ours), False))
        .values(
            state=word(State.FAILED),
            ended_at=bindparam("now", type_=Utc),
            handing_over_until=None,
            failure_junction=bindparam("junction", type_=Text),
            **{name: given.c[name] for name in written},
        )
        .returning(metadata.c.id, metadata.c.external_id, metadata.c.manifest_id)
    )


@cache
def _entries_of(dialect: str) -> Select[Any]:
    queue = tables_for(dialect).work_queue
    given = rows_of(dialect, "names", {"external_id": queue.c.external_id.type})
    return (
        select(queue)
        .join(given, given.c.external_id == queue.c.external_id)
        .where(queue.c.status == word(QueueStatus.DISPATCHED))
        .order_by(queue.c.id)
        .with_for_update(of=queue)
    )


@cache
def _put_back(dialect: str) -> Update:
    queue, group = tables_for(dialect).work_queue, tables_for(dialect).manifest_group
    given = rows_of(dialect, "rows", {"id": BigId, "scheduled_at": Utc()})
    return (
        update(queue)
        .where(queue.c.id == given.c.id)
        .values(
            status=word(QueueStatus.QUEUED),
            ready=False,
            scheduled_at=given.c.scheduled_at,
            group_priority=priority_now(queue, group),
            dispatch_attempts=queue.c.dispatch_attempts + literal(1, Integer),
            metadata_id=None,
            dispatched_at=None,
        )
    )


@cache
def _supersede(dialect: str) -> Update:
    queue = tables_for(dialect).work_queue
    given = ids_of(dialect)
    return (
        update(queue)
        .where(queue.c.id == given.c.id)
        .values(
            status=word(QueueStatus.CANCELLED),
            dispatch_attempts=queue.c.dispatch_attempts + literal(1, Integer),
            dispatched_at=None,
        )
    )


@cache
def _count_attempt(dialect: str) -> Update:
    queue = tables_for(dialect).work_queue
    given = ids_of(dialect)
    attempts = queue.c.dispatch_attempts + literal(1, Integer)
    return update(queue).where(queue.c.id == given.c.id).values(dispatch_attempts=attempts)


@cache
def _give_up_manifests(dialect: str) -> Update:
    manifest = tables_for(dialect).manifest
    given = rows_of(dialect, "rows", {"id": BigId, "reason": Text(), "run": BigId})
    return (
        update(manifest)
        .where(manifest.c.id == given.c.id)
        .values(
            gave_up_reason=given.c.reason,
            failed_metadata_id=given.c.run,
            next_due_at=bindparam("now", type_=Utc),
        )
    )
