"""The door to the database."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from threading import Lock
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from trax.clock import utc_now
from trax.errors import StoreUnavailable
from trax.store import dialect
from trax.store.announcing import ANNOUNCED, Announced, Announcer
from trax.store.engine import LAST_SECONDS, READING, Patience, Timeouts, open_engine
from trax.store.faults import is_read_only, translated
from trax.store.migrations import ensure_current, migrate
from trax.store.pipeline import commit_together
from trax.store.url import MEMORY, parsed_url, shown_url

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from concurrent.futures import Future
    from datetime import datetime

    from sqlalchemy import Connection, Engine

    from trax.clock import Clock

P = ParamSpec("P")
T = TypeVar("T")

CLOSE_SECONDS: Final = 10.0

logger = logging.getLogger(__name__)


class Store:
    """Runs functions in transactions: `run` and `read` here and now, `call` and `ask` from async code.

    `read` and `ask` are for functions that only look: in SQLite they do not wait for a writer.

    A store has lanes, each with threads and connections of its own. Callers use the store itself, the loops
    of a server `engine_lane`, and the dashboard beside them `web_lane`: however many visitors or callers wait
    for somebody's lock, a worker beats and writes endings.
    """

    def __init__(
        self,
        address: str,
        *,
        clock: Clock | None = None,
        pool_size: int = 5,
        announcer: Announcer | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        url = parsed_url(address)
        self.announcer = announcer or Announcer()
        self.address = shown_url(url)
        self._clock = clock
        self._url, self._pool_size = url, pool_size
        self.timeouts = timeouts or Timeouts()
        self._patience = Patience(self.timeouts)
        with translated(self.address):
            self._lane = _Lane(self._open_engine(), pool_size)
        self._lanes = {self._lane}
        self._views: dict[str, Store] = {}
        self._lock = Lock()

    def open(self, *, skip_migrations: bool = False) -> None:
        """Bring the tables up to date, or with `skip_migrations` only make sure that they are."""
        self.run(ensure_current if skip_migrations else migrate)

    def hurry(self) -> None:
        """From now on wait for no answer longer than a few seconds: this process is to end."""
        self._patience.at_most = min(self._patience.at_most, LAST_SECONDS)

    @property
    def engine_lane(self) -> Store:
        """The same store for the loops of a server."""
        return self._view("engine")

    @property
    def web_lane(self) -> Store:
        """The same store for the dashboard of a process."""
        return self._view("web")

    def _view(self, name: str) -> Store:
        """Made when first asked for, and closed with this."""
        with self._lock:
            if name not in self._views:
                is_shared = self._url.database == MEMORY  # that lives in its one connection
                engine = self._lane.engine if is_shared else self._open_engine()
                self._views[name] = _LaneView(self, _Lane(engine, self._pool_size))
            return self._views[name]

    def close(self) -> None:
        """Let transactions under way end. One that hangs is given up, so that the process can end."""
        for lane in self._lanes:
            lane.threads.shutdown(wait=False, cancel_futures=True)
        stuck = wait([one for lane in self._lanes for one in lane.under_way.copy()], CLOSE_SECONDS).not_done
        if stuck:
            text = "%s: %s transactions did not end within %s s; their connections are closed"
            logger.warning(text, self.address, len(stuck), CLOSE_SECONDS)
            self._patience.at_most = 0.0
            wait(stuck, CLOSE_SECONDS)
        for lane in self._lanes:
            lane.engine.dispose()

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
            _abandon_if_read_only(connection),
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
        try:
            started = self._lane.threads.submit(copy_context().run, work)
        except RuntimeError as closed:
            raise StoreUnavailable(f"{self.address} was closed by this process") from closed
        self._lane.under_way.add(started)
        started.add_done_callback(
            lambda ended: loop.is_closed() or loop.call_soon_threadsafe(_pass_on, ended, answer)
        )
        started.add_done_callback(self._lane.under_way.discard)
        try:
            return await answer
        except asyncio.CancelledError:
            if not started.cancel():
                await asyncio.wait([asyncio.wrap_future(started)])
            raise

    @property
    def _engine(self) -> Engine:
        return self._lane.engine

    def _open_engine(self) -> Engine:
        return open_engine(self._url, pool_size=self._pool_size, patience=self._patience)


class _Lane:
    """Threads and connections, as many as each other: a thread without one could only wait."""

    def __init__(self, engine: Engine, pool_size: int) -> None:
        self.engine = engine
        self.threads = ThreadPoolExecutor(2 * pool_size, thread_name_prefix="trax-store")
        self.under_way: set[Future[Any]] = set()


class _LaneView(Store):
    """A store that shares everything with another one but its lane."""

    def __init__(self, store: Store, lane: _Lane) -> None:
        vars(self).update(vars(store))
        self._lane = lane
        self._lanes.add(lane)


@contextmanager
def _abandon_if_read_only(connection: Connection) -> Generator[None]:
    """After a fail-over the old server may go on as a standby: the next connection leads to the new one."""
    try:
        yield
    except Exception as error:
        if is_read_only(error):
            connection.invalidate()
        raise


def _pass_on(ended: Future[T], answer: asyncio.Future[T]) -> None:
    """By hand, where asyncio would make three futures of one: this is on the way of every statement."""
    if answer.cancelled():
        return
    if ended.cancelled():
        answer.set_exception(StoreUnavailable("the database was closed before this transaction could begin"))
        return
    error = ended.exception()
    if error is None:
        answer.set_result(ended.result())
    else:
        answer.set_exception(error)
