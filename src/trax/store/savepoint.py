"""A part of a transaction that may fail alone."""

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

    from trax.store.pipeline import Rows, Step


BEGIN_PART: Final[Step] = (text("SAVEPOINT trax_part"), {})
UNDO_PART: Final = text("ROLLBACK TO SAVEPOINT trax_part")
COMMIT: Final[Step] = (text("COMMIT"), {})


class Refused(StoreError):
    """The database refused these rows for what they hold; a part of a transaction may go on without them."""


def try_together(connection: Connection, *steps: Step, commit: bool = False) -> list[Rows]:
    """Run these in one trip, as a part of the transaction that may fail alone.

    With `commit` the transaction ends in the same trip, and what was announced is told. When these are
    refused it goes on instead: the server skips what comes after a failure, and so the commit as well.
    """
    if is_sqlite(connection):
        with savepoint(connection):
            return run_together(connection, *steps)
    before = [*notifications(connection), BEGIN_PART] if commit else [BEGIN_PART]
    after = [COMMIT] if commit else []  # without it, a later commit ends the part as well
    try:
        results = run_together(connection, *before, *steps, *after)
    except (psycopg.DataError, psycopg.IntegrityError) as error:
        connection.execute(UNDO_PART)
        raise Refused(hide_rows(error)) from error
    if commit:
        connection.commit()  # nothing is left to do, but SQLAlchemy must know
    return results[len(before) :][: len(steps)]


@contextmanager
def savepoint(connection: Connection) -> Generator[None]:
    """Undo only what the block did when the database refuses its rows."""
    try:
        with connection.begin_nested():
            yield
    except (DataError, IntegrityError) as error:
        raise Refused(hide_statement(error)) from error
    except (psycopg.DataError, psycopg.IntegrityError) as error:  # a COPY goes past SQLAlchemy
        raise Refused(hide_rows(error)) from error
