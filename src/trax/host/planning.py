"""`trax plan`: compute what starting an app would change, without changing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.admin.planning import StoredTimetable, load_stored, plan
from trax.clock import utc_now
from trax.store.migrations import ensure_current, status

if TYPE_CHECKING:
    from trax.admin.planning import PlannedChange
    from trax.host.parts import Parts
    from trax.schedule.declaration import Timetable
    from trax.store import Connection, Store


async def plan_start(parts: Parts) -> list[PlannedChange]:
    """The changes that a start would make. Without tables, everything is new."""
    parts.submitters.check(parts.trains)
    timetable = parts.declarations.timetable()
    store = parts.store.build_store_as_is()
    if store is None:
        return plan(timetable, StoredTimetable(), parts.settings, now=utc_now(), app=parts.name)
    try:
        return await store.ask(_plan, store, parts, timetable)
    finally:
        store.close()


def _plan(connection: Connection, store: Store, parts: Parts, timetable: Timetable) -> list[PlannedChange]:
    now = store.now(connection)
    if status(connection).state == "missing":
        return plan(timetable, StoredTimetable(), parts.settings, now=now, app=parts.name)
    ensure_current(connection)
    settings = parts.live.refresh(connection)
    current = load_stored(connection, timetable, settings, app=parts.name, now=now)
    return plan(timetable, current, settings, now=now, app=parts.name)
