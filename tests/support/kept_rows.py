"""A database that is prepared once for all tests of a module: each begins with the rows that were kept."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from sqlalchemy import create_engine, event, text

from trax.store.schema import tables_for
from trax.store.types import SQLITE
from trax.store.url import parse_url

if TYPE_CHECKING:
    from collections.abc import Generator

    import pytest
    from sqlalchemy import Connection
    from tests.support.databases import PostgresDatabases

DIALECTS = ["sqlite", "postgresql"]


@contextmanager
def module_database(
    request: pytest.FixtureRequest, folders: pytest.TempPathFactory, dialect: str
) -> Generator[str]:
    """A migrated database, as the fixture `url` gives to one test."""
    if dialect == SQLITE:
        file = folders.mktemp("kept") / "trax.db"
        shutil.copyfile(request.getfixturevalue("migrated_file"), file)
        yield f"sqlite:///{file}"
    else:
        databases: PostgresDatabases = request.getfixturevalue("postgres_databases")
        with databases.database() as address:
            yield address


class KeptRows:
    """A copy of all rows, beside them in the same database."""

    def __init__(self, url: str) -> None:
        self.engine = create_engine(parse_url(url))
        self.dialect = self.engine.dialect.name
        self._lifted: list[str] = []
        """Statements that restore the rules that were lifted."""
        names = [table.fullname for table in tables_for(self.dialect).all.sorted_tables]
        self._copies = {name: f"kept_{name.rpartition('.')[2]}" for name in names}
        with self.engine.begin() as connection:
            for name, copy in self._copies.items():
                connection.execute(text(f"CREATE TABLE {copy} AS SELECT * FROM {name}"))  # noqa: S608

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.dispose()

    @contextmanager
    def begin_unchecked(self) -> Generator[Connection]:
        """A transaction that no foreign key refuses: only a broken server or an editor of rows has one."""
        with self.engine.begin() as connection:
            if self.dialect != SQLITE:
                connection.execute(text("SET LOCAL session_replication_role = replica"))
            yield connection

    def lift_check(self, table: str, name: str) -> None:
        """Remove a check from a table, as it is for rows of before the check; until `restore`."""
        if self.dialect == SQLITE:
            event.listen(self.engine, "begin", _ignore_checks)
            return
        with self.engine.begin() as connection:
            query = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = :name"
            definition = connection.execute(text(query), {"name": name}).scalar_one()
            connection.execute(text(f"ALTER TABLE {table} DROP CONSTRAINT {name}"))
        self._lifted.append(f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}")

    def lift_index(self, name: str) -> None:
        """Remove a unique index, until `restore`."""
        is_sqlite = self.dialect == SQLITE
        query = (
            "SELECT sql FROM sqlite_master WHERE name = :name"
            if is_sqlite
            else "SELECT indexdef FROM pg_indexes WHERE indexname = :name"
        )
        name = f"trax_{name}" if is_sqlite else name
        with self.engine.begin() as connection:
            definition = connection.execute(text(query), {"name": name}).scalar_one()
            connection.execute(text(f"DROP INDEX {name if is_sqlite else 'trax.' + name}"))
        self._lifted.append(definition)

    def restore(self) -> None:
        with self.begin_unchecked() as connection:
            for name, copy in self._copies.items():
                connection.execute(text(f"DELETE FROM {name}"))  # noqa: S608
                connection.execute(text(f"INSERT INTO {name} SELECT * FROM {copy}"))  # noqa: S608
        if event.contains(self.engine, "begin", _ignore_checks):
            event.remove(self.engine, "begin", _ignore_checks)
        with self.engine.begin() as connection:
            while self._lifted:
                connection.execute(text(self._lifted.pop()))


def _ignore_checks(connection: Connection) -> None:
    connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
