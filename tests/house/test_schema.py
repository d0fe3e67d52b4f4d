"""The tables in code are the tables the migrations make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.schema import CreateSchema

from trax.store import Store
from trax.store.schema import tables
from trax.store.schema.define import SCHEMA

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Connection
    from tests.support.databases import PostgresDatabases

CATALOGUE = {
    "columns": """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
               pg_get_expr(d.adbin, d.adrelid)
        FROM pg_attribute a
        JOIN pg_class c ON c.oid = a.attrelid
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE c.relnamespace = 'trax'::regnamespace AND c.relkind = 'r' AND a.attnum > 0
    """,
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = 'trax'::regnamespace
    """,
    "indexes": "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'trax'",
    "functions": "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'trax'::regnamespace",
    "storage": "SELECT relname, reloptions FROM pg_class WHERE relnamespace = 'trax'::regnamespace",
}


def postgresql_catalogue(connection: Connection) -> dict[str, list[Any]]:
    found = {what: connection.execute(text(query)) for what, query in CATALOGUE.items()}
    return {
        what: sorted(repr(tuple(row)) for row in rows if "alembic" not in str(row))
        for what, rows in found.items()
    }


def sqlite_catalogue(connection: Connection) -> dict[str, str]:
    query = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE '%alembic%'"
    return {name: " ".join(sql.split()) for name, sql in connection.execute(text(query))}


def create_from_code(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(CreateSchema(SCHEMA))
    tables(connection).all.create_all(connection)


def test_a_fresh_sqlite_schema_equals_a_migrated_one(tmp_path: Path) -> None:
    fresh, migrated = Store(f"sqlite:///{tmp_path}/fresh.db"), Store(f"sqlite:///{tmp_path}/migrated.db")

    fresh.run(create_from_code)
    migrated.open()

    made = fresh.read(sqlite_catalogue)
    assert len(made) > 8
    assert made == migrated.read(sqlite_catalogue)
    fresh.close()
    migrated.close()


def test_a_fresh_postgresql_schema_equals_a_migrated_one(
    postgres_databases: PostgresDatabases, postgres_url: str
) -> None:
    with postgres_databases.database(migrated=False) as empty_url:
        fresh, migrated = Store(empty_url), Store(postgres_url)

        fresh.run(create_from_code)

        made = fresh.read(postgresql_catalogue)
        assert all(made.values())
        assert made == migrated.read(postgresql_catalogue)
        fresh.close()
        migrated.close()
