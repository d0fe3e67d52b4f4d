"""A part of a transaction that may fail alone."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
from sqlalchemy.exc import DataError, IntegrityError

from trax.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Generator

    from sqlalchemy import Connection


class Refused(StoreError):
    """The database refused these rows; the transaction goes on without them."""


@contextmanager
def savepoint(connection: Connection) -> Generator[None]:
    """Undo only what the block did when the database refuses its rows."""
    try:
        with connection.begin_nested():
            yield
    except (DataError, IntegrityError) as error:
        raise Refused(str(error.orig).strip()) from error
    except (psycopg.DataError, psycopg.IntegrityError) as error:  # a COPY goes past SQLAlchemy
        raise Refused(str(error).strip()) from error
