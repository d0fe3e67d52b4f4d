"""What a server that schedules does first: recover lost runs, rename, retire and seed manifests."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trax.engine.rescue import WORKER_LOST, can_declare_lost, count_as_failures
from trax.engine.schedule import check_stored_graph
from trax.engine.seed import RetirementResult, SeedPlan, prune_groups, rename, retire_undeclared, seed
from trax.store import dialect, workers
from trax.store.runs import rescue

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from trax.records.worker import HeartbeatStreak
    from trax.schedule.declaration import Timetable
    from trax.settings import Settings
    from trax.store import Connection, Store


def start_up(
    connection: Connection,
    store: Store,
    timetable: Timetable,
    settings: Settings,
    on_progress: Callable[[int, int], None] | None = None,
    app: str = "default",
    heartbeat_streak: HeartbeatStreak | None = None,
) -> SeedPlan:
    """Recover, rename, retire and seed under the leader lock: servers that start together take turns.

    `retired.postponed` has the undeclared manifests that `retire_undeclared` must retire later.
    """
    dialect.lift_limits(connection)
    dialect.take_leader_lock(connection)
    now = store.now(connection)
    if settings.recover_stuck_jobs_on_startup and can_declare_lost(heartbeat_streak, settings, now):
        recover(connection, settings, now=now)
    rename(connection, timetable, now=now)
    retired = RetirementResult()
    if settings.prune_orphaned_manifests:  # before seeding, so that no manifest can depend on a retired one
        retired = retire_undeclared(connection, timetable, settings, app=app, now=now)
    check_stored_graph(connection, timetable)
    plan = seed(connection, timetable, settings, now=now, app=app, on_progress=on_progress)
    if settings.prune_orphaned_manifests:
        prune_groups(connection, timetable)
    return replace(plan, retired=retired)


def recover(connection: Connection, settings: Settings, *, now: datetime) -> int:
    """Fail the runs of workers that missed their heartbeat; returns how many. Others are untouched."""
    alive_since = now - settings.worker_lost_after
    workers.delete_lost(connection, silent_since=alive_since)  # first, as in the manager's cycle
    swept = rescue.fail_runs_of_lost_workers(connection, WORKER_LOST, alive_since=alive_since, now=now)
    count_as_failures(connection, swept, settings, now=now)
    return len(swept)
