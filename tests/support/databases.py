"""A database of its own for each test: a copy of one template, made once a session."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from itertools import count
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy import make_url

from trax.store import Store

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Self

TEMPLATE = "trax_template"
IN_MEMORY_TOO = pytest.mark.parametrize("url", ["memory", "sqlite", "postgresql"], indirect=True)
"""For some tests of each layer: SQLite in memory is SQLite, with one connection instead of a pool."""


@contextmanager
def scratch_database(server: str, name: str) -> Generator[str]:
    """An empty database on this server, for a process that shares no template with others."""
    url = make_url(server)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield url.set(database=name).render_as_string(hide_password=False)
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


class PostgresDatabases:
    """Gives out databases on one server, migrated or empty."""

    def __init__(self, server: str) -> None:
        self._server = make_url(server)
        self._kept: psycopg.Connection | None = None
        self._numbers = count(1)
        self._execute(f"DROP DATABASE IF EXISTS {TEMPLATE}", f"CREATE DATABASE {TEMPLATE}")
        store = Store(self._address(TEMPLATE))
        store.open()
        store.close()

    @contextmanager
    def database(self, *, migrated: bool = True, language: str = "") -> Generator[str]:
        """One of another language than the server's cannot be a copy of the migrated one."""
        name = f"trax_test_{next(self._numbers)}"
        source = TEMPLATE if migrated and not language else "template0"
        spoken = f" LOCALE_PROVIDER icu ICU_LOCALE '{language}'" if language else ""
        self._execute(f"CREATE DATABASE {name} TEMPLATE {source} STRATEGY FILE_COPY{spoken}")
        try:
            yield self._address(name)
        finally:
            self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _address(self, name: str) -> str:
        return self._server.set(database=name).render_as_string(hide_password=False)

    @contextmanager
    def on_one_connection(self) -> Generator[Self]:
        """For a server that stays: a new connection takes as long as the drop of a database."""
        with self._connect() as self._kept:
            yield self
        self._kept = None

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(self._server.render_as_string(hide_password=False), autocommit=True)

    def _execute(self, *statements: str) -> None:
        with self._connect() if self._kept is None else nullcontext(self._kept) as connection:
            for statement in statements:
                connection.execute(statement.encode())
