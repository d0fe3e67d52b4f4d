"""A database that is prepared once for all tests of a module: each begins with the rows that were kept."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from sqlalchemy import create_engine, text

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

    def restore(self) -> None:
        with self.begin_unchecked() as connection:
            for name, copy in self._copies.items():
                connection.execute(text(f"DELETE FROM {name}"))  # noqa: S608
                connection.execute(text(f"INSERT INTO {name} SELECT * FROM {copy}"))  # noqa: S608
