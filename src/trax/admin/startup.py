"""What a server does before its loops begin: recover, seed, prune. One transaction, one server at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trax.admin.endings import apply_endings
from trax.admin.seeding import SeedPlan, prune, seed
from trax.records.ended import EndKind, ManifestEnd
from trax.store import dialect, metadata_sweeps
from trax.store.metadata_sweeps import Failure

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from trax.schedule.declaration import Timetable
    from trax.settings import Settings
    from trax.store import Connection, Store

LEFT_BEHIND: Final = Failure("recover_stuck_jobs", "WorkerLost", "its worker is gone")


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
    plan = seed(connection, timetable, settings, now=now, on_progress=on_progress)
    if settings.prune_orphaned_manifests:
        prune(connection, timetable)
    return plan


def recover(connection: Connection, settings: Settings, *, now: datetime) -> int:
    """Fail the runs whose worker has stopped beating. What a live worker runs is left alone."""
    alive_since = now - settings.worker_lost_after
    swept = metadata_sweeps.fail_left_behind(connection, LEFT_BEHIND, alive_since=alive_since, now=now)
    ends = [
        ManifestEnd(manifest_id=run.manifest_id, kind=EndKind.FAILURE, ended_at=now)
        for run in swept
        if run.manifest_id is not None
    ]
    apply_endings(connection, ends, settings, now=now)
    return len(swept)
