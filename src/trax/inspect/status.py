"""Read the overall status, for `trax status`, the live view and health checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.store.status import load_status

if TYPE_CHECKING:
    from trax.engine.live_settings import LiveSettings
    from trax.engine.open_store import LazyStore
    from trax.records.status import Status
    from trax.store import Connection, Store


async def status(lazy_store: LazyStore, live: LiveSettings) -> Status:
    store = await lazy_store.open()
    return await store.ask(_read, store, live)


def _read(connection: Connection, store: Store, live: LiveSettings) -> Status:
    return load_status(connection, now=store.now(connection), lost_after=live.current.worker_lost_after)
