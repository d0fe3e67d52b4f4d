"""The workers' rows: who runs trains, and who still lives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import delete, func, insert, select, text, update

from trax.records.worker import Worker, WorkerKind
from trax.store.json import parsed
from trax.store.schema import tables, tables_for

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Row, ScalarSelect


WORKING: Final = "kind IN ('worker', 'receiver')"
"""Who runs jobs of the queue; others only beat for what they do themselves."""
IN_FLEET: Final = "kind IN ('worker', 'scheduler')"
"""Who decides what the gate may let in: those that come for runs, and those that hand them over."""


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


def beat_all(connection: Connection, ids: Collection[int], *, now: datetime) -> set[int]:
    """Say that these live; returns those whose row is still there."""
    worker = tables(connection).worker
    statement = update(worker).where(worker.c.id.in_(ids)).values(heartbeat_at=now).returning(worker.c.id)
    return set(connection.execute(statement).scalars())


def remove(connection: Connection, worker_id: int) -> None:
    worker = tables(connection).worker
    connection.execute(delete(worker).where(worker.c.id == worker_id))


def forget_dead(connection: Connection, *, silent_since: datetime) -> int:
    """Delete the rows of workers that have not beaten since then; in the same transaction their runs fail."""
    worker = tables(connection).worker
    return connection.execute(delete(worker).where(worker.c.heartbeat_at < silent_since)).rowcount


def listed(connection: Connection, *, after: int = 0, limit: int | None = None) -> list[Worker]:
    """Those that run jobs of the queue, all of them or so many after an id."""
    worker = tables(connection).worker
    query = select(worker).where(text(WORKING), worker.c.id > after).order_by(worker.c.id).limit(limit)
    return [_record(row) for row in connection.execute(query)]


class FleetMark(NamedTuple):
    """Changes whenever a worker or a scheduler comes or goes: a restarted one has another id."""

    workers: int
    newest_id: int
    id_sum: int


def fleet_mark(dialect: str) -> list[ScalarSelect[int]]:
    """The columns of a FleetMark, as part of another question."""
    worker = tables_for(dialect).worker
    numbers = (func.count(), func.coalesce(func.max(worker.c.id), 0), func.coalesce(func.sum(worker.c.id), 0))
    return [select(number).select_from(worker).where(text(IN_FLEET)).scalar_subquery() for number in numbers]


def fleet(connection: Connection) -> Sequence[Row[Any, Any, Any, Any, Any]]:
    """What each worker and scheduler says of what it takes and hands over."""
    worker = tables(connection).worker
    columns = (worker.c.kind, worker.c.trains, worker.c.aliases, worker.c.groups, worker.c.routes)
    return connection.execute(select(*columns).where(text(IN_FLEET)).order_by(worker.c.id)).all()


def published_settings(connection: Connection, *, alive_since: datetime) -> str | None:
    """What the newest live server that lets jobs in says of its settings, as JSON."""
    worker = tables(connection).worker
    is_live = (text(IN_FLEET), worker.c.heartbeat_at >= alive_since, worker.c.settings.is_not(None))
    newest = (worker.c.dispatches.desc(), worker.c.id.desc())
    return connection.execute(select(worker.c.settings).where(*is_live).order_by(*newest).limit(1)).scalar()


def servers(connection: Connection, *, alive_since: datetime) -> list[Worker]:
    """The live processes that say which manifests their code declares."""
    worker = tables(connection).worker
    is_live = (worker.c.heartbeat_at >= alive_since, worker.c.declares.is_not(None))
    return [_record(row) for row in connection.execute(select(worker).where(*is_live).order_by(worker.c.id))]


def differing_servers(
    connection: Connection, app: str, digest: str, *, alive_since: datetime
) -> list[Worker]:
    """The live servers of this app that declare other manifests than those of the digest."""
    worker = tables(connection).worker
    is_live = (worker.c.app == app, worker.c.heartbeat_at >= alive_since)
    query = select(worker).where(*is_live, worker.c.declares != digest).order_by(worker.c.id)
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
        kind=WorkerKind(row.kind),
        aliases=tuple(parsed(row.aliases) or ()),
        groups=None if row.groups is None else tuple(parsed(row.groups)),
        version=row.version,
        app_version=row.app_version,
        app=row.app,
        declares=row.declares,
    )
