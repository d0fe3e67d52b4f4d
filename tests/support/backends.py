"""Looking at a PostgreSQL server from outside: who is connected, and cutting them off."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import psycopg

from trax.store.engine import NAME_SUFFIX
from trax.store.listen import LISTENER_NAME

if TYPE_CHECKING:
    from collections.abc import Generator

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


@contextmanager
def read_only(url: str, *, only: str = "%") -> Generator[None]:
    """What a fail-over looks like to those who are connected to the old server, or come back too early."""
    _alter(url, "ALTER DATABASE {name} SET default_transaction_read_only = on")
    cut_off(url, only=only)
    yield
    _alter(url, "ALTER DATABASE {name} RESET default_transaction_read_only")


def _alter(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(statement.format(name=connection.info.dbname).encode())


@contextmanager
def every_connection(url: str, *, of: str) -> Generator[None]:
    """Have all connections that the server allows; programs called like this have none any more."""
    with ExitStack() as ours, psycopg.connect(url, autocommit=True) as connection:
        others = f"{HERE} AND application_name LIKE %s"
        while True:
            _connect_until_refused(url, ours)
            if not connection.execute(f"SELECT 1 {others}".encode(), [of]).fetchone():
                break
            connection.execute(f"SELECT pg_terminate_backend(pid) {others}".encode(), [of])
        yield


def _connect_until_refused(url: str, ours: ExitStack) -> None:
    while True:
        try:
            ours.enter_context(psycopg.connect(url, autocommit=True))
        except psycopg.OperationalError as refused:
            assert "too many clients" in str(refused), refused  # noqa: PT017 - this is how it ends
            return
