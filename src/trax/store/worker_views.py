"""Load workers with the jobs that each one runs."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from sqlalchemy import func, select, text

from trax.records.worker_view import RunningJob, WorkerView
from trax.store import workers
from trax.store.dialect import among, id_document
from trax.store.schema import tables

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from trax.records import WorkerRecord

MAX_RUNS_READ: Final = 10_000
"""The most runs in progress that are read."""


def load_views(
    connection: Connection,
    *,
    now: datetime,
    lost_after: timedelta,
    jobs: int,
    after: int = 0,
    limit: int | None = None,
) -> list[WorkerView]:
    """Load workers by id, each with its longest-running jobs, up to `jobs`."""
    found = workers.load_list(connection, after=after, limit=limit)
    return _build_views(connection, found, now=now, lost_after=lost_after, jobs=jobs)


def get_view(
    connection: Connection, worker_id: int, *, now: datetime, lost_after: timedelta, jobs: int
) -> WorkerView | None:
    worker = workers.get(connection, worker_id)
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
