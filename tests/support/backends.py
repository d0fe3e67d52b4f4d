"""Looking at a PostgreSQL server from outside: who is connected, and cutting them off."""

from __future__ import annotations

import psycopg

from trax.store.engine import NAME_SUFFIX
from trax.store.listen import LISTENER_NAME

HERE = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


def listening(url: str) -> int:
    """How many processes listen."""
    with psycopg.connect(url) as connection:
        question = f"SELECT count(*) {HERE} AND application_name = %s AND query ILIKE 'listen%%'"
        found = connection.execute(question.encode(), [LISTENER_NAME]).fetchone()
    assert found
    return found[0]


def is_in_transaction(url: str, name: str) -> bool:
    """Whether a server whose URL has this name is in the middle of a transaction."""
    with psycopg.connect(url) as connection:
        question = f"SELECT 1 {HERE} AND application_name = %s AND xact_start IS NOT NULL"
        return connection.execute(question.encode(), [name + NAME_SUFFIX]).fetchone() is not None


def cut_off(url: str, *, only: str = "%") -> None:
    """End every connection whose program is called like this, in the middle of whatever it does."""
    with psycopg.connect(url, autocommit=True) as connection:
        ending = f"SELECT pg_terminate_backend(pid) {HERE} AND application_name LIKE %s"
        connection.execute(ending.encode(), [only])
