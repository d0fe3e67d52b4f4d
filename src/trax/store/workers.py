"""Register workers and record their heartbeats (table `worker`)."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import (
    Boolean,
    Text,
    bindparam,
    cast,
    delete,
    func,
    insert,
    literal_column,
    select,
    text,
    update,
)

from trax.bounds import LARGEST_ID
from trax.records.listing import RecordPage
from trax.records.worker import FailingLoop, RunningJob, WorkerKind, WorkerRecord, WorkerView
from trax.store.dialect import among, id_document, last_id
from trax.store.listing import RecordQuery, Search
from trax.store.schema import tables, tables_for
from trax.store.types import parse_mapping, parse_names

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Delete, Insert, Row, ScalarSelect, Select
    from sqlalchemy.sql.dml import ReturningInsert


RUNS_JOBS: Final = "kind IN ('worker', 'receiver')"
"""Processes that run queued jobs; the others only send heartbeats for their own runs."""
IN_FLEET: Final = "kind IN ('worker', 'scheduler')"
"""Processes that decide what can be admitted: those that claim runs and those that hand them over."""


def register(connection: Connection, columns: Mapping[str, Any], *, now: datetime) -> int:
    """Insert a worker. Its id is new, so that it is not mistaken for an earlier worker.

    Its identity stays when it is gone: records of its runs have only its id.
    """
    row = {**columns, "started_at": now, "heartbeat_at": now}
    worker_id = connection.execute(_insert(connection.dialect.name), row).scalar_one()
    identity = {name: columns.get(name) for name in ("host_environment", "host_instance_id", "host_labels")}
    connection.execute(_insert_identity(connection.dialect.name), {"worker_id": worker_id, **identity})
    return worker_id


@cache
def _insert(dialect: str) -> ReturningInsert[int]:
    worker = tables_for(dialect).worker
    return insert(worker).returning(worker.c.id)


@cache
def _insert_identity(dialect: str) -> Insert:
    return insert(tables_for(dialect).worker_identity)


def record_heartbeat(connection: Connection, worker_id: int, *, concurrency: int, now: datetime) -> bool:
    """Record a heartbeat and the slots of a worker. Returns False if its row was deleted as lost."""
    worker = tables(connection).worker
    values = {"heartbeat_at": now, "concurrency": concurrency}
    statement = update(worker).where(worker.c.id == worker_id).values(values)
    return connection.execute(statement).rowcount == 1


def record_heartbeats(
    connection: Connection, ids: Collection[int], failing_loops: str | None = None, *, now: datetime
) -> set[int]:
    """Record a heartbeat of several workers of a process, and its failing loops, as JSON.

    Returns the ids that still exist.
    """
    worker = tables(connection).worker
    values = {"heartbeat_at": now, "failing_loops": failing_loops}
    statement = update(worker).where(worker.c.id.in_(ids)).values(values).returning(worker.c.id)
    return set(connection.execute(statement).scalars())


def load_failing_loops(connection: Connection, *, alive_since: datetime) -> list[FailingLoop]:
    """Load the loops of live processes whose turns fail."""
    worker = tables(connection).worker
    query = select(worker.c.host, worker.c.pid, worker.c.failing_loops)
    is_failing = (worker.c.failing_loops.is_not(None), worker.c.heartbeat_at >= alive_since)
    found = [
        FailingLoop(row.host, row.pid, name, str(error))
        for row in connection.execute(query.where(*is_failing).order_by(worker.c.id))
        for name, error in parse_mapping(row.failing_loops).items()
    ]
    return list(dict.fromkeys(found))  # a process may have several rows


def remove(connection: Connection, worker_id: int, *, has_run: bool = True) -> None:
    """Remove a worker that has stopped; its identity too, if no record can name it."""
    connection.execute(_delete(connection.dialect.name), {"worker_id": worker_id})
    identity = tables_for(connection.dialect.name).worker_identity
    if has_run:
        _note_left(connection, [worker_id])
    else:
        connection.execute(delete(identity).where(identity.c.worker_id == worker_id))


def _note_left(connection: Connection, ids: Sequence[int]) -> None:
    t = tables_for(connection.dialect.name)
    identity, last_run_id = t.worker_identity, last_id(connection, t.metadata)
    statement = update(identity).where(identity.c.worker_id.in_(ids))
    connection.execute(statement.values(last_run_id=last_run_id))


def purge_identities(connection: Connection) -> int:
    """Delete the identities of workers that no record can name: all their runs are older than all records."""
    t = tables_for(connection.dialect.name)
    identity = t.worker_identity
    oldest = select(func.coalesce(func.min(t.metadata.c.id), LARGEST_ID)).scalar_subquery()
    return connection.execute(delete(identity).where(identity.c.last_run_id < oldest)).rowcount


@cache
def _delete(dialect: str) -> Delete:
    worker = tables_for(dialect).worker
    return delete(worker).where(worker.c.id == bindparam("worker_id"))


def delete_lost(connection: Connection, *, silent_since: datetime) -> int:
    """Delete workers without a heartbeat since then. The caller fails their runs in the same transaction."""
    worker = tables(connection).worker
    lost = delete(worker).where(worker.c.heartbeat_at < silent_since).returning(worker.c.id)
    ids = connection.execute(lost).scalars().all()
    if ids:
        _note_left(connection, ids)
    return len(ids)


def load_list(
    connection: Connection, *, before: int | None = None, after: int | None = None, limit: int | None = None
) -> list[WorkerRecord]:
    """Load the workers that run queued jobs, by id."""
    return WORKERS.load_list(connection, None, before=before, after=after, limit=limit)


def _select_records(connection: Connection) -> Select[Any]:
    return select(tables(connection).worker)


def _search(connection: Connection, _worker_filter: None) -> Search:
    return Search(table=tables(connection).worker, unindexed=(literal_column(RUNS_JOBS, Boolean),))


class FleetMark(NamedTuple):
    """Changes when a worker or scheduler starts or stops: a restarted one has a new id."""

    workers: int
    newest_id: int
    id_sum: int


def fleet_mark(dialect: str) -> list[ScalarSelect[int]]:
    """Columns of a FleetMark, as subqueries of another statement."""
    worker = tables_for(dialect).worker
    numbers = (func.count(), func.coalesce(func.max(worker.c.id), 0), func.coalesce(func.sum(worker.c.id), 0))
    return [select(number).select_from(worker).where(text(IN_FLEET)).scalar_subquery() for number in numbers]


def load_fleet(connection: Connection) -> Sequence[Row[Any, Any, Any, Any, Any]]:
    """Load the trains, groups and routes that each worker and scheduler accepts."""
    worker = tables(connection).worker
    columns = (worker.c.kind, worker.c.trains, worker.c.aliases, worker.c.groups, worker.c.routes)
    return connection.execute(select(*columns).where(text(IN_FLEET)).order_by(worker.c.id)).all()


def load_plain_fields(connection: Connection, *, alive_since: datetime) -> list[dict[str, Any]]:
    """Load which fields of inputs cannot hold a secret, by train, as live processes publish it."""
    worker = tables(connection).worker
    published = cast(worker.c.plain_fields, Text).label("published")
    is_live = (worker.c.plain_fields.is_not(None), worker.c.heartbeat_at >= alive_since)
    query = select(published).where(*is_live).distinct()  # the processes of one version say the same
    return [parse_mapping(text) for text in connection.execute(query).scalars()]


def load_published_settings(connection: Connection, *, alive_since: datetime) -> str | None:
    """Load the settings of the newest live server, as JSON; one that dispatches comes first."""
    worker = tables(connection).worker
    is_live = (text(IN_FLEET), worker.c.heartbeat_at >= alive_since, worker.c.settings.is_not(None))
    newest = (worker.c.dispatches.desc(), worker.c.id.desc())
    return connection.execute(select(worker.c.settings).where(*is_live).order_by(*newest).limit(1)).scalar()


def load_dispatcher_settings(connection: Connection) -> list[str]:
    """Load the settings, as JSON, of all processes that dispatch."""
    worker = tables(connection).worker
    query = select(worker.c.settings).where(worker.c.dispatches, worker.c.settings.is_not(None))
    return list(connection.execute(query.order_by(worker.c.id)).scalars())


def servers(connection: Connection, *, alive_since: datetime) -> list[WorkerRecord]:
    """Load the live processes that declare manifests."""
    worker = tables(connection).worker
    is_live = (worker.c.heartbeat_at >= alive_since, worker.c.declares.is_not(None))
    return [_record(row) for row in connection.execute(select(worker).where(*is_live).order_by(worker.c.id))]


def find_differing_servers(
    connection: Connection, app: str, digest: str, *, alive_since: datetime
) -> list[WorkerRecord]:
    """Find live servers of this app whose declared manifests have another digest."""
    worker = tables(connection).worker
    is_live = (worker.c.app == app, worker.c.heartbeat_at >= alive_since)
    query = select(worker).where(*is_live, worker.c.declares != digest).order_by(worker.c.id)
    return [_record(row) for row in connection.execute(query)]


def get(connection: Connection, worker_id: int) -> WorkerRecord | None:
    worker = tables(connection).worker
    row = connection.execute(select(worker).where(worker.c.id == worker_id)).one_or_none()
    return _record(row) if row else None


def _record(row: Row[Any]) -> WorkerRecord:
    return WorkerRecord(
        id=row.id,
        host=row.host,
        pid=row.pid,
        concurrency=row.concurrency,
        trains=parse_names(row.trains),
        started_at=row.started_at,
        heartbeat_at=row.heartbeat_at,
        host_environment=row.host_environment,
        host_instance_id=row.host_instance_id,
        host_labels=parse_mapping(row.host_labels),
        dispatches=row.dispatches,
        kind=WorkerKind(row.kind),
        aliases=parse_names(row.aliases),
        groups=None if row.groups is None else parse_names(row.groups),
        version=row.version,
        app_version=row.app_version,
        app=row.app,
        declares=row.declares,
    )


WORKERS: Final = RecordQuery(search=_search, records=_select_records, record=_record, ascending=True)

MAX_RUNS_READ: Final = 10_000
"""The most runs in progress that are read."""


def load_views(
    connection: Connection,
    *,
    now: datetime,
    lost_after: timedelta,
    jobs: int,
    before: int | None = None,
    after: int | None = None,
    limit: int | None = None,
) -> list[WorkerView]:
    """Load workers by id, each with its longest-running jobs, up to `jobs`."""
    found = load_list(connection, before=before, after=after, limit=limit)
    return _build_views(connection, found, now=now, lost_after=lost_after, jobs=jobs)


def page_of_views(
    connection: Connection,
    *,
    now: datetime,
    lost_after: timedelta,
    jobs: int,
    before: int | None,
    after: int | None,
    limit: int,
) -> RecordPage[WorkerView]:
    """A page of workers by id, each with its longest-running jobs, up to `jobs`."""
    page = WORKERS.page(connection, None, before=before, after=after, limit=limit)
    views = _build_views(connection, page.items, now=now, lost_after=lost_after, jobs=jobs)
    return RecordPage(items=tuple(views), older=page.older, newer=page.newer, complete=page.complete)


def get_view(
    connection: Connection, worker_id: int, *, now: datetime, lost_after: timedelta, jobs: int
) -> WorkerView | None:
    worker = get(connection, worker_id)
    found = [] if worker is None else [worker]
    return next(iter(_build_views(connection, found, now=now, lost_after=lost_after, jobs=jobs)), None)


def _build_views(
    connection: Connection,
    records: Sequence[WorkerRecord],
    *,
    now: datetime,
    lost_after: timedelta,
    jobs: int,
) -> list[WorkerView]:
    ids = [worker.id for worker in records]
    counts, running = _counts(connection, ids), _jobs(connection, ids, most=jobs)
    return [
        WorkerView(
            worker=worker,
            silent_for=max(now - worker.heartbeat_at, timedelta()),
            is_lost=worker.heartbeat_at < now - lost_after,
            running=counts.get(worker.id, 0),
            jobs=tuple(running.get(worker.id, ())),
        )
        for worker in records
    ]


def _counts(connection: Connection, ids: Sequence[int]) -> dict[int, int]:
    run = tables(connection).metadata
    in_progress = text("state = 'in_progress'")
    runs = (
        select(run.c.worker_id)
        .where(in_progress, among(connection, run.c.worker_id))
        .limit(MAX_RUNS_READ)
        .subquery()
    )
    query = select(runs.c.worker_id, func.count().label("runs")).group_by(runs.c.worker_id)
    return {row.worker_id: row.runs for row in connection.execute(query, {"ids": id_document(ids)})}


def _jobs(connection: Connection, ids: Sequence[int], *, most: int) -> dict[int, list[RunningJob]]:
    t = tables(connection)
    run = t.metadata
    rank = func.row_number().over(partition_by=run.c.worker_id, order_by=run.c.id).label("place")
    ranked = (
        select(run.c.id, run.c.worker_id, rank)
        .where(text("state = 'in_progress'"), among(connection, run.c.worker_id))
        .limit(MAX_RUNS_READ)
        .subquery("held")
    )
    columns = ("id", "worker_id", "train", "started_at", "current_junction", "progress")
    query = (
        select(*(run.c[name] for name in columns), t.manifest.c.external_id.label("manifest"))
        .select_from(ranked)
        .join(run, run.c.id == ranked.c.id)
        .outerjoin(t.manifest, t.manifest.c.id == run.c.manifest_id)
        .where(ranked.c.place <= most)
        .order_by(run.c.id)
    )
    by_worker = defaultdict[int, list[RunningJob]](list)
    for row in connection.execute(query, {"ids": id_document(ids)}):
        job = RunningJob(
            id=row.id,
            train=row.train,
            manifest=row.manifest,
            started_at=row.started_at,
            current_junction=row.current_junction,
            progress=row.progress,
        )
        by_worker[row.worker_id].append(job)
    return by_worker
