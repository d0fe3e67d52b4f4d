"""`app.why`: what keeps something from running."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.admin.parking import read as read_fleet
from trax.admin.why import why_of
from trax.admin.why_queued import Scene
from trax.dispatch.fleet import with_routes
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
    store = await parts.store.opened()
    return await store.ask(_asked, store, parts, what)


def _asked(connection: Connection, store: Store, parts: Parts, what: str | int) -> list[Reason]:
    now = store.now(connection)
    fleet = parts.own_routes().joined_by(read_fleet(connection))
    scene = Scene(
        connection=connection,
        settings=_settings(connection, parts, now),
        routing=with_routes(parts.routing, fleet),
        fleet=fleet,
        now=now,
    )
    return why_of(scene, what)


def _settings(connection: Connection, parts: Parts, now: datetime) -> Settings:
    """Those of the servers that decide. An app without trains is only a way to ask."""
    own = parts.live.refresh(connection)
    if len(parts.trains):
        return own
    published = workers.published_settings(connection, alive_since=now - own.worker_lost_after)
    return own if published is None else parts.live.as_published(published)
