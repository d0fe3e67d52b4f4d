"""Read the overall status, for `trax status`, the live view and health checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.store import status as store_status

if TYPE_CHECKING:
    from trax.records.status import Status
    from trax.store import Connection, Store
    from trax.worker.parts import Parts


async def status(parts: Parts) -> Status:
    store = await parts.store.open()
    return await store.ask(_read, store, parts)


def _read(connection: Connection, store: Store, parts: Parts) -> Status:
    return store_status.load_status(
        connection, now=store.now(connection), lost_after=parts.settings.worker_lost_after
    )
