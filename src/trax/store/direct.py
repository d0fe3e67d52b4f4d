"""Run transactions of a single round trip on PostgreSQL from an event loop, without a thread.

A switch to a thread and back takes as long as a small statement, and twice its processor time. While runs
keep the interpreter busy, the thread also waits for its turn. So an event loop with many such transactions
keeps connections of the pool for a while. Threads still handle the first calls, a second call at the same
time, and a lost connection.
"""

from __future__ import annotations

import asyncio
import time
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from psycopg import Error as DriverError
from psycopg import InterfaceError, OperationalError
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import InFailedSqlTransaction, error_from_result
from psycopg.pq import ExecStatus
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from trax.store.faults import is_read_only, note_loss
from trax.store.pipeline import AT_COMMIT, check_size
from trax.store.postgresql import MAX_PREPARED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import PoolProxiedConnection
    from sqlalchemy.sql.compiler import SQLCompiler

    from trax.store.pipeline import BoundStatement, Rows
    from trax.store.postgresql import PostgresqlConnection

CHECK_SECONDS: Final = 1.0
"""How often to check whether a response is late; and how long an idle connection is kept."""
SUCCESS: Final = {ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK, ExecStatus.EMPTY_QUERY}


class _Prepared(NamedTuple):
    """A statement to send: by its name if it is prepared, else as text."""

    text: bytes
    name: bytes | None
    values: Sequence[Any]
    transformer: Any
    """Converted the values, and will convert the rows."""


class _NoParameters:
    """Stands for the transformer of a statement without parameters."""

    types = formats = None


_BEGIN: Final = _Prepared(b"BEGIN ISOLATION LEVEL READ COMMITTED", None, (), _NoParameters)
_COMMIT: Final = _Prepared(b"COMMIT", None, (), _NoParameters)


class DirectConnection:
    """A connection for one transaction at a time, of statements that do not depend on each other's rows.

    Its event loop listens to the socket until it was idle for a moment: then it goes back to the pool.
    """

    def __init__(self, pooled: PoolProxiedConnection) -> None:
        self._pooled: PoolProxiedConnection | None = pooled
        self._driver: PostgresqlConnection = cast("Any", pooled.driver_connection)
        self._pgconn = self._driver.pgconn
        self._socket = self._pgconn.socket
        self._names: dict[tuple[bytes, tuple[int, ...]], bytes] = {}
        self._response: asyncio.Future[Any] | None = None
        self._results: list[Any] = []
        self._is_synced = False
        """Whether the response ends with a synchronisation, and not with the first statement."""
        self._is_used = False
        self._is_over = False
        self._sent_at = time.monotonic()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._advance)
        self._timer = self._loop.call_later(CHECK_SECONDS, self._check)

    @property
    def is_open(self) -> bool:
        return self._pooled is not None

    @property
    def is_free(self) -> bool:
        return self._pooled is not None and not self._is_used

    @property
    def is_abandoned(self) -> bool:
        """Whether its event loop has ended."""
        return self._loop.is_closed()

    def close_when_free(self) -> None:
        """Close it, from any thread: now, or when its statement has ended."""
        self._is_over = True
        if self._loop.is_closed():
            self._close()
        elif _is_running_here(self._loop):
            self._close_if_free()
        else:
            self._loop.call_soon_threadsafe(self._close_if_free)

    async def run(self, *statements: BoundStatement) -> list[Rows]:
        """Run the statements as one transaction, in one round trip; return the rows of each."""
        self._is_used = True
        try:
            return await self._run(statements)
        except Exception as error:
            is_lost = self._pooled is None or self._driver.closed or _is_unanswered(error)
            if is_lost and isinstance(error, DriverError):
                note_loss(error)
            if is_lost or is_read_only(error):  # after a fail-over it leads to the standby
                self._close()
            raise
        finally:
            self._is_used = False
            if self._is_over:
                self._close()

    async def _run(self, statements: Sequence[BoundStatement]) -> list[Rows]:
        prepared = [await self._prepare(*statement) for statement in statements]
        if self._driver.is_own_session:
            results = await self._run_alone(prepared)
        else:
            results = await self._run_explicitly(prepared)
        return [_load_rows(each, result) for each, result in zip(prepared, results, strict=True)]

    async def _run_alone(self, prepared: Sequence[_Prepared]) -> list[Any]:
        """Run them as an implicit transaction, which ends with the response."""
        if len(prepared) == 1:
            self._send(prepared[0])
            return _check(await self._receive(), 1, self._driver)
        return _check(await self._run_in_pipeline(prepared), len(prepared), self._driver)

    async def _run_explicitly(self, prepared: Sequence[_Prepared]) -> list[Any]:
        """Run them between BEGIN and COMMIT: behind a pooler, a session has its own isolation level."""
        sent = [_BEGIN, *prepared, _COMMIT]
        results = _check(await self._run_in_pipeline(sent), len(sent), self._driver)
        if (tag := results[-1].command_status) != _COMMIT.text:
            raise InFailedSqlTransaction(f"the transaction was rolled back: COMMIT was answered with {tag}")
        return results[1:-1]

    async def _run_in_pipeline(self, prepared: Sequence[_Prepared]) -> list[Any]:
        """Up to the synchronisation at the end, all statements are one transaction."""
        self._pgconn.enter_pipeline_mode()
        for each in prepared:
            self._send(each)
        self._pgconn.pipeline_sync()
        results = await self._receive(is_synced=True)
        self._pgconn.exit_pipeline_mode()
        return results

    def _send(self, prepared: _Prepared) -> None:
        text, name, values, transformer = prepared
        if name is None:
            self._pgconn.send_query_params(text, values, transformer.types, transformer.formats)
        else:
            self._pgconn.send_query_prepared(name, values, transformer.formats)

    async def _prepare(self, statement: Any, parameters: Mapping[str, Any]) -> _Prepared:
        """What to send; its name is None behind a pooler, where nothing must be prepared."""
        text, names, constants = _compile(statement)
        given = {**constants, **parameters}
        transformer: Any = Transformer(self._driver)
        values = transformer.dump_sequence([given[name] for name in names], [PyFormat.AUTO] * len(names))
        check_size(values)
        types = transformer.types or ()
        name = self._names.get((text, types))
        has_room = len(self._names) < MAX_PREPARED
        if name is None and has_room and self._driver.prepare_threshold is not None:
            name = f"trax_{next(_numbers)}".encode()
            self._pgconn.send_prepare(name, text, types)
            _check(await self._receive(), 1, self._driver)
            self._names[text, types] = name
        return _Prepared(text, name, values, transformer)

    async def _receive(self, *, is_synced: bool = False) -> list[Any]:
        """Send the remaining data, and return all responses, in a pipeline up to the synchronisation.

        If the caller is cancelled, wait for the statements that were sent: otherwise their result is unknown.
        """
        self._response = self._loop.create_future()
        self._is_synced = is_synced
        self._sent_at = time.monotonic()
        if self._pgconn.flush():
            self._loop.add_writer(self._socket, self._advance)
        try:
            return await self._response
        except asyncio.CancelledError:
            await self._wait_for_end()
            if is_synced and self._pooled is not None:
                self._pgconn.exit_pipeline_mode()
            raise

    async def _wait_for_end(self) -> None:
        """Wait for a response that is not needed, unless it has arrived; if cancelled again, close."""
        if self._response is None:
            return
        response = self._response = self._loop.create_future()
        try:
            await asyncio.wait([response])
        except asyncio.CancelledError:
            self._close()
            raise
        response.exception()  # otherwise asyncio logs that it was never retrieved

    def _advance(self) -> None:
        """Read and write what the socket is ready for."""
        try:
            if not self._pgconn.flush():
                self._loop.remove_writer(self._socket)
            self._pgconn.consume_input()
            while self._response is not None and not self._pgconn.is_busy():
                result = self._pgconn.get_result()
                if result is not None and result.status != ExecStatus.PIPELINE_SYNC:
                    self._results.append(result)
                elif result is not None or not self._is_synced:
                    self._end_response()
        except Exception as error:  # noqa: BLE001 - raised in the waiting call
            self._close(error)

    def _end_response(self) -> None:
        results, self._results = self._results, []
        response, self._response = self._response, None
        if response is not None and not response.done():
            response.set_result(results)

    def _check(self) -> None:
        """Close the connection if the response is late; return it to the pool if it is idle."""
        if self._response is not None:
            self._advance()  # uvloop reports a lost connection once, maybe with data that must be read first
        silent = time.monotonic() - self._sent_at
        if self._response is not None and silent >= self._driver.wait_limits.seconds_for(None):
            self._close(OperationalError(f"no response for {silent:.1f} s; the connection was closed"))
        elif not self._is_used and silent >= CHECK_SECONDS and (pooled := self._leave()) is not None:
            pooled.close()
        elif self._pooled is not None:
            self._timer = self._loop.call_later(CHECK_SECONDS, self._check)

    def _close_if_free(self) -> None:
        if not self._is_used:
            self._close()

    def _close(self, error: Exception | None = None) -> None:
        """Close the connection; a call that waits for a response gets the error."""
        if (pooled := self._leave()) is not None:
            pooled.invalidate(error)
        response, self._response = self._response, None
        if response is not None and not response.done() and not self._loop.is_closed():
            response.set_exception(error or OperationalError("the connection was closed"))

    def _leave(self) -> PoolProxiedConnection | None:
        """Stop listening; returns the connection, if it was not closed or returned before."""
        pooled, self._pooled = self._pooled, None
        if pooled is not None and not self._loop.is_closed():
            self._timer.cancel()
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        return pooled


def _is_unanswered(error: Exception) -> bool:
    """Whether it is an error of the connection, and not the server's response to a statement."""
    return isinstance(error, OperationalError | InterfaceError) and error.sqlstate is None


def _check(results: list[Any], number: int, driver: Any) -> list[Any]:
    """Raise the first error among the responses to this number of statements.

    A statement may succeed, and the implicit commit after it fail: that is one response more.
    """
    for at, result in enumerate(results):
        if result.status not in SUCCESS:
            error = error_from_result(result, driver.info.encoding)
            if at == number:
                error.add_note(AT_COMMIT)
            raise error
    if len(results) != number:
        raise OperationalError(f"received {len(results)} responses to {number} statements")
    return results


def _load_rows(prepared: _Prepared, result: Any) -> Rows:
    prepared.transformer.set_pgresult(result)
    return prepared.transformer.load_rows(0, result.ntuples, tuple)


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


_numbers: Final = count()

_NUMBERED: Final = PGDialect_psycopg(paramstyle="numeric_dollar")


@lru_cache(maxsize=256)
def _compile(statement: Any) -> tuple[bytes, Sequence[str], Mapping[str, Any]]:
    """The SQL text with `$1`, the names of the parameters in order, and those with a value of their own."""
    compiled: SQLCompiler = statement.compile(dialect=_NUMBERED)
    required = {each.key for each in compiled.binds.values() if each.required}
    constants = {name: value for name, value in compiled.params.items() if name not in required}
    return compiled.string.encode(), compiled.positiontup or (), constants
