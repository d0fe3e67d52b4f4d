"""`Store`: run functions in database transactions, from sync and async code."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext, suppress
from contextvars import copy_context
from threading import Condition, Lock
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import event

from trax.clock import utc_now
from trax.errors import StoreError, StoreUnavailable
from trax.forks import bind_to_process, fork_safe, keep_inherited, rest_while_forking
from trax.store import dialect
from trax.store.announce import ANNOUNCEMENTS_OPTION, Announcements, Announcer
from trax.store.engine import LAST_SECONDS, Timeouts, WaitLimits, open_engine
from trax.store.faults import is_read_only, note_loss, translate_errors
from trax.store.migrations import ensure_current, migrate
from trax.store.pipeline import commit_alone, commit_together
from trax.store.types import SQLITE
from trax.store.url import IN_MEMORY, MEMORY, display_url, parse_url

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from datetime import datetime

    from sqlalchemy import Connection, Engine, PoolProxiedConnection

    from trax.clock import Clock
    from trax.events import Topic
    from trax.store.direct import DirectConnection
    from trax.store.pipeline import BoundStatement, Rows

logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

READ_ONLY_OPTION: Final = "trax_reading"
CLOSE_SECONDS: Final = 10.0
FORK_SECONDS: Final = 5.0
"""How long a fork waits for transactions of other threads to end."""
NO_GATE: Final = nullcontext()
OPEN_DIRECT_AFTER: Final = 5
"""How many calls of an event loop go through threads before it gets its own connection."""


class Store:
    """Runs functions in transactions: `run` and `read` from sync code, `call` and `ask` from async code.

    `read` and `ask` are for functions that only read: in SQLite they do not wait for a writer.

    A store has lanes, each with its own threads and connections. Users call the store itself, the loops of a
    server use `engine_lane`, and the dashboard uses `web_lane`: so a worker can write heartbeats and results
    even when many web requests or callers wait for a lock.
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
        url = parse_url(address)
        self.announcer = announcer or Announcer()
        self.address = display_url(url)
        self._clock = clock
        self._url, self._pool_size = url, pool_size
        self.timeouts = timeouts or Timeouts()
        self._wait_limits = WaitLimits(self.timeouts)
        self._lock = fork_safe(Lock())
        is_file = url.drivername == SQLITE and url.database != MEMORY
        self._rest = TransactionGate() if is_file else None
        with translate_errors(self.address):
            self._lane = _Lane(self._open_engine(), pool_size)
        self._lanes = {self._lane}
        self._views: dict[str, Store] = {}
        bind_to_process(self)
        if self._rest is not None:
            rest_while_forking(self)

    def reset_in_child(self) -> None:
        """Open connections and threads of this process on the next use; those of the parent stay its own."""
        self.announcer.reset_in_child()
        if self._rest is not None:
            self._rest.reset_in_child()
        if self._url.database == MEMORY:
            engine: Any = _ParentsMemory(self._lane.engine.dialect)
            engines = dict.fromkeys(self._lanes, engine)
        else:
            engines = {lane: self._open_engine() for lane in self._lanes}
        for lane, engine in engines.items():
            lane.reset_in_child(engine)

    def close_for_fork(self) -> None:
        """SQLite knows its locks by process: a connection that is open at a fork holds none in the child."""
        assert self._rest is not None  # noqa: S101 - else it is not called
        if not self._rest.close(FORK_SECONDS):
            text = "database %s: a transaction did not end within %g s before this process forked"
            logger.warning(text, self.address, FORK_SECONDS)
        for lane in self._lanes:
            lane.engine.dispose()

    def open_after_fork(self) -> None:
        assert self._rest is not None  # noqa: S101 - else it is not called
        self._rest.open()

    def open(self, *, skip_migrations: bool = False) -> None:
        """Migrate the schema, or with `skip_migrations` only check that it is current."""
        self.run(ensure_current if skip_migrations else migrate)

    def shorten_timeouts(self) -> None:
        """Limit every wait for the database to a few seconds from now on, because the process is stopping."""
        self._wait_limits.max_seconds = min(self._wait_limits.max_seconds, LAST_SECONDS)

    @property
    def engine_lane(self) -> Store:
        """The same store on the lane for the loops of a server."""
        return self._lane_view("engine")

    @property
    def web_lane(self) -> Store:
        """The same store on the lane for the dashboard."""
        return self._lane_view("web")

    def _lane_view(self, name: str) -> Store:
        """Return the named lane's view, created on first use and closed with this store."""
        with self._lock:
            if name not in self._views:
                is_shared = self._url.database == MEMORY  # an in-memory database has only one connection
                engine = self._lane.engine if is_shared else self._open_engine()
                self._views[name] = _LaneView(self, _Lane(engine, self._pool_size, open_direct_after=1))
            return self._views[name]

    def close(self) -> None:
        """Wait for open transactions, then close. A transaction that hangs is abandoned."""
        for lane in self._lanes:
            if lane.direct is not None:
                lane.direct.close()
            lane.threads.shutdown(wait=False, cancel_futures=True)
        stuck = wait(
            [future for lane in self._lanes for future in lane.under_way.copy()], CLOSE_SECONDS
        ).not_done
        if stuck:
            text = "database %s: %s transactions did not end within %s s; their connections are closed"
            logger.warning(text, self.address, len(stuck), CLOSE_SECONDS)
            self._wait_limits.max_seconds = 0.0
            wait(stuck, CLOSE_SECONDS)
        for lane in self._lanes:
            lane.engine.dispose()

    @property
    def dialect_name(self) -> str:
        """`postgresql` or `sqlite`."""
        return self._engine.dialect.name

    @property
    def has_busy_threads(self) -> bool:
        """Whether a thread of this store runs a transaction or is about to."""
        return bool(self._lane.under_way)

    def now(self, connection: Connection) -> datetime:
        """Return the time of the database, or of the clock that a test has set."""
        return self._clock() if self._clock else dialect.now(connection)

    def statement_now(self) -> datetime | None:
        """Return the time to bind as `:now`; None on PostgreSQL: there the statement reads the clock."""
        if self._clock is not None:
            return self._clock()
        return utc_now() if self.dialect_name == SQLITE else None

    def run(self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run_transaction({}, lambda connection: function(connection, *args, **kwargs))

    def read(self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        options = {READ_ONLY_OPTION: True}
        return self._run_transaction(options, lambda connection: function(connection, *args, **kwargs))

    async def call(
        self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._run_in_thread(lambda: self.run(function, *args, **kwargs))

    async def ask(
        self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._run_in_thread(lambda: self.read(function, *args, **kwargs))

    def run_alone(self, statement: BoundStatement, topic: Topic) -> Rows:
        """Run one statement as a whole transaction, in one round trip; announce the topic if it returns rows.

        It gets the parameter `now`, as in `statement_now`; on PostgreSQL also `payload`, which it must send
        as a notification unless it is None.
        """
        bound = self._bind_alone(statement, topic)
        rows = self._connect({}, lambda connection: commit_alone(connection, bound))
        if rows:
            self.announcer.emit({topic})
        return rows

    async def call_alone(self, statement: BoundStatement, topic: Topic) -> Rows:
        """The same from async code; without a thread, for an event loop that does it often on PostgreSQL."""
        direct = await self._find_direct()
        if direct is None:
            return await self._run_in_thread(lambda: self.run_alone(statement, topic))
        [rows] = await self._run_direct(direct, self._bind_alone(statement, topic))
        if rows:
            self.announcer.emit({topic})
        return rows

    async def call_together(self, *statements: BoundStatement) -> list[Rows]:
        """Run statements as one transaction, in one round trip, and return the rows of each.

        They announce nothing. Without a thread, like `call_alone`.
        """
        direct = await self._find_direct()
        if direct is None:
            return await self.call(commit_together, *statements)
        return await self._run_direct(direct, *statements)

    async def _run_direct(self, direct: DirectConnection, *statements: BoundStatement) -> list[Rows]:
        try:
            return await direct.run(*statements)
        except Exception:
            with translate_errors(self.address):
                raise

    async def _find_direct(self) -> DirectConnection | None:
        """A free connection of this event loop; None if the call must go through a thread."""
        connections = self._lane.direct
        if connections is None:
            return None
        direct = connections.find()
        if direct is None and connections.must_open():
            direct = await self._open_direct(connections)
        return direct

    async def _open_direct(self, connections: DirectConnections) -> DirectConnection | None:
        def check_out() -> PoolProxiedConnection:
            with translate_errors(self.address):
                return self._engine.raw_connection()

        with suppress(StoreError):  # the call goes through a thread, which will fail too
            connections.add(await self._run_in_thread(check_out))
        return connections.find()

    def _bind_alone(self, statement: BoundStatement, topic: Topic) -> BoundStatement:
        sql, given = statement
        parameters = {**given, "now": self.statement_now()}
        if self.dialect_name != SQLITE:
            parameters["payload"] = self.announcer.payload(topic)
        return sql, parameters

    def _run_transaction(self, options: dict[str, Any], function: Callable[[Connection], T]) -> T:
        announced = options[ANNOUNCEMENTS_OPTION] = Announcements(self.announcer)

        def transaction(connection: Connection) -> T:
            with connection.begin():
                result = function(connection)
                if steps := announced.take_notifications(connection):
                    commit_together(connection, *steps)
            return result

        result = self._connect(options, transaction)
        self.announcer.emit(announced.topics)
        return result

    def _connect(self, options: dict[str, Any], function: Callable[[Connection], T]) -> T:
        """Call the function with a connection that has these options."""
        try:
            with self._rest or NO_GATE, self._engine.connect() as connection:
                try:
                    return function(connection.execution_options(**options) if options else connection)
                except Exception as error:
                    if _is_lost(connection):
                        note_loss(error)
                    # After a fail-over it leads to the standby; a new one finds the primary.
                    if is_read_only(error) or _is_stuck(connection):
                        connection.invalidate()
                    raise
        except Exception:
            with translate_errors(self.address):
                raise

    async def _run_in_thread(self, work: Callable[[], T]) -> T:
        """Run a whole transaction in a thread of the lane.

        If the caller is cancelled, wait for a transaction that has begun: otherwise its result is unknown.
        """
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[T] = loop.create_future()
        try:
            future = self._lane.threads.submit(copy_context().run, work)
        except RuntimeError as closed:
            raise StoreUnavailable(f"{self.address}: the store was closed by this process") from closed
        under_way = self._lane.under_way
        under_way.add(future)

        def hand_over(finished: Future[T]) -> None:
            under_way.discard(finished)
            if not loop.is_closed():
                loop.call_soon_threadsafe(_copy_result, finished, waiter)

        future.add_done_callback(hand_over)
        try:
            return await waiter
        except asyncio.CancelledError:
            if not future.cancel():
                await asyncio.wait([asyncio.wrap_future(future)])
            raise

    @property
    def _engine(self) -> Engine:
        return self._lane.engine

    def _open_engine(self) -> Engine:
        engine = open_engine(self._url, pool_size=self._pool_size, wait_limits=self._wait_limits)
        if engine.dialect.name == SQLITE:
            event.listen(engine, "begin", _begin_sqlite)
        return engine


def _begin_sqlite(connection: Connection) -> None:
    """Take the write lock at BEGIN: a reader that turns into a writer would fail instead of waiting."""
    reading = connection.get_execution_options().get(READ_ONLY_OPTION, False)
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


def _is_lost(connection: Connection) -> bool:
    return connection.invalidated or getattr(connection.connection.driver_connection, "closed", False)


def _is_stuck(connection: Connection) -> bool:
    """Whether the connection can neither go on nor roll back; see `PostgresqlConnection.is_stuck`."""
    return not connection.invalidated and getattr(connection.connection.driver_connection, "is_stuck", False)


class TransactionGate:
    """Counts the transactions of a store, and can keep new ones waiting."""

    def __init__(self) -> None:
        self._changed = Condition(Lock())
        self._inside = 0
        self._is_closed = False

    def __enter__(self) -> None:
        with self._changed:
            while self._is_closed:
                self._changed.wait()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._inside -= 1
            if self._is_closed:
                self._changed.notify_all()

    def close(self, seconds: float) -> bool:
        """Let no transaction begin, and wait until none is under way; False if that takes too long.

        The lock is held until `open`, so that a forked process gets it from the thread that forks.
        """
        self._changed.acquire()
        self._is_closed = True
        return self._changed.wait_for(lambda: self._inside == 0, seconds)

    def reset_in_child(self) -> None:
        """Transactions that did not end in time go on in the parent."""
        self._inside = 0

    def open(self) -> None:
        self._is_closed = False
        self._changed.notify_all()
        self._changed.release()


class _ParentsMemory:
    """Stands for the engine of an in-memory database in a forked process: that has only a copy of it."""

    def __init__(self, dialect: Any) -> None:
        self.dialect = dialect

    def connect(self) -> Any:
        raise StoreError(
            f"{IN_MEMORY} was opened before this process was forked, and belongs to the parent; use a file "
            "or PostgreSQL, or open the app after the fork"
        )

    def dispose(self) -> None: ...


class _Lane:
    """An engine with a thread for each of its connections (pool and overflow)."""

    def __init__(self, engine: Engine, pool_size: int, *, open_direct_after: int = OPEN_DIRECT_AFTER) -> None:
        self._pool_size, self._open_direct_after = pool_size, open_direct_after
        self._start(engine)

    def reset_in_child(self, engine: Engine) -> None:
        keep_inherited(self.engine, self.threads, self.under_way, self.direct)
        self._start(engine)

    def _start(self, engine: Engine) -> None:
        size = self._pool_size
        self.engine = engine
        self.threads = ThreadPoolExecutor(2 * size, thread_name_prefix="trax-store")
        self.under_way: set[Future[Any]] = set()
        is_sqlite = engine.dialect.name == SQLITE
        self.direct = None if is_sqlite else DirectConnections(max(1, size // 2), self._open_direct_after)


class DirectConnections:
    """Connections of event loops that run many transactions of one round trip: a few for all of them."""

    def __init__(self, limit: int, open_after: int = OPEN_DIRECT_AFTER) -> None:
        self._limit = limit
        self._open_after = open_after
        self._lock = Lock()
        self._calls: WeakKeyDictionary[asyncio.AbstractEventLoop, int] = WeakKeyDictionary()
        self._connections: dict[int, list[DirectConnection]] = {}
        self._is_closed = False

    def find(self) -> DirectConnection | None:
        """A free connection of this event loop, if it has one."""
        for connection in self._connections.get(id(asyncio.get_running_loop()), ()):
            if connection.is_free:
                return connection
        return None

    def must_open(self) -> bool:
        """Count a call without a free connection; True if this event loop makes so many that it needs one."""
        loop = asyncio.get_running_loop()
        with self._lock:
            self._forget_closed()
            if sum(map(len, self._connections.values())) >= self._limit:
                return False
            calls = self._calls[loop] = self._calls.get(loop, 0) + 1
            return calls % self._open_after == 0

    def add(self, pooled: PoolProxiedConnection) -> None:
        """Use this connection for the running event loop."""
        from trax.store.direct import DirectConnection

        number = id(asyncio.get_running_loop())
        with self._lock:
            if self._is_closed:
                pooled.close()
            else:
                self._connections.setdefault(number, []).append(DirectConnection(pooled))

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            connections = [each for of_loop in self._connections.values() for each in of_loop]
        for connection in connections:
            connection.close_when_free()

    def _forget_closed(self) -> None:
        for number, connections in list(self._connections.items()):
            for connection in connections:
                if connection.is_abandoned:
                    connection.close_when_free()
            connections[:] = [connection for connection in connections if connection.is_open]
            if not connections:
                del self._connections[number]


class _LaneView(Store):
    """A store that shares everything but its lane with another store."""

    def __init__(self, store: Store, lane: _Lane) -> None:
        vars(self).update(vars(store))
        self._lane = lane
        self._lanes.add(lane)


def _copy_result(finished: Future[T], waiter: asyncio.Future[T]) -> None:
    """Copy the result by hand: `asyncio.wrap_future` is slower, and this runs for every transaction."""
    if waiter.cancelled():
        return
    if finished.cancelled():
        waiter.set_exception(StoreUnavailable("the store was closed before this transaction could begin"))
        return
    error = finished.exception()
    if error is None:
        waiter.set_result(finished.result())
    else:
        waiter.set_exception(error)
