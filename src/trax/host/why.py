"""`app.why`: what keeps something from running."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.admin.why import why_of
from trax.admin.why_queued import Scene

if TYPE_CHECKING:
    from trax.host.parts import Parts
    from trax.records.reason import Reason
    from trax.store import Connection, Store


async def why(parts: Parts, what: str | int) -> list[Reason]:
    store = await parts.store.opened()
    return await store.ask(_asked, store, parts, what)


def _asked(connection: Connection, store: Store, parts: Parts, what: str | int) -> list[Reason]:
    scene = Scene(
        connection=connection,
        settings=parts.live.refresh(connection),
        routing=parts.routing,
        now=store.now(connection),
        synonyms=parts.trains.synonyms,
    )
    return why_of(scene, what)
