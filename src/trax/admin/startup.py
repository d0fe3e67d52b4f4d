"""What a server does before its loops begin: recover, seed, prune. One transaction, one server at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.admin.reaping import WORKER_LOST, count_as_failures
from trax.admin.runtime import check_with_stored
from trax.admin.seeding import SeedPlan, prune, prune_groups, seed
from trax.store import dialect, metadata_sweeps, workers

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from trax.schedule.declaration import Timetable
    from trax.settings import Settings
    from trax.store import Connection, Store


def start(
    connection: Connection,
    store: Store,
    timetable: Timetable,
    settings: Settings,
    on_progress: Callable[[int, int], None] | None = None,
) -> SeedPlan:
    """Ten servers that start together take turns here, and leave the same rows as one."""
    dialect.take_leader_lock(connection)
    now = store.now(connection)
    if settings.recover_stuck_jobs_on_startup:
        recover(connection, settings, now=now)
    if settings.prune_orphaned_manifests:
        prune(connection, timetable)  # first, so that nobody is made to depend on what goes
    check_with_stored(connection, timetable)
    plan = seed(connection, timetable, settings, now=now, on_progress=on_progress)
    if settings.prune_orphaned_manifests:
        prune_groups(connection, timetable)
    return plan


def recover(connection: Connection, settings: Settings, *, now: datetime) -> int:
    """Fail the runs whose worker has stopped beating. What a live worker runs is left alone."""
    alive_since = now - settings.worker_lost_after
    workers.forget_dead(connection, silent_since=alive_since)  # first, as in the manager's cycle
    swept = metadata_sweeps.fail_left_behind(connection, WORKER_LOST, alive_since=alive_since, now=now)
    count_as_failures(connection, swept, settings, now=now)
    return len(swept)
