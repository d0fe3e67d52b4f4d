"""Run store functions on a caller's connection, inside the caller's transaction.

Any SQLAlchemy connection or session works, blocking or async, over any driver of PostgreSQL or SQLite. Trax
only executes statements on it: the caller commits.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeAlias, TypeGuard, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, TwoPhaseTransaction, event
from sqlalchemy.exc import InvalidRequestError

from trax.errors import DefinitionError, SchemaNotMigrated, StoreError, format_value
from trax.store.faults import translate_errors
from trax.store.url import display_url, parse_url

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from sqlalchemy import RootTransaction
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, SessionTransaction, scoped_session

    AsyncCallerConnection: TypeAlias = AsyncConnection | AsyncSession
    SessionOrConnection: TypeAlias = Connection | Session | AsyncCallerConnection
    CallerConnection: TypeAlias = SessionOrConnection | scoped_session[Any] | async_scoped_session[Any]

P = ParamSpec("P")
T = TypeVar("T")

EXPECTED_TYPES: Final = "a SQLAlchemy Connection, Session, AsyncConnection or AsyncSession"
IN_MEMORY: Final = display_url(parse_url("memory://"))
LONGEST_PAUSE: Final = 0.05
ORM: Final = "sqlalchemy.orm"
ASYNC: Final = "sqlalchemy.ext.asyncio"


def resolve_connection(value: Any) -> SessionOrConnection:
    """Validate a caller's connection; a scoped session resolves to its current session."""
    connection: Any = (
        value()
        if _is_sqlalchemy(value, ORM, "scoped_session")
        or _is_sqlalchemy(value, ASYNC, "async_scoped_session")
        else value
    )
    if not (
        isinstance(connection, Connection)
        or _is_sqlalchemy(connection, ORM, "Session")
        or is_async(connection)
    ):
        raise DefinitionError(f"connection must be {EXPECTED_TYPES} (got {format_value(value)})")
    return connection


def is_async(connection: Any) -> TypeGuard[AsyncCallerConnection]:
    return _is_sqlalchemy(connection, ASYNC, "AsyncConnection") or _is_sqlalchemy(
        connection, ASYNC, "AsyncSession"
    )


def is_two_phase(connection: Connection) -> bool:
    """Whether the caller's transaction was begun as one that is prepared before it is committed."""
    return isinstance(connection.get_transaction(), TwoPhaseTransaction)


async def run_in_transaction(
    caller_connection: SessionOrConnection,
    app_address: str,
    function: Callable[Concatenate[Connection, P], T],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """Call a store function in the caller's transaction.

    The app's own store need not be open, and must not be opened now: on SQLite it would wait for the caller.
    A blocking connection is used in this thread, since it may belong to it.
    """
    if not is_async(caller_connection):
        return run_in_transaction_blocking(caller_connection, app_address, function, *args, **kwargs)
    with _translate_misuse():
        return await caller_connection.run_sync(
            lambda inner: run_in_transaction_blocking(inner, app_address, function, *args, **kwargs)
        )


def run_in_transaction_blocking(
    caller_connection: Any,
    app_address: str,
    function: Callable[Concatenate[Connection, P], T],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    with _translate_misuse():
        connection: Connection = (
            caller_connection if isinstance(caller_connection, Connection) else caller_connection.connection()
        )
    _refuse_another_database(connection, app_address)
    address = display_url(connection.engine.url)
    try:
        with _translate_misuse(), translate_errors(address):
            return function(connection, *args, **kwargs)
    except SchemaNotMigrated as error:
        raise SchemaNotMigrated(
            f"the connection is to {address}, where the Trax tables are missing or out of date; pass a "
            f"connection to the app's database, {app_address}, or run `trax db migrate` there"
        ) from error


@contextmanager
def _translate_misuse() -> Generator[None]:
    """Translate the error for a connection that is closed, or a session whose transaction has failed."""
    try:
        yield
    except InvalidRequestError as error:
        raise StoreError(f"connection cannot be used: {error}") from error


def after_commit(caller_connection: SessionOrConnection, callback: Callable[[], None]) -> None:
    """Call `callback` after the caller commits; once per transaction, however often it is registered."""
    target: Any = (
        getattr(caller_connection, "sync_session", None)
        or getattr(caller_connection, "sync_connection", None)
        or caller_connection
    )
    if target not in _callbacks:
        _callbacks[target] = {}
        _watch(target)
    _callbacks[target][callback] = None


def _is_sqlalchemy(value: Any, module: str, class_name: str) -> bool:
    """Whether a value is of this SQLAlchemy class, without an import: if it is, the module is loaded."""
    imported = sys.modules.get(module)
    return imported is not None and isinstance(value, getattr(imported, class_name))


def _refuse_another_database(connection: Connection, app_address: str) -> None:
    """Refuse a connection to another kind of database; two addresses of one kind are not compared."""
    ours, theirs = app_address.partition(":")[0], connection.dialect.name
    if app_address == IN_MEMORY:
        raise StoreError("the app's database is in memory; only its own connection can write to it")
    if ours != theirs:
        raise StoreError(f"the connection is to {theirs}, but the app's database is {app_address}")


_callbacks: WeakKeyDictionary[Connection | Session, dict[Callable[[], None], None]] = WeakKeyDictionary()


def _watch(target: Connection | Session) -> None:
    """Add permanent listeners: removing one while SQLAlchemy calls the others breaks their commit."""
    if isinstance(target, Connection):
        event.listen(target, "commit", _on_commit)
        event.listen(target, "rollback", _on_rollback)
        event.listen(target, "commit_twophase", _on_commit_of_two_phases)
        event.listen(target, "rollback_twophase", _on_rollback_of_two_phases)
    else:
        event.listen(target, "after_transaction_end", _on_session_end)


def _on_session_end(session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is None:  # not a savepoint within it
        for callback in _pop_callbacks(session):
            callback()


def _on_commit(connection: Connection) -> None:
    """Start a thread that waits for the commit: SQLAlchemy calls this before committing, not after."""
    callbacks, transaction = _pop_callbacks(connection), connection.get_transaction()
    if callbacks and transaction is not None:
        Thread(
            target=_call_after_transaction, args=(transaction, callbacks), name="trax commit", daemon=True
        ).start()


def _on_rollback(connection: Connection) -> None:
    _pop_callbacks(connection)


def _on_commit_of_two_phases(connection: Connection, _xid: Any, _is_prepared: bool) -> None:  # noqa: FBT001
    _on_commit(connection)


def _on_rollback_of_two_phases(connection: Connection, _xid: Any, _is_prepared: bool) -> None:  # noqa: FBT001
    _on_rollback(connection)


def _pop_callbacks(target: Connection | Session) -> list[Callable[[], None]]:
    callbacks, _callbacks[target] = list(_callbacks.get(target, ())), {}
    return callbacks


def _call_after_transaction(transaction: RootTransaction, callbacks: list[Callable[[], None]]) -> None:
    pause, seconds = Event(), 0.001
    while transaction.is_active:
        pause.wait(seconds)
        seconds = min(2 * seconds, LONGEST_PAUSE)
    for callback in callbacks:
        callback()
