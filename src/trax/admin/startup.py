"""What a server does before its loops begin: recover, retire, seed. One transaction, one server at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trax.admin.reaping import WORKER_LOST, count_as_failures, may_judge
from trax.admin.runtime import check_with_stored
from trax.admin.seeding import Retired, SeedPlan, prune_groups, rename, retire_undeclared, seed
from trax.store import dialect, metadata_sweeps, workers

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from trax.records.worker import Watch
    from trax.schedule.declaration import Timetable
    from trax.settings import Settings
    from trax.store import Connection, Store


def start(
    connection: Connection,
    store: Store,
    timetable: Timetable,
    settings: Settings,
    on_progress: Callable[[int, int], None] | None = None,
    app: str = "default",
    watch: Watch | None = None,
) -> SeedPlan:
    """Ten servers that start together take turns here, and leave the same rows as one.

    Of the manifests that are no longer declared, `retired.postponed` are left to `retire_undeclared` later.
    """
    dialect.lift_limits(connection)
    dialect.take_leader_lock(connection)
    now = store.now(connection)
    if settings.recover_stuck_jobs_on_startup and may_judge(watch, settings, now):
        recover(connection, settings, now=now)
    rename(connection, timetable, now=now)
    retired = Retired()
    if settings.prune_orphaned_manifests:  # first, so that nobody is made to depend on what goes
        retired = retire_undeclared(connection, timetable, settings, app=app, now=now)
    check_with_stored(connection, timetable)
    plan = seed(connection, timetable, settings, now=now, app=app, on_progress=on_progress)
    if settings.prune_orphaned_manifests:
        prune_groups(connection, timetable)
    return replace(plan, retired=retired)


def recover(connection: Connection, settings: Settings, *, now: datetime) -> int:
    """Fail the runs whose worker has stopped beating. What a live worker runs is left alone."""
    alive_since = now - settings.worker_lost_after
    workers.forget_dead(connection, silent_since=alive_since)  # first, as in the manager's cycle
    swept = metadata_sweeps.fail_left_behind(connection, WORKER_LOST, alive_since=alive_since, now=now)
    count_as_failures(connection, swept, settings, now=now)
    return len(swept)
