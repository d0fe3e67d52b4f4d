"""The door to the database."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from trax.clock import utc_now
from trax.store import dialect
from trax.store.announcing import ANNOUNCED, Announced, Announcer
from trax.store.engine import READING, open_engine
from trax.store.faults import translated
from trax.store.migrations import ensure_current, migrate
from trax.store.pipeline import commit_together
from trax.store.url import parsed_url, shown_url

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from concurrent.futures import Future
    from datetime import datetime

    from sqlalchemy import Connection

    from trax.clock import Clock

P = ParamSpec("P")
T = TypeVar("T")


class Store:
    """Runs functions in transactions: `run` and `read` here and now, `call` and `ask` from async code.

    `read` and `ask` are for functions that only look: in SQLite they do not wait for a writer.
    """

    def __init__(
        self,
        address: str,
        *,
        clock: Clock | None = None,
        pool_size: int = 5,
        announcer: Announcer | None = None,
    ) -> None:
        url = parsed_url(address)
        self.announcer = announcer or Announcer()
        self.address = shown_url(url)
        self._clock = clock
        with translated(self.address):
            self._engine = open_engine(url, pool_size=pool_size)
        # As many threads as connections: a thread without one could only wait.
        self._threads = ThreadPoolExecutor(2 * pool_size, thread_name_prefix="trax-store")

    def open(self, *, skip_migrations: bool = False) -> None:
        """Bring the tables up to date, or with `skip_migrations` only make sure that they are."""
        self.run(ensure_current if skip_migrations else migrate)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._engine.dispose()

    def now(self, connection: Connection) -> datetime:
        """The database's clock, or the one a test has set."""
        return self._clock() if self._clock else dialect.now(connection)

    def given_now(self, connection: Connection) -> datetime | None:
        """The moment to hand to a statement that can read PostgreSQL's clock itself: None there."""
        if self._clock is not None:
            return self._clock()
        return utc_now() if dialect.is_sqlite(connection) else None

    def run(self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        with self._transaction() as connection:
            return function(connection, *args, **kwargs)

    def read(self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        with self._transaction(**{READING: True}) as connection:
            return function(connection, *args, **kwargs)

    async def call(
        self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._hop(lambda: self.run(function, *args, **kwargs))

    async def ask(
        self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._hop(lambda: self.read(function, *args, **kwargs))

    @contextmanager
    def _transaction(self, **options: Any) -> Generator[Connection]:
        announced = options[ANNOUNCED] = Announced(self.announcer)
        with (
            translated(self.address),
            self._engine.connect().execution_options(**options) as connection,
            connection.begin(),
        ):
            yield connection
            if steps := announced.for_others(connection):
                commit_together(connection, *steps)
        self.announcer.tell_here(announced.topics)

    async def _hop(self, work: Callable[[], T]) -> T:
        """One hop to a thread for the whole transaction.

        A transaction that has begun is not abandoned when its caller is cancelled: who would know its end?
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        started = self._threads.submit(copy_context().run, work)
        started.add_done_callback(
            lambda ended: loop.is_closed() or loop.call_soon_threadsafe(_pass_on, ended, answer)
        )
        try:
            return await answer
        except asyncio.CancelledError:
            if not started.cancel():
                await asyncio.wait([asyncio.wrap_future(started)])
            raise


def _pass_on(ended: Future[T], answer: asyncio.Future[T]) -> None:
    """By hand, where asyncio would make three futures of one: this is on the way of every statement."""
    if answer.cancelled():
        return
    error = ended.exception()
    if error is None:
        answer.set_result(ended.result())
    else:
        answer.set_exception(error)
