"""Take one entry from the queue to a run, here and now, without a gate: for running things one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import insert, or_, select, text, update

from trax.records.states import QueueStatus, State
from trax.store.schema import tables

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection


class StartedRun(NamedTuple):
    """A run that has begun. `input` is JSON text."""

    metadata_id: int
    external_id: str
    train: str
    input: str | None
    manifest_id: int | None
    manifest: str | None
    attempt: int
    scheduled_for: datetime | None


def start_next(connection: Connection, *, host: str, now: datetime) -> StartedRun | None:
    """The first entry that may run now, in the order of the gate."""
    t = tables(connection)
    queue, metadata = t.work_queue, t.metadata
    order = (queue.c.group_priority.desc(), queue.c.priority.desc(), queue.c.created_at, queue.c.id)
    is_due = or_(queue.c.scheduled_at.is_(None), queue.c.scheduled_at <= now)
    is_open = or_(t.manifest_group.c.enabled, queue.c.group_id.is_(None))
    row = connection.execute(
        select(queue, t.manifest.c.external_id.label("manifest"))
        .outerjoin(t.manifest, t.manifest.c.id == queue.c.manifest_id)
        .outerjoin(t.manifest_group, t.manifest_group.c.id == queue.c.group_id)
        .where(text("status = 'queued'"), is_due, is_open)
        .order_by(*order)
        .limit(1)
    ).one_or_none()
    if row is None:
        return None
    begun = insert(metadata).values(
        external_id=row.external_id,
        train=row.train,
        state=State.IN_PROGRESS,
        manifest_id=row.manifest_id,
        group_id=row.group_id,
        priority=row.priority,
        attempt=row.attempt,
        input=row.input,
        created_at=now,
        started_at=now,
        scheduled_for=row.scheduled_for,
        timeout_seconds=row.timeout_seconds,
        host=host,
    )
    metadata_id = connection.execute(begun.returning(metadata.c.id)).scalar_one()
    dispatched = {"status": QueueStatus.DISPATCHED, "metadata_id": metadata_id, "dispatched_at": now}
    connection.execute(update(queue).where(queue.c.id == row.id).values(dispatched))
    if row.dead_letter_id is not None:
        letter = t.dead_letter
        connection.execute(
            update(letter).where(letter.c.id == row.dead_letter_id).values(retry_metadata_id=metadata_id)
        )
    return StartedRun(
        metadata_id,
        row.external_id,
        row.train,
        row.input,
        row.manifest_id,
        row.manifest,
        row.attempt,
        row.scheduled_for,
    )
