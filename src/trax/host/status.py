"""How the whole stands: what `trax status`, the view and the monitors ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.store import status as store_status

if TYPE_CHECKING:
    from trax.host.parts import Parts
    from trax.records.status import Status
    from trax.store import Connection, Store


async def status(parts: Parts) -> Status:
    store = await parts.store.opened()
    return await store.ask(_read, store, parts)


def _read(connection: Connection, store: Store, parts: Parts) -> Status:
    return store_status.read(
        connection, now=store.now(connection), lost_after=parts.settings.worker_lost_after
    )
