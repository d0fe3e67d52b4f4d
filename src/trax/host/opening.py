"""A store that is opened when it is first needed, and once."""

from __future__ import annotations

import asyncio
from threading import Lock
from typing import TYPE_CHECKING

from trax.errors import InvalidUrl, SchemaNotMigrated
from trax.store import Store, dialect
from trax.store.announcing import Announcer
from trax.store.listening import can_listen
from trax.store.url import has_no_file_yet, parsed_url, shown_url

if TYPE_CHECKING:
    from datetime import datetime

    from trax.clock import Clock
    from trax.events import Events
    from trax.host.live_settings import LiveSettings
    from trax.store import Connection


class OpenStore:
    """Opens the store on first use, so that declaring an app touches no database."""

    def __init__(self, address: str, live: LiveSettings, events: Events) -> None:
        self._address = address
        self._live = live
        self._events = events
        self._lock = Lock()
        self._store: Store | None = None
        self.clock: Clock | None = None
        """Set before the store is opened, by tests that own the time."""
        self.migrates = True
        """Set before the store is opened, by commands that only look and must not change a table."""

    async def opened(self) -> Store:
        return self._store or await asyncio.to_thread(self.opened_blocking)

    def opened_blocking(self) -> Store:
        with self._lock:
            if self._store is None:
                self._store = self._open()
            return self._store

    def unopened(self) -> Store | None:
        """A store of its own, as it stands, for whoever closes it; None when there is not even a file."""
        return None if has_no_file_yet(self._address) else Store(self._address, clock=self.clock)

    @property
    def listen_address(self) -> str | None:
        """Where other processes are heard; None when nothing is said there, or nobody wants to hear it."""
        settings = self._live.now
        if not settings.notifications or not can_listen(self._address):
            return None
        if settings.listen_url and not can_listen(settings.listen_url):
            raise InvalidUrl("listen_url must be the address of the same PostgreSQL, past any pooler")
        return settings.listen_url or self._address

    @property
    def shown_address(self) -> str:
        """The address as it may stand in a message."""
        return shown_url(parsed_url(self._address))

    def now(self, connection: Connection) -> datetime:
        """The clock of the store, also on a connection that is not one of its own."""
        return self.clock() if self.clock else dialect.now(connection)

    def close(self) -> None:
        with self._lock:
            store, self._store = self._store, None
        if store is not None:
            store.close()

    def _open(self) -> Store:
        if not self.migrates and has_no_file_yet(self._address):
            raise SchemaNotMigrated(f"there is no database {self.shown_address} yet; run `trax db migrate`")
        announcer = Announcer(self._events, sends=self._live.now.notifications)
        store = Store(self._address, clock=self.clock, announcer=announcer)
        try:
            store.open(skip_migrations=self._live.now.skip_migrations or not self.migrates)
            store.read(self._live.refresh)
        except BaseException:
            store.close()
            raise
        return store
