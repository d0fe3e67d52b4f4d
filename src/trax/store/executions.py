"""Cancel pending runs, and load what is needed to run one again."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import func, select, text, update

from trax.records.states import CancelReason, State
from trax.store.dialect import among, id_document
from trax.store.schema import tables
from trax.store.types import sql_literal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection


class CancelledRun(NamedTuple):
    """A run that was cancelled before it started."""

    id: int
    manifest_id: int | None
    attempt: int


class RerunRequest(NamedTuple):
    """The input and options of a run, to enqueue it again. `input` and `retry` are JSON text.

    `max_retries` is that of the manifest, which overrides the retry policy; None for a job without a
    manifest.
    """

    train: str
    input: str | None
    priority: int
    group: str | None
    timeout_seconds: float | None
    retry: str | None
    max_retries: int | None
    unique: str | None


def cancel_pending(
    connection: Connection, ids: Sequence[int], *, reason: str, now: datetime
) -> list[CancelledRun]:
    """Cancel the runs among `ids` that are still pending; returns them.

    A worker may claim one at the same time. The second of the two finds that it is no longer pending.
    """
    metadata = tables(connection).metadata
    statement = (
        update(metadata)
        .where(among(connection, metadata.c.id), text("state = 'pending'"))
        .values(
            state=sql_literal(State.CANCELLED),
            ended_at=now,
            cancel_requested=True,
            cancel_reason=CancelReason.REQUESTED,
            failure_exception="Cancelled",
            failure_reason=reason,
        )
        .returning(*(metadata.c[name] for name in CancelledRun._fields))
    )
    return [CancelledRun(*row) for row in connection.execute(statement, {"ids": id_document(ids)})]


def is_in_progress(connection: Connection, metadata_id: int) -> bool:
    """Whether a run is in progress; its row is locked until this transaction ends."""
    run = tables(connection).metadata
    query = select(run.c.id).where(run.c.id == metadata_id, text("state = 'in_progress'"))
    return connection.execute(query.with_for_update(key_share=True)).first() is not None


def load_rerun_request(connection: Connection, metadata_id: int) -> RerunRequest | None:
    t = tables(connection)
    query = (
        select(
            t.metadata.c.train,
            t.metadata.c.input,
            t.metadata.c.priority,
            t.manifest_group.c.name,
            t.metadata.c.timeout_seconds,
            func.coalesce(t.work_queue.c.retry, t.manifest.c.retry),
            t.manifest.c.max_retries,
            func.coalesce(t.work_queue.c.unique_key, t.work_queue.c.former_key),
        )
        .outerjoin(t.manifest_group, t.manifest_group.c.id == t.metadata.c.group_id)
        .outerjoin(t.work_queue, t.work_queue.c.external_id == t.metadata.c.external_id)
        .outerjoin(t.manifest, t.manifest.c.id == t.metadata.c.manifest_id)
        .where(t.metadata.c.id == metadata_id)
    )
    row = connection.execute(query).one_or_none()
    return RerunRequest(*row) if row else None
