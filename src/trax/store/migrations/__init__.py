"""Schema migrations: Alembic runs the revisions, each written in plain SQL per dialect.

env.py     the Alembic environment
versions/  the revisions

Each revision is `versions/NNNN_name.py` with `NNNN_name.postgresql.sql` and `NNNN_name.sqlite.sql`. The
numbers give the order, so an up-to-date database is recognised without importing Alembic.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import String, column, inspect, select, table
from sqlalchemy.schema import CreateSchema

from trax.errors import SchemaNotMigrated, SchemaTooNew
from trax.store.dialect import is_sqlite, lift_limits, take_migration_lock
from trax.store.schema.define import PREFIX, SCHEMA

if TYPE_CHECKING:
    from sqlalchemy import Connection

HERE = Path(__file__).parent
_alembic_lock = Lock()  # Alembic's `context` and `op` are global: one migration per process at a time


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """The schema revision in the database, compared to the one this code needs."""

    current: str | None
    wanted: str
    state: Literal["missing", "old", "current", "newer"]


def migrate(connection: Connection) -> SchemaStatus:
    """Upgrade the schema. Servers that start at the same time wait here for the first one."""
    lift_limits(connection)
    before = status(connection)
    if before.state in ("missing", "old"):
        take_migration_lock(connection, None if before.state == "missing" else f"{SCHEMA}.alembic_version")
        before = status(connection)
    _refuse_newer(before)
    if before.state == "current":
        return before
    if not is_sqlite(connection):
        connection.execute(CreateSchema(SCHEMA, if_not_exists=True))
    _upgrade(connection)
    return status(connection)


def ensure_current(connection: Connection) -> SchemaStatus:
    """Raise unless the schema is at the revision this code needs."""
    found = status(connection)
    _refuse_newer(found)
    if found.state != "current":
        is_missing = found.state == "missing"
        problem = "there are no Trax tables" if is_missing else f"the schema is at {found.current}"
        raise SchemaNotMigrated(
            f"{problem}, this version of Trax needs {found.wanted}; run `trax db migrate`"
        )
    return found


def status(connection: Connection) -> SchemaStatus:
    return compare_revision(_current(connection))


def compare_revision(current: str | None) -> SchemaStatus:
    known = revisions()
    wanted = known[-1]
    if current is None:
        return SchemaStatus(None, wanted, "missing")
    if current == wanted:
        return SchemaStatus(current, wanted, "current")
    return SchemaStatus(current, wanted, "old" if current in known else "newer")


def revisions() -> list[str]:
    """List the revision numbers in this package, oldest first."""
    return sorted(file.name.partition("_")[0] for file in (HERE / "versions").glob("[0-9]*_*.py"))


def version_table(connection: Connection) -> dict[str, Any]:
    if is_sqlite(connection):
        return {"version_table": f"{PREFIX}alembic_version", "version_table_schema": None}
    return {"version_table": "alembic_version", "version_table_schema": SCHEMA}


def _current(connection: Connection) -> str | None:
    location = version_table(connection)
    name, schema = str(location["version_table"]), location["version_table_schema"]
    if not inspect(connection).has_table(name, schema=schema):
        return None
    version = column("version_num", String)
    return connection.execute(select(version).select_from(table(name, version, schema=schema))).scalar()


def _refuse_newer(found: SchemaStatus) -> None:
    if found.state == "newer":
        raise SchemaTooNew(
            f"the schema is at {found.current}, this version of Trax supports up to {found.wanted}; "
            "upgrade Trax on this server before starting it"
        )


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(HERE).replace("%", "%%"))
    config.attributes["connection"] = connection
    with _alembic_lock:
        command.upgrade(config, "head")


def run_sql_file(revision_file: str) -> None:
    """Run `NNNN_name.<dialect>.sql` of a revision statement by statement, in the migration's transaction."""
    from alembic import op

    connection = op.get_bind()
    script = Path(revision_file).with_suffix(f".{connection.dialect.name}.sql")
    for statement in script.read_text(encoding="utf-8").split(";\n"):
        if statement.strip():
            connection.exec_driver_sql(statement)
