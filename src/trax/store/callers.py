"""Connections that callers lend us, to write inside a transaction of theirs.

Any SQLAlchemy connection or session will do, blocking or async, over any driver of our two databases. We
execute statements on it and nothing else: it is the caller who commits.
"""

from __future__ import annotations

import sys
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeAlias, TypeGuard, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, event

from trax.errors import DefinitionError, SchemaNotMigrated, StoreError, shown
from trax.store.faults import translated
from trax.store.url import parsed_url, shown_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import RootTransaction
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, SessionTransaction, scoped_session

    AsyncLent: TypeAlias = AsyncConnection | AsyncSession
    Lent: TypeAlias = Connection | Session | AsyncLent
    Lendable: TypeAlias = Lent | scoped_session[Any] | async_scoped_session[Any]

P = ParamSpec("P")
T = TypeVar("T")

WANTED: Final = "a SQLAlchemy Connection, Session, AsyncConnection or AsyncSession"
IN_MEMORY: Final = shown_url(parsed_url("memory://"))
LONGEST_PAUSE: Final = 0.05
ORM: Final = "sqlalchemy.orm"
ASYNC: Final = "sqlalchemy.ext.asyncio"


def checked(given: Any) -> Lent:
    """What a caller gave as a connection; of a registry of sessions, the session of the moment."""
    lent: Any = (
        given()
        if _is_a(given, ORM, "scoped_session") or _is_a(given, ASYNC, "async_scoped_session")
        else given
    )
    if not (isinstance(lent, Connection) or _is_a(lent, ORM, "Session") or is_async(lent)):
        raise DefinitionError(f"connection must be {WANTED} (got {shown(given)})")
    return lent


def is_async(lent: Any) -> TypeGuard[AsyncLent]:
    return _is_a(lent, ASYNC, "AsyncConnection") or _is_a(lent, ASYNC, "AsyncSession")


async def within(
    lent: Lent,
    app_address: str,
    function: Callable[Concatenate[Connection, P], T],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """Call a store function in the caller's transaction.

    The app's own store need not be open, and must not be opened now: in SQLite it would wait for the caller.
    A blocking connection is used right here, like all else that the caller does with it.
    """
    if not is_async(lent):
        return within_blocking(lent, app_address, function, *args, **kwargs)
    return await lent.run_sync(lambda inner: within_blocking(inner, app_address, function, *args, **kwargs))


def within_blocking(
    lent: Any,
    app_address: str,
    function: Callable[Concatenate[Connection, P], T],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    connection: Connection = lent if isinstance(lent, Connection) else lent.connection()
    _refuse_another_database(connection, app_address)
    address = shown_url(connection.engine.url)
    try:
        with translated(address):
            return function(connection, *args, **kwargs)
    except SchemaNotMigrated as missing:
        raise SchemaNotMigrated(
            f"the connection leads to {address}, where Trax has no tables or older ones; give a connection "
            f"to the app's own database, {app_address}, or run `trax db migrate` there"
        ) from missing


def after_commit(lent: Lent, tell: Callable[[], None]) -> None:
    """Call back once the caller has committed, once however often this is asked for in a transaction."""
    target: Any = getattr(lent, "sync_session", None) or getattr(lent, "sync_connection", None) or lent
    if target not in _to_tell:
        _to_tell[target] = {}
        _watch(target)
    _to_tell[target][tell] = None


def _is_a(given: Any, module: str, kind: str) -> bool:
    """Whether a value is of a class of SQLAlchemy's. Whoever has such a value has loaded its module."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(given, getattr(loaded, kind))


def _refuse_another_database(connection: Connection, app_address: str) -> None:
    """What surely leads elsewhere is refused; two addresses of one server cannot be told apart from here."""
    ours, theirs = app_address.partition(":")[0], connection.dialect.name
    if app_address == IN_MEMORY:
        raise StoreError("the app's database is in memory, where no connection but its own can write")
    if ours != theirs:
        raise StoreError(f"the connection leads to {theirs}, but the app's database is {app_address}")


_to_tell: WeakKeyDictionary[Connection | Session, dict[Callable[[], None], None]] = WeakKeyDictionary()


def _watch(target: Connection | Session) -> None:
    """Listen once and for good: a listener that is taken away while others are called breaks their commit."""
    if isinstance(target, Connection):
        event.listen(target, "commit", _committing)
        event.listen(target, "rollback", _forget)
    else:
        event.listen(target, "after_transaction_end", _session_ended)


def _session_ended(session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is None:  # not a savepoint within it
        for tell in _taken(session):
            tell()


def _committing(connection: Connection) -> None:
    """A connection says that it will commit, not that it has: a thread waits out that moment."""
    tells, transaction = _taken(connection), connection.get_transaction()
    if tells and transaction is not None:
        Thread(target=_tell_when_over, args=(transaction, tells), name="trax commit", daemon=True).start()


def _forget(connection: Connection) -> None:
    _taken(connection)


def _taken(target: Connection | Session) -> list[Callable[[], None]]:
    tells, _to_tell[target] = list(_to_tell.get(target, ())), {}
    return tells


def _tell_when_over(transaction: RootTransaction, tells: list[Callable[[], None]]) -> None:
    pause, seconds = Event(), 0.001
    while transaction.is_active:
        pause.wait(seconds)
        seconds = min(2 * seconds, LONGEST_PAUSE)
    for tell in tells:
        tell()
