"""Translate and classify driver errors; savepoints, and limits on waiting for locks."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from sqlalchemy import text
from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    OperationalError,
    SQLAlchemyError,
    StatementError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout

from trax.errors import AccessDenied, RowsRefused, SchemaNotMigrated, StoreError, StoreUnavailable
from trax.lazy import LazyModule
from trax.store.announce import is_caller_connection, notifications
from trax.store.dialect import is_sqlite
from trax.store.pipeline import AT_COMMIT, commit_together, run_together
from trax.store.types import hide_rows, hide_statement

if TYPE_CHECKING:
    from collections.abc import Generator

    import psycopg
    from sqlalchemy import Connection

    from trax.store.pipeline import BoundStatement, Rows
else:
    psycopg = LazyModule("psycopg")  # not loaded for SQLite, except after an error


BEGIN_PART: Final[BoundStatement] = (text("SAVEPOINT trax_part"), {})

UNDO_PART: Final = text("ROLLBACK TO SAVEPOINT trax_part")

TRANSIENT_CLASSES: Final = ("08", "40", "53", "55", "57", "58")
"""Connection, rollback, resources, lock not available, operator intervention, system error."""

CONTENT_CLASSES: Final = ("22", "23", "54")
"""Data exception, integrity constraint violation, program limit exceeded: a row too long for an index."""

LIMIT_CLASS: Final = "54"
"""In a statement, a row is too long for an index, for example; psycopg takes it for a problem of the server.
At a commit it is one, and passes: the queue of notifications is full."""

FATAL: Final = ("FATAL", "PANIC")
"""Severities after which the server ends the session."""

LOST: Final = "The connection was lost."
"""A note on an error that was raised while its connection was lost."""

LOCK_NOT_AVAILABLE: Final = "55P03"

READ_ONLY: Final = "25006"

DENIED: Final = {
    "28000": "rejects this user",
    "28P01": "rejects this password",
    "3D000": "has no such database",
    "42501": "does not permit this to this user",
    READ_ONLY: "is read-only",
}

UNDEFINED: Final = {"42P01", "3F000", "42703"}

SQLITE_BUSY: Final = {"SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL"}

SQLITE_IO_ERROR: Final = "SQLITE_IOERR"
"""At a commit: it may have reached the disk, and is found there after a restart."""

SQLITE_FAILING: Final = {"SQLITE_FULL", SQLITE_IO_ERROR, "SQLITE_NOMEM", "SQLITE_INTERRUPT"}

SQLITE_CONTENT: Final = {"SQLITE_CONSTRAINT", "SQLITE_MISMATCH", "SQLITE_TOOBIG", "SQLITE_RANGE"}

SQLITE_UNREADABLE: Final = ("Could not decode to UTF-8", "malformed JSON")
"""Messages of SQLite about invalid values in a row edited by hand."""

SQLITE_DENIED: Final = {"SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH", "SQLITE_NOTADB"}

MIGRATE: Final = "run `trax db migrate`"


class Fault(Enum):
    """What can be done about an error of the store."""

    TRANSIENT = auto()
    CONFIGURATION = auto()
    CONTENT = auto()


def fault_of(error: BaseException) -> Fault:
    """Classify an error raised by the store.

    An error that is neither the database's nor the system's was raised while building a statement: CONTENT.
    """
    match error:
        case RowsRefused():
            return Fault.CONTENT
        case StoreError():
            return Fault.TRANSIENT if error.transient else Fault.CONFIGURATION
        case RecursionError():
            return Fault.CONTENT
        case OSError() | MemoryError() | RuntimeError() | SQLAlchemyError():
            return Fault.TRANSIENT
        case _:
            return Fault.CONTENT


def note_loss(error: BaseException) -> None:
    """Note on a driver error that its connection is lost: whatever it says, the outcome is unknown."""
    getattr(error, "orig", error).add_note(LOST)


def is_read_only(error: BaseException) -> bool:
    """Whether the server accepts no writes, like a standby."""
    return getattr(getattr(error, "orig", error), "sqlstate", None) == READ_ONLY


@contextmanager
def limit_lock_wait(connection: Connection, *, seconds: float, what: str) -> Generator[None]:
    """Limit how long this block waits for locks of other transactions; the error names `what`.

    A limit already set on a caller's connection takes precedence, and is restored after the block. SQLite has
    one lock, with its own limit.
    """
    if is_sqlite(connection):
        yield
        return
    limit = {"limit": f"{seconds * 1000:.0f}ms"}
    before = connection.execute(_LIMIT_LOCK_WAITS, limit).scalar_one()
    try:
        yield
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != LOCK_NOT_AVAILABLE:
            raise
        hide_statement(error)
        raise StoreUnavailable(
            f"{what} is locked by a transaction that was neither committed nor rolled back within "
            f"{f'{seconds:g} s' if before == NO_LIMIT else before}; end that transaction and try again"
        ) from error
    if is_caller_connection(connection):
        connection.execute(_SET_LOCK_TIMEOUT, {"limit": before})


NO_LIMIT: Final = "0"

_SET_LOCK_TIMEOUT: Final = text("SELECT set_config('lock_timeout', :limit, true)")

_LIMIT_LOCK_WAITS: Final = text(
    """
    SELECT before, set_config('lock_timeout', CASE before WHEN '0' THEN :limit ELSE before END, true)
    FROM (SELECT current_setting('lock_timeout') AS before OFFSET 0) AS settings
    """
)


@contextmanager
def translate_errors(address: str) -> Generator[None]:
    """Translate driver errors raised in this block, and remove row values from their messages."""
    try:
        yield
    except DBAPIError as error:
        hide_statement(error)
        raise _translate(error.orig, address) from error
    except StatementError as error:  # a value that cannot be bound: an error of the caller
        error.hide_parameters = True
        raise (error.orig or error) from error
    except (psycopg.Error, sqlite3.Error) as error:
        hide_rows(error)
        raise _translate(error, address) from error
    except PoolTimeout as error:
        raise StoreUnavailable(
            f"{address}: all pooled connections are in use; none became free in time"
        ) from error


def _translate(error: BaseException | None, address: str) -> StoreError:
    match error:
        case psycopg.Error() if _has_unknown_outcome(error):
            message = " ".join(str(error).split())
            return _outcome_error(f"{address}: the connection was lost before the answer: {message}")
        case psycopg.Error():
            return _translate_postgresql(error, address)
        case sqlite3.Error():
            return _translate_sqlite(error, address)
        case BaseException() if getattr(
            error, "sqlstate", None
        ):  # another driver's error, on a caller's connection
            return _translate_postgresql(error, address)
        case _:
            return StoreError(f"{address}: {error}")


def _translate_postgresql(error: BaseException, address: str) -> StoreError:
    content = (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError)
    message = str(error).strip()
    code: str = getattr(error, "sqlstate", None) or _code_of_refusal(message)
    if code in DENIED:
        return AccessDenied(f"{address} {DENIED[code]}: {message}")
    if code in UNDEFINED:
        return SchemaNotMigrated(f"{address}: {message}; {MIGRATE}")
    if code.startswith(TRANSIENT_CLASSES) or _is_limit_of_server(error, code):
        return StoreUnavailable(f"{address}: {message}")
    if not code and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return StoreUnavailable(f"{address} cannot be reached: {' '.join(message.split())}")
    # An error of the driver itself has no code: a lone surrogate, or an unknown type.
    if code.startswith(CONTENT_CLASSES) or (not code and isinstance(error, content)):
        return RowsRefused(f"{address}: {message}")
    return StoreError(f"{address}: {message}")


def _has_unknown_outcome(error: psycopg.Error) -> bool:
    """Whether the session ended before the server said how the transaction ended.

    An error of an attempt to connect has its connection.
    """
    if error.pgconn is not None:
        return False
    if error.sqlstate is not None:
        return error.sqlstate.startswith("08") or error.diag.severity_nonlocalized in FATAL
    is_unanswered = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return is_unanswered or LOST in getattr(error, "__notes__", ())


def _outcome_error(message: str) -> StoreUnavailable:
    error = StoreUnavailable(message)
    error.may_be_committed = True
    return error


def _is_limit_of_server(error: BaseException, code: str) -> bool:
    """Whether it is a limit that has nothing to do with the rows: only then it passes."""
    return code.startswith(LIMIT_CLASS) and AT_COMMIT in getattr(error, "__notes__", ())


def _code_of_refusal(message: str) -> str:
    """The SQLSTATE of a refused connection, by its message: libpq gives no code."""
    for phrase, code in (
        ("password authentication failed", "28P01"),
        ("no password supplied", "28P01"),
        ("no pg_hba.conf entry", "28000"),
        ('role "', "28000"),
        ('database "', "3D000"),
    ):
        if phrase in message:
            return code if "starting up" not in message and "shutting down" not in message else ""
    return ""


def _translate_sqlite(error: sqlite3.Error, address: str) -> StoreError:
    # Extended codes such as SQLITE_READONLY_DIRECTORY begin with the primary code.
    name = "_".join(getattr(error, "sqlite_errorname", "").split("_")[:2])
    if name in SQLITE_BUSY:
        return StoreUnavailable(f"{address} is busy: {error}")
    if name in SQLITE_FAILING:
        message = f"{address}: {error}; check the disk, its free space, and memory"
        return _outcome_error(message) if name == SQLITE_IO_ERROR else StoreUnavailable(message)
    if name in SQLITE_DENIED:
        return AccessDenied(f"{address}: {error}; check the file, its folder and their permissions")
    if "no such table" in str(error) or "no such column" in str(error):
        return SchemaNotMigrated(f"{address}: {error}; {MIGRATE}")
    is_unbindable = not name and ("binding" in str(error) or isinstance(error, sqlite3.DataError))
    is_unreadable = any(phrase in str(error) for phrase in SQLITE_UNREADABLE)
    if name in SQLITE_CONTENT or is_unbindable or is_unreadable:
        return RowsRefused(f"{address}: {error}")
    return StoreError(f"{address}: {error}")


def try_together(connection: Connection, *statements: BoundStatement, commit: bool = False) -> list[Rows]:
    """Run the statements behind a savepoint, in one round trip.

    With `commit` the announcements and the commit are sent in the same round trip. If a statement is
    rejected, the transaction continues: the server skips everything after the failure, the commit included.
    """
    if is_sqlite(connection):
        with savepoint(connection):
            return run_together(connection, *statements)
    before = [*notifications(connection), BEGIN_PART] if commit else [BEGIN_PART]
    run = commit_together if commit else run_together  # a later commit releases the savepoint, too
    try:
        results = run(connection, *before, *statements)
    except (psycopg.DataError, psycopg.IntegrityError) as error:
        if AT_COMMIT in getattr(error, "__notes__", ()):
            raise  # the transaction is over, with all its rows
        connection.execute(UNDO_PART)
        raise RowsRefused(hide_rows(error)) from error
    return results[len(before) :]


@contextmanager
def savepoint(connection: Connection) -> Generator[None]:
    """Roll back only the block if the database rejects its rows."""
    try:
        with connection.begin_nested():
            yield
    except (DataError, IntegrityError) as error:
        raise RowsRefused(hide_statement(error)) from error
    except OperationalError as error:
        if not (getattr(error.orig, "sqlstate", None) or "").startswith(LIMIT_CLASS):
            raise
        raise RowsRefused(hide_statement(error)) from error
    except (sqlite3.DataError, sqlite3.IntegrityError) as error:  # `run_together` bypasses SQLAlchemy
        raise RowsRefused(hide_rows(error)) from error
    except (psycopg.DataError, psycopg.IntegrityError) as error:  # and so does COPY
        raise RowsRefused(hide_rows(error)) from error
