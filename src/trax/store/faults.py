"""Driver errors, wrapped once: what happened, whether trying again may help, what to do."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import psycopg
from sqlalchemy.exc import DBAPIError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from trax.errors import AccessDenied, SchemaNotMigrated, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Generator

TRANSIENT_CLASSES: Final = ("08", "40", "53", "55", "57", "58")
"""Connection, rollback, resources, lock not available, operator intervention, system error."""

DENIED: Final = {
    "28000": "refuses this user",
    "28P01": "refuses this password",
    "3D000": "has no such database",
    "42501": "does not give this user the right",
    "25006": "is read-only",
}
UNDEFINED: Final = {"42P01", "3F000", "42703"}
SQLITE_BUSY: Final = {"SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL"}
SQLITE_DENIED: Final = {"SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH", "SQLITE_NOTADB"}
MIGRATE: Final = "run `trax db migrate`"


@contextmanager
def translated(address: str) -> Generator[None]:
    """Let nothing of the driver's own leave the store."""
    try:
        yield
    except DBAPIError as error:
        raise _told(error.orig, address) from error
    except StatementError as error:  # a value no statement could be made of: the caller's own mistake
        raise (error.orig or error) from error
    except (psycopg.Error, sqlite3.Error) as error:
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
    if name in SQLITE_DENIED:
        return AccessDenied(f"{address}: {error}; check the file, its folder and their permissions")
    if "no such table" in str(error) or "no such column" in str(error):
        return SchemaNotMigrated(f"{address}: {error}; {MIGRATE}")
    return StoreError(f"{address}: {error}")
