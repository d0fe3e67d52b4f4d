"""Savepoints: part of a transaction that can fail without ending it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import psycopg
from sqlalchemy import text
from sqlalchemy.exc import DataError, IntegrityError

from trax.errors import StoreError
from trax.store.announcing import notifications
from trax.store.dialect import is_sqlite
from trax.store.pipeline import run_together
from trax.store.text import hide_rows, hide_statement

if TYPE_CHECKING:
    from collections.abc import Generator

    from sqlalchemy import Connection

    from trax.store.pipeline import BoundStatement, Rows


BEGIN_PART: Final[BoundStatement] = (text("SAVEPOINT trax_part"), {})
UNDO_PART: Final = text("ROLLBACK TO SAVEPOINT trax_part")
COMMIT: Final[BoundStatement] = (text("COMMIT"), {})


class RowsRefused(StoreError):
    """The database rejected the values of these rows. The transaction can continue without them."""


def try_together(connection: Connection, *statements: BoundStatement, commit: bool = False) -> list[Rows]:
    """Run the statements behind a savepoint, in one round trip.

    With `commit` the announcements and the commit are sent in the same round trip. If a statement is
    rejected, the transaction continues: the server skips everything after the failure, the commit included.
    """
    if is_sqlite(connection):
        with savepoint(connection):
            return run_together(connection, *statements)
    before = [*notifications(connection), BEGIN_PART] if commit else [BEGIN_PART]
    after = [COMMIT] if commit else []  # otherwise a later commit releases the savepoint
    try:
        results = run_together(connection, *before, *statements, *after)
    except (psycopg.DataError, psycopg.IntegrityError) as error:
        connection.execute(UNDO_PART)
        raise RowsRefused(hide_rows(error)) from error
    if commit:
        connection.commit()  # already committed; this updates SQLAlchemy's state
    return results[len(before) :][: len(statements)]


@contextmanager
def savepoint(connection: Connection) -> Generator[None]:
    """Roll back only the block if the database rejects its rows."""
    try:
        with connection.begin_nested():
            yield
    except (DataError, IntegrityError) as error:
        raise RowsRefused(hide_statement(error)) from error
    except (psycopg.DataError, psycopg.IntegrityError) as error:  # COPY bypasses SQLAlchemy
        raise RowsRefused(hide_rows(error)) from error
