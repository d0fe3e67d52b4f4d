"""Start a manager cycle in one round trip: leader lock, time, settings, due manifests, maintenance."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trax.store.dialect import leader_lock
from trax.store.manifest_looks import select_due
from trax.store.metadata_sweeps import MaintenanceNeeds, build_maintenance_check
from trax.store.pipeline import run_together
from trax.store.settings import select_edited
from trax.store.types import in_utc

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection, Select

    from trax.settings import Settings
    from trax.store.pipeline import BoundStatement


NO_MAINTENANCE: Final = MaintenanceNeeds(
    timed_out=False, stale_pending=False, lost_workers=False, stale_priorities=False, unstartable=False
)


class CycleStart(NamedTuple):
    """What a manager cycle starts with. `is_leader` is true for one server at a time; others do not wait.

    With the manifest manager disabled, due manifests are not read.
    """

    is_leader: bool
    now: datetime
    settings: dict[str, str]
    due: list[tuple[Any, ...]]
    maintenance: MaintenanceNeeds


def start_cycle(connection: Connection, settings: Settings, *, now: datetime | None) -> CycleStart:
    """Read the start of a cycle by the settings known so far; edited ones take effect in the next cycle."""
    dialect = connection.dialect.name
    is_enabled = settings.manifest_manager_enabled
    first = (
        _leader_and_maintenance(dialect, settings, now)
        if is_enabled
        else (leader_lock(dialect), {"now": now})
    )
    due = [(select_due(dialect), {"now": now})] if is_enabled else []
    [(leads, moment, *maintenance)], rows, *due_rows = run_together(
        connection, first, (select_edited(dialect), {}), *due
    )
    due_manifests = due_rows[0] if is_enabled else []
    return CycleStart(
        leads,
        in_utc(moment),
        dict(rows),
        due_manifests,
        MaintenanceNeeds(*maintenance) if is_enabled else NO_MAINTENANCE,
    )


def _leader_and_maintenance(dialect: str, settings: Settings, now: datetime | None) -> BoundStatement:
    """Leader lock and maintenance check in one statement. It may be out of date: each fix checks again."""
    statement, parameters = build_maintenance_check(
        dialect,
        default=settings.default_job_timeout,
        stale_after=settings.stale_pending_timeout,
        lost_after=settings.worker_lost_after,
        unknown_after=settings.unknown_train_timeout or settings.stale_pending_timeout,
        now=now,
    )
    return _combine(dialect, statement), parameters


@cache
def _combine(dialect: str, maintenance: Select[Any]) -> Select[Any]:
    return leader_lock(dialect).add_columns(*maintenance.selected_columns)
