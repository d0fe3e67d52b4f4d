"""`trax plan`: what starting an app would change, asked without touching anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.admin.planning import Stored, plan, stored
from trax.clock import utc_now
from trax.store.migrations import ensure_current, status

if TYPE_CHECKING:
    from trax.admin.planning import Change
    from trax.host.parts import Parts
    from trax.schedule.declaration import Timetable
    from trax.store import Connection, Store


async def planned_start(parts: Parts) -> list[Change]:
    """Every change, as values. Where there are no tables yet, everything is new."""
    parts.submitters.check(parts.trains)
    timetable = parts.declarations.checked()
    store = parts.store.unopened()
    if store is None:
        return plan(timetable, Stored(), parts.settings, now=utc_now(), app=parts.name)
    try:
        return await store.ask(_planned, store, parts, timetable)
    finally:
        store.close()


def _planned(connection: Connection, store: Store, parts: Parts, timetable: Timetable) -> list[Change]:
    now = store.now(connection)
    if status(connection).state == "missing":
        return plan(timetable, Stored(), parts.settings, now=now, app=parts.name)
    ensure_current(connection)
    settings = parts.live.refresh(connection)
    found = stored(connection, timetable, settings, app=parts.name, now=now)
    return plan(timetable, found, settings, now=now, app=parts.name)
