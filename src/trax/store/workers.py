"""The workers' rows: who runs trains, and who still lives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, insert, select, update

from trax.records.worker import Worker
from trax.store.json import parsed
from trax.store.schema import tables

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from sqlalchemy import Connection, Row


def register(connection: Connection, columns: Mapping[str, Any], *, now: datetime) -> int:
    """Make a row for a worker that starts. Its id is new, so that it is not mistaken for an earlier one."""
    worker = tables(connection).worker
    row = {**columns, "started_at": now, "heartbeat_at": now}
    return connection.execute(insert(worker).values(row).returning(worker.c.id)).scalar_one()


def beat(connection: Connection, worker_id: int, *, concurrency: int, now: datetime) -> bool:
    """Say that the worker lives, with how many slots; False when its row is gone: it was taken for dead."""
    worker = tables(connection).worker
    values = {"heartbeat_at": now, "concurrency": concurrency}
    statement = update(worker).where(worker.c.id == worker_id).values(values)
    return connection.execute(statement).rowcount == 1


def remove(connection: Connection, worker_id: int) -> None:
    worker = tables(connection).worker
    connection.execute(delete(worker).where(worker.c.id == worker_id))


def forget_dead(connection: Connection, *, silent_since: datetime) -> int:
    """Delete the rows of workers that have not beaten since then; in the same transaction their runs fail."""
    worker = tables(connection).worker
    return connection.execute(delete(worker).where(worker.c.heartbeat_at < silent_since)).rowcount


def listed(connection: Connection, *, after: int = 0, limit: int | None = None) -> list[Worker]:
    """All of them, or so many after an id."""
    worker = tables(connection).worker
    query = select(worker).where(worker.c.id > after).order_by(worker.c.id).limit(limit)
    return [_record(row) for row in connection.execute(query)]


def get(connection: Connection, worker_id: int) -> Worker | None:
    worker = tables(connection).worker
    row = connection.execute(select(worker).where(worker.c.id == worker_id)).one_or_none()
    return _record(row) if row else None


def _record(row: Row[Any]) -> Worker:
    return Worker(
        id=row.id,
        host=row.host,
        pid=row.pid,
        concurrency=row.concurrency,
        trains=tuple(parsed(row.trains)),
        started_at=row.started_at,
        heartbeat_at=row.heartbeat_at,
        host_environment=row.host_environment,
        host_instance_id=row.host_instance_id,
        host_labels=parsed(row.host_labels) or {},
        dispatches=row.dispatches,
        receives=row.receives,
        groups=None if row.groups is None else tuple(parsed(row.groups)),
        version=row.version,
        app_version=row.app_version,
    )
