"""A database of its own for each measurement, on one server."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import make_url

if TYPE_CHECKING:
    from collections.abc import Generator

_numbers: Final = count(1)


@contextmanager
def database(server: str, *, template: str = "template0") -> Generator[str]:
    """A copy of the template, by default an empty database; dropped after the block."""
    name = sql.Identifier(f"trax_bench_{next(_numbers)}")
    address = make_url(server).set(database=name.as_string().strip('"'))
    with psycopg.connect(server, autocommit=True) as connection:
        copied = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(name, sql.Identifier(template))
        connection.execute(copied)
        try:
            yield address.render_as_string(hide_password=False)
        finally:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def vacuum_and_checkpoint(url: str) -> None:
    """Vacuum, analyze and checkpoint now, so that the server does not do it during the measurement."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


def commits(server: str, url: str) -> int:
    """The number of transactions in a database, read from another one so that the read does not count."""
    name = conninfo_to_dict(url)["dbname"]
    query = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s"
    with psycopg.connect(server) as connection:
        row = connection.execute(query, (name,)).fetchone()
    return int(row[0]) if row else 0
