"""Read the system status: counts, next due times, live workers. Each part is a bounded index read."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import func, select, text

from trax.records.status import COUNT_LIMIT, Status
from trax.store import parking, workers
from trax.store.schema import tables
from trax.store.schema.manifest import LIVE
from trax.store.schema.work_queue import DELAYED, PARKED, READY

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection, ScalarSelect, Table

    from trax.store.schema import Tables

SHOWN_TRAINS: Final = 10
RECENT: Final = timedelta(hours=1)


def load_status(connection: Connection, *, now: datetime, lost_after: timedelta) -> Status:
    """Read counts of waiting and running work, and the live workers and servers."""
    t = tables(connection)
    counts: dict[str, ScalarSelect[Any]] = {
        "ready": _count(t.work_queue, READY),
        "delayed": _count(t.work_queue, DELAYED),
        "parked": _count(t.work_queue, PARKED),
        "pending": _count(t.metadata, "state = 'pending'"),
        "pending_local": _count(t.metadata, "state = 'pending' AND submitter = 'local'"),
        "running": _count(t.metadata, "state = 'in_progress'"),
        "failed_last_hour": _count_failed(t, since=now - RECENT),
        "dead_letters": _count(t.dead_letter, "status = 'awaiting_intervention'"),
        "manifests_enabled": _count_manifests(t, enabled=True),
        "manifests_disabled": _count_manifests(t, enabled=False),
        "next_due_at": select(func.min(t.manifest.c.next_due_at))
        .where(t.manifest.c.next_due_at.is_not(None))  # as in the partial index
        .scalar_subquery(),
        "next_delayed_at": select(func.min(t.work_queue.c.scheduled_at))
        .where(text(DELAYED))
        .scalar_subquery(),
        "ready_since": _ready_since(t),
    }
    row = connection.execute(select(*(count.label(name) for name, count in counts.items()))).one()
    live_workers = [
        worker for worker in workers.load_list(connection) if worker.heartbeat_at >= now - lost_after
    ]
    numbers = dict(zip(counts, row, strict=True))
    keys = parking.keys(connection, limit=SHOWN_TRAINS) if numbers["parked"] else []
    trains = tuple(dict.fromkeys(map(parking.train_of, keys)))
    servers = tuple(workers.servers(connection, alive_since=now - lost_after))
    return Status(now=now, workers=tuple(live_workers), servers=servers, parked_trains=trains, **numbers)


def _count(table: Table, condition: str) -> ScalarSelect[int]:
    some = select(table.c.id).select_from(table).where(text(condition)).limit(COUNT_LIMIT).subquery()
    return select(func.count()).select_from(some).scalar_subquery()


def _count_failed(t: Tables, *, since: datetime) -> ScalarSelect[int]:
    """Count within the latest failures only, to bound the read."""
    latest = (
        select(t.metadata.c.ended_at)
        .where(text("state = 'failed'"))
        .order_by(t.metadata.c.id.desc())
        .limit(COUNT_LIMIT)
        .subquery()
    )
    return select(func.count()).select_from(latest).where(latest.c.ended_at >= since).scalar_subquery()


def _count_manifests(t: Tables, *, enabled: bool) -> ScalarSelect[int]:
    """Count within the first manifests only: `enabled` has no index."""
    some = select(t.manifest.c.enabled).where(text(LIVE)).limit(COUNT_LIMIT).subquery()
    return select(func.count()).select_from(some).where(some.c.enabled.is_(enabled)).scalar_subquery()


def _ready_since(t: Tables) -> ScalarSelect[datetime]:
    queue = t.work_queue.c
    since = func.coalesce(queue.scheduled_at, queue.created_at, type_=queue.created_at.type)
    order = (queue.group_priority.desc(), queue.priority.desc(), queue.created_at, queue.id)
    return select(since).where(text(READY)).order_by(*order).limit(1).scalar_subquery()
