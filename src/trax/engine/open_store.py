"""Open the store once, on first use; the dashboard uses its own connection pool."""

from __future__ import annotations

import asyncio
from contextlib import closing, contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING, Final

from trax.errors import DefinitionError, InvalidUrl, SchemaNotMigrated
from trax.forks import fork_safe
from trax.store.url import display_url, has_no_file_yet, is_in_memory, parse_url

if TYPE_CHECKING:
    from collections.abc import Generator
    from datetime import datetime

    from trax.clock import Clock
    from trax.engine.live_settings import LiveSettings
    from trax.events import Events
    from trax.store import Connection, Store
    from trax.store.announce import Announcer

OPENING_SECONDS: Final = 10.0
"""How long closing waits for another thread that opens the store, before it shortens the timeouts."""

_importing: list[str] = []
"""What is being imported to find an app; the last one first in messages."""

_is_for_web: ContextVar[bool] = ContextVar("trax_web_lane", default=False)


def use_web_lane(*, is_for_web: bool = True) -> None:
    """Use the dashboard's connection pool for all database calls of this context, or stop using it."""
    _is_for_web.set(is_for_web)


@contextmanager
def refuse_opening(importer: str) -> Generator[None]:
    """No app opens its database during the block, in which `importer` imports the code of an app.

    Else a call at the top of a module would run jobs again in each command and in each process.
    """
    _importing.append(importer)
    try:
        yield
    finally:
        _importing.remove(importer)


def check_may_open() -> None:
    """Refuse a call that opens the database, or writes through the caller's, while code is being imported."""
    if _importing:
        raise DefinitionError(
            f"the app is used while {_importing[-1]} imports this module: declare trains and schedules at "
            'the top of it, and put calls that run or queue jobs under `if __name__ == "__main__":`'
        )


class LazyStore:
    """A store that is opened on first use, so that declaring an app does not touch the database."""

    def __init__(self, address: str, live: LiveSettings, events: Events) -> None:
        self._address = address
        self._live = live
        self._events = events
        self._lock = fork_safe(Lock())
        self._store: Store | None = None
        self._opening: Store | None = None
        self.clock: Clock | None = None
        """Set before the store is opened, by tests that control time."""
        self.migrates = True
        """Set to False before the store is opened, by read-only commands that must not migrate."""

    async def open(self) -> Store:
        return _select_lane(self._store or await asyncio.to_thread(self._open_once))

    def open_blocking(self) -> Store:
        return _select_lane(self._open_once())

    def _open_once(self) -> Store:
        check_may_open()
        with self._lock:
            if self._store is None:
                self._store = self._open_and_migrate()
            return self._store

    @contextmanager
    def separate_store(self) -> Generator[Store]:
        """A separate store with its own connection, for the block; in memory, the same store."""
        if is_in_memory(self._address):
            yield self.open_blocking()
            return
        check_may_open()
        with closing(self._build_store(pool_size=1)) as store:
            yield store

    def build_store_as_is(self) -> Store | None:
        """A separate store, not migrated, which the caller must close; None when the file does not exist."""
        return None if has_no_file_yet(self._address) else self._build_store()

    @contextmanager
    def store_as_is(self) -> Generator[Store]:
        """The store if it is open, else a separate one for this block, not migrated."""
        store = self._store
        if store is not None:
            yield _select_lane(store)
            return
        with closing(self._build_store()) as store:
            yield store

    @property
    def listen_address(self) -> str | None:
        """The URL to LISTEN on; None when notifications are off or the database has none."""
        from trax.store.listen import can_listen

        settings = self._live.current
        if not settings.notifications or not can_listen(self._address):
            return None
        if settings.listen_url and not can_listen(settings.listen_url):
            raise InvalidUrl(
                "listen_url must be a direct PostgreSQL URL of the same database, not of a connection pooler"
            )
        return settings.listen_url or self._address

    @property
    def display_address(self) -> str:
        """The address without its password, for messages."""
        return display_url(parse_url(self._address))

    def now(self, connection: Connection) -> datetime:
        """The store's time, also on a connection that the caller passes in."""
        from trax.store import dialect

        return self.clock() if self.clock else dialect.now(connection)

    def shorten_timeouts(self) -> None:
        """Shorten all database timeouts to a few seconds: this process is stopping."""
        for store in (self._store, self._opening):
            if store is not None:
                store.shorten_timeouts()

    def close(self) -> None:
        is_free = self._lock.acquire(timeout=OPENING_SECONDS)  # another thread may hang while opening it
        if not is_free:
            self.shorten_timeouts()
            self._lock.acquire()
        try:
            store, self._store = self._store, None
        finally:
            self._lock.release()
        if store is not None:
            store.close()

    def _open_and_migrate(self) -> Store:
        if not self.migrates and has_no_file_yet(self._address):
            raise SchemaNotMigrated(f"database {self.display_address} does not exist; run `trax db migrate`")
        from trax.store.announce import Announcer

        announcer = Announcer(self._events, sends=self._live.current.notifications)
        store = self._opening = self._build_store(announcer)
        try:
            store.open(skip_migrations=self._live.current.skip_migrations or not self.migrates)
            store.read(self._live.refresh)
        except BaseException:
            store.close()
            raise
        finally:
            self._opening = None
        return store

    def _build_store(self, announcer: Announcer | None = None, *, pool_size: int = 5) -> Store:
        from trax.store import Store
        from trax.store.engine import Timeouts

        settings = self._live.current
        statement = settings.database_statement_timeout
        timeouts = Timeouts(
            connect_seconds=settings.database_connect_timeout.total_seconds(),
            network_seconds=settings.database_network_timeout.total_seconds(),
            statement_seconds=None if statement is None else statement.total_seconds(),
        )
        return Store(
            self._address, clock=self.clock, announcer=announcer, timeouts=timeouts, pool_size=pool_size
        )


def _select_lane(store: Store) -> Store:
    return store.web_lane if _is_for_web.get() else store
