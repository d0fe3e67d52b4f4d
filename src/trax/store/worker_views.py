"""The workers with what each of them runs."""

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

    from trax.records import Worker

LOOKED_AT: Final = 10_000
"""How many runs in progress are looked at."""


def listed(
    connection: Connection,
    *,
    now: datetime,
    lost_after: timedelta,
    jobs: int,
    after: int = 0,
    limit: int | None = None,
) -> list[WorkerView]:
    """Workers in the order they came, each with its longest running jobs, at most so many."""
    found = workers.listed(connection, after=after, limit=limit)
    return _viewed(connection, found, now=now, lost_after=lost_after, jobs=jobs)


def get(
    connection: Connection, worker_id: int, *, now: datetime, lost_after: timedelta, jobs: int
) -> WorkerView | None:
    worker = workers.get(connection, worker_id)
    found = [] if worker is None else [worker]
    return next(iter(_viewed(connection, found, now=now, lost_after=lost_after, jobs=jobs)), None)


def _viewed(
    connection: Connection, found: Sequence[Worker], *, now: datetime, lost_after: timedelta, jobs: int
) -> list[WorkerView]:
    ids = [worker.id for worker in found]
    counts, running = _counts(connection, ids), _jobs(connection, ids, most=jobs)
    return [
        WorkerView(
            worker=worker,
            silent_for=max(now - worker.heartbeat_at, timedelta()),
            is_lost=worker.heartbeat_at < now - lost_after,
            running=counts.get(worker.id, 0),
            jobs=tuple(running.get(worker.id, ())),
        )
        for worker in found
    ]


def _counts(connection: Connection, ids: Sequence[int]) -> dict[int, int]:
    run = tables(connection).metadata
    held = text("state = 'in_progress'")
    some = select(run.c.worker_id).where(held, among(connection, run.c.worker_id)).limit(LOOKED_AT).subquery()
    query = select(some.c.worker_id, func.count().label("runs")).group_by(some.c.worker_id)
    return {row.worker_id: row.runs for row in connection.execute(query, {"ids": id_document(ids)})}


def _jobs(connection: Connection, ids: Sequence[int], *, most: int) -> dict[int, list[RunningJob]]:
    t = tables(connection)
    run = t.metadata
    place = func.row_number().over(partition_by=run.c.worker_id, order_by=run.c.id).label("place")
    held = (
        select(run.c.id, run.c.worker_id, place)
        .where(text("state = 'in_progress'"), among(connection, run.c.worker_id))
        .limit(LOOKED_AT)
        .subquery("held")
    )
    shown = ("id", "worker_id", "train", "started_at", "current_junction", "progress")
    query = (
        select(*(run.c[name] for name in shown), t.manifest.c.external_id.label("manifest"))
        .select_from(held)
        .join(run, run.c.id == held.c.id)
        .outerjoin(t.manifest, t.manifest.c.id == run.c.manifest_id)
        .where(held.c.place <= most)
        .order_by(run.c.id)
    )
    found = defaultdict[int, list[RunningJob]](list)
    for row in connection.execute(query, {"ids": id_document(ids)}):
        job = RunningJob(
            id=row.id,
            train=row.train,
            manifest=row.manifest,
            started_at=row.started_at,
            current_junction=row.current_junction,
            progress=row.progress,
        )
        found[row.worker_id].append(job)
    return found
