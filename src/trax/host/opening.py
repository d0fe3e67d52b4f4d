"""A store that is opened when it is first needed, and once."""

from __future__ import annotations

import asyncio
from threading import Lock
from typing import TYPE_CHECKING

from trax.store import Store

if TYPE_CHECKING:
    from trax.clock import Clock
    from trax.settings import Settings


class OpenStore:
    """Opens the store on first use, so that declaring an app touches no database."""

    def __init__(self, address: str, settings: Settings) -> None:
        self._address = address
        self._settings = settings
        self._lock = Lock()
        self._store: Store | None = None
        self.clock: Clock | None = None
        """Set before the store is opened, by tests that own the time."""

    async def opened(self) -> Store:
        return self._store or await asyncio.to_thread(self.opened_blocking)

    def opened_blocking(self) -> Store:
        with self._lock:
            if self._store is None:
                self._store = self._open()
            return self._store

    def close(self) -> None:
        with self._lock:
            store, self._store = self._store, None
        if store is not None:
            store.close()

    def _open(self) -> Store:
        store = Store(self._address, clock=self.clock)
        try:
            store.open(skip_migrations=self._settings.skip_migrations)
        except BaseException:
            store.close()
            raise
        return store
