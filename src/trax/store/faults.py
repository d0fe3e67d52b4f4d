"""Driver errors, wrapped once: what happened, whether trying again may help, what to do.

Every fault is of one kind. Either it will pass (TRANSIENT), or somebody must put something in order first
(CONFIGURATION): what was to be written is still right, and is written later. Or the database, or the code
that makes the statement, refuses what was to be written (CONTENT): no later try would help.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

import psycopg
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from trax.errors import AccessDenied, SchemaNotMigrated, StoreError, StoreUnavailable
from trax.store.announcing import is_lent
from trax.store.dialect import is_sqlite
from trax.store.savepoint import Refused
from trax.store.text import hide_rows, hide_statement

if TYPE_CHECKING:
    from collections.abc import Generator

    from sqlalchemy import Connection

TRANSIENT_CLASSES: Final = ("08", "40", "53", "55", "57", "58")
"""Connection, rollback, resources, lock not available, operator intervention, system error."""

CONTENT_CLASSES: Final = ("22", "23", "54")
"""Data exception, integrity constraint violation, program limit exceeded: a row too long for an index."""

CONTENT_ERRORS: Final = (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError)

LOCK_NOT_AVAILABLE: Final = "55P03"
READ_ONLY: Final = "25006"
DENIED: Final = {
    "28000": "refuses this user",
    "28P01": "refuses this password",
    "3D000": "has no such database",
    "42501": "does not give this user the right",
    READ_ONLY: "is read-only",
}
UNDEFINED: Final = {"42P01", "3F000", "42703"}
SQLITE_BUSY: Final = {"SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL"}
SQLITE_FAILING: Final = {"SQLITE_FULL", "SQLITE_IOERR", "SQLITE_NOMEM", "SQLITE_INTERRUPT"}
SQLITE_CONTENT: Final = {"SQLITE_CONSTRAINT", "SQLITE_MISMATCH", "SQLITE_TOOBIG", "SQLITE_RANGE"}
SQLITE_DENIED: Final = {"SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH", "SQLITE_NOTADB"}
MIGRATE: Final = "run `trax db migrate`"


class Fault(Enum):
    """What may be done about a fault."""

    TRANSIENT = auto()
    CONFIGURATION = auto()
    CONTENT = auto()


def fault_of(error: BaseException) -> Fault:
    """The kind of an error that left the store.

    What is neither the database's nor the system's was raised while a statement was made: by its content.
    """
    match error:
        case Refused():
            return Fault.CONTENT
        case StoreError():
            return Fault.TRANSIENT if error.transient else Fault.CONFIGURATION
        case RecursionError():
            return Fault.CONTENT
        case OSError() | MemoryError() | RuntimeError() | SQLAlchemyError():
            return Fault.TRANSIENT
        case _:
            return Fault.CONTENT


def is_read_only(error: BaseException) -> bool:
    """Whether the server takes no writes, as a standby does."""
    return getattr(getattr(error, "orig", error), "sqlstate", None) == READ_ONLY


@contextmanager
def wait_no_longer(connection: Connection, *, seconds: float, what: str) -> Generator[None]:
    """Wait only so long for what other transactions hold; `what` is named in the error when that is over.

    A caller who lends us a transaction may have set a limit, which counts then, and finds it as it was after
    the block. SQLite has one lock, and its own limit for that.
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
            f"{what} is held by a transaction that was neither committed nor rolled back within "
            f"{f'{seconds:g} s' if before == NO_LIMIT else before}; end that transaction, and try again"
        ) from error
    if is_lent(connection):
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
def translated(address: str) -> Generator[None]:
    """Let nothing of the driver's own leave the store, and nothing of what rows hold."""
    try:
        yield
    except DBAPIError as error:
        hide_statement(error)
        raise _told(error.orig, address) from error
    except StatementError as error:  # a value no statement could be made of: the caller's own mistake
        error.hide_parameters = True
        raise (error.orig or error) from error
    except (psycopg.Error, sqlite3.Error) as error:
        hide_rows(error)
        raise _told(error, address) from error
    except PoolTimeout as error:
        raise StoreUnavailable(f"{address}: every pooled connection is in use, and none came free") from error


def _told(error: BaseException | None, address: str) -> StoreError:
    match error:
        case psycopg.Error():
            return _postgresql(error, address)
        case sqlite3.Error():
            return _sqlite(error, address)
        case BaseException() if getattr(
            error, "sqlstate", None
        ):  # another driver's, on a caller's connection
            return _postgresql(error, address)
        case _:
            return StoreError(f"{address}: {error}")


def _postgresql(error: BaseException, address: str) -> StoreError:
    said = str(error).strip()
    code: str = getattr(error, "sqlstate", None) or _code_of_refusal(said)
    if code in DENIED:
        return AccessDenied(f"{address} {DENIED[code]}: {said}")
    if code in UNDEFINED:
        return SchemaNotMigrated(f"{address}: {said}; {MIGRATE}")
    if code.startswith(TRANSIENT_CLASSES):
        return StoreUnavailable(f"{address}: {said}")
    if not code and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return StoreUnavailable(f"{address} cannot be reached: {' '.join(said.split())}")
    # What the driver itself refuses has no code: half of a character, or a type it does not know.
    if code.startswith(CONTENT_CLASSES) or (not code and isinstance(error, CONTENT_ERRORS)):
        return Refused(f"{address}: {said}")
    return StoreError(f"{address}: {said}")


def _code_of_refusal(said: str) -> str:
    """A connection that is refused carries no code, only the server's words."""
    for words, code in (
        ("password authentication failed", "28P01"),
        ("no password supplied", "28P01"),
        ("no pg_hba.conf entry", "28000"),
        ('role "', "28000"),
        ('database "', "3D000"),
    ):
        if words in said:
            return code if "starting up" not in said and "shutting down" not in said else ""
    return ""


def _sqlite(error: sqlite3.Error, address: str) -> StoreError:
    # Extended codes such as SQLITE_READONLY_DIRECTORY begin with the plain one.
    name = "_".join(getattr(error, "sqlite_errorname", "").split("_")[:2])
    if name in SQLITE_BUSY:
        return StoreUnavailable(f"{address} is busy: {error}")
    if name in SQLITE_FAILING:
        return StoreUnavailable(f"{address}: {error}; check the disk, its free space and the memory")
    if name in SQLITE_DENIED:
        return AccessDenied(f"{address}: {error}; check the file, its folder and their permissions")
    if "no such table" in str(error) or "no such column" in str(error):
        return SchemaNotMigrated(f"{address}: {error}; {MIGRATE}")
    is_unbindable = not name and ("binding" in str(error) or isinstance(error, sqlite3.DataError))
    if name in SQLITE_CONTENT or is_unbindable:
        return Refused(f"{address}: {error}")
    return StoreError(f"{address}: {error}")
