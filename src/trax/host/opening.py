"""A store that is opened when it is first needed, and once."""

from __future__ import annotations

import asyncio
from contextlib import closing, contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING

from trax.errors import InvalidUrl, SchemaNotMigrated
from trax.store import Store, dialect
from trax.store.announcing import Announcer
from trax.store.engine import Timeouts
from trax.store.listening import can_listen
from trax.store.store import CLOSE_SECONDS
from trax.store.url import has_no_file_yet, is_in_memory, parsed_url, shown_url

if TYPE_CHECKING:
    from collections.abc import Generator
    from datetime import datetime

    from trax.clock import Clock
    from trax.events import Events
    from trax.host.live_settings import LiveSettings
    from trax.store import Connection

_is_for_web: ContextVar[bool] = ContextVar("trax_web_lane", default=False)


def use_web_lane(*, is_for_web: bool = True) -> None:
    """From now on, what this context asks of a database goes through the lane of the dashboard, or not."""
    _is_for_web.set(is_for_web)


class OpenStore:
    """Opens the store on first use, so that declaring an app touches no database."""

    def __init__(self, address: str, live: LiveSettings, events: Events) -> None:
        self._address = address
        self._live = live
        self._events = events
        self._lock = Lock()
        self._store: Store | None = None
        self._opening: Store | None = None
        self.clock: Clock | None = None
        """Set before the store is opened, by tests that own the time."""
        self.migrates = True
        """Set before the store is opened, by commands that only look and must not change a table."""

    async def opened(self) -> Store:
        return _in_lane(self._store or await asyncio.to_thread(self._load))

    def opened_blocking(self) -> Store:
        return _in_lane(self._load())

    def _load(self) -> Store:
        with self._lock:
            if self._store is None:
                self._store = self._open()
            return self._store

    @contextmanager
    def beside(self) -> Generator[Store]:
        """A store with a connection of its own while the block lasts; in memory there is only one."""
        if is_in_memory(self._address):
            yield self.opened_blocking()
            return
        with closing(self._unopened(pool_size=1)) as store:
            yield store

    def unopened(self) -> Store | None:
        """A store of its own, as it stands, for whoever closes it; None when there is not even a file."""
        return None if has_no_file_yet(self._address) else self._unopened()

    @contextmanager
    def as_it_stands(self) -> Generator[Store]:
        """The store if it is open, else one for this block, whose tables are left as they are."""
        store = self._store
        if store is not None:
            yield _in_lane(store)
            return
        with closing(self._unopened()) as store:
            yield store

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

    def hurry(self) -> None:
        """From now on wait for no answer longer than a few seconds: this process is to end."""
        for store in (self._store, self._opening):
            if store is not None:
                store.hurry()

    def close(self) -> None:
        is_free = self._lock.acquire(timeout=CLOSE_SECONDS)  # somebody may be opening it, and hang
        if not is_free:
            self.hurry()
            self._lock.acquire()
        try:
            store, self._store = self._store, None
        finally:
            self._lock.release()
        if store is not None:
            store.close()

    def _open(self) -> Store:
        if not self.migrates and has_no_file_yet(self._address):
            raise SchemaNotMigrated(f"there is no database {self.shown_address} yet; run `trax db migrate`")
        announcer = Announcer(self._events, sends=self._live.now.notifications)
        store = self._opening = self._unopened(announcer)
        try:
            store.open(skip_migrations=self._live.now.skip_migrations or not self.migrates)
            store.read(self._live.refresh)
        except BaseException:
            store.close()
            raise
        finally:
            self._opening = None
        return store

    def _unopened(self, announcer: Announcer | None = None, *, pool_size: int = 5) -> Store:
        settings = self._live.now
        statement = settings.database_statement_timeout
        timeouts = Timeouts(
            connect_seconds=settings.database_connect_timeout.total_seconds(),
            network_seconds=settings.database_network_timeout.total_seconds(),
            statement_seconds=None if statement is None else statement.total_seconds(),
        )
        return Store(
            self._address, clock=self.clock, announcer=announcer, timeouts=timeouts, pool_size=pool_size
        )


def _in_lane(store: Store) -> Store:
    return store.web_lane if _is_for_web.get() else store
