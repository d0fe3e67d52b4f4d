"""`app.why`: the reasons why something does not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.admin.parking import load_fleet as read_fleet
from trax.admin.why import why_of
from trax.admin.why_queued import WhyContext
from trax.dispatch.fleet import add_fleet_routes
from trax.host.checks import ID_OR_NAME
from trax.store import workers

if TYPE_CHECKING:
    from datetime import datetime

    from trax.host.parts import Parts
    from trax.records.reason import Reason
    from trax.settings import Settings
    from trax.store import Connection, Store


async def why(parts: Parts, what: str | int) -> list[Reason]:
    ID_OR_NAME("what", what)
    store = await parts.store.open()
    return await store.ask(_read_reasons, store, parts, what)


def _read_reasons(connection: Connection, store: Store, parts: Parts, what: str | int) -> list[Reason]:
    now = store.now(connection)
    fleet = parts.own_routes().merge(read_fleet(connection))
    scene = WhyContext(
        connection=connection,
        settings=_settings(connection, parts, now),
        routing=add_fleet_routes(parts.routing, fleet),
        fleet=fleet,
        now=now,
    )
    return why_of(scene, what)


def _settings(connection: Connection, parts: Parts, now: datetime) -> Settings:
    """The settings of the schedulers, if this app has no trains; else its own."""
    own = parts.live.refresh(connection)
    if len(parts.trains):
        return own
    published = workers.load_published_settings(connection, alive_since=now - own.worker_lost_after)
    return own if published is None else parts.live.load_published(published)
