"""How the tables came to be. Alembic keeps the order, plain SQL per dialect keeps the words.

Each revision is `versions/NNNN_name.py` beside `NNNN_name.postgresql.sql` and `NNNN_name.sqlite.sql`. They
follow each other by number, so a database that is up to date is recognised without loading Alembic.
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
_alembic = Lock()  # its `context` and `op` are global: one migration a process at a time


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """How the tables found compare to those this code wants."""

    current: str | None
    wanted: str
    state: Literal["missing", "old", "current", "newer"]


def migrate(connection: Connection) -> SchemaStatus:
    """Bring the tables up to date. Servers that start together wait here for the first of them."""
    lift_limits(connection)
    take_migration_lock(connection)
    before = status(connection)
    _refuse_newer(before)
    if before.state == "current":
        return before
    if not is_sqlite(connection):
        connection.execute(CreateSchema(SCHEMA, if_not_exists=True))
    _upgrade(connection)
    return status(connection)


def ensure_current(connection: Connection) -> SchemaStatus:
    """Refuse to work on tables other than this code's."""
    found = status(connection)
    _refuse_newer(found)
    if found.state != "current":
        what = "there are no Trax tables" if found.state == "missing" else f"the schema is at {found.current}"
        raise SchemaNotMigrated(f"{what}, this version of Trax needs {found.wanted}; run `trax db migrate`")
    return found


def status(connection: Connection) -> SchemaStatus:
    return compared(_current(connection))


def compared(current: str | None) -> SchemaStatus:
    known = revisions()
    wanted = known[-1]
    if current is None:
        return SchemaStatus(None, wanted, "missing")
    if current == wanted:
        return SchemaStatus(current, wanted, "current")
    return SchemaStatus(current, wanted, "old" if current in known else "newer")


def revisions() -> list[str]:
    """The numbers of all revisions this code knows, oldest first."""
    return sorted(file.name.partition("_")[0] for file in (HERE / "versions").glob("[0-9]*_*.py"))


def version_table(connection: Connection) -> dict[str, Any]:
    if is_sqlite(connection):
        return {"version_table": f"{PREFIX}alembic_version", "version_table_schema": None}
    return {"version_table": "alembic_version", "version_table_schema": SCHEMA}


def _current(connection: Connection) -> str | None:
    where = version_table(connection)
    name, schema = str(where["version_table"]), where["version_table_schema"]
    if not inspect(connection).has_table(name, schema=schema):
        return None
    version = column("version_num", String)
    return connection.execute(select(version).select_from(table(name, version, schema=schema))).scalar()


def _refuse_newer(found: SchemaStatus) -> None:
    if found.state == "newer":
        raise SchemaTooNew(
            f"the schema is at {found.current}, this version of Trax knows it up to {found.wanted}; "
            "upgrade Trax on this server before starting it"
        )


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(HERE).replace("%", "%%"))
    config.attributes["connection"] = connection
    with _alembic:
        command.upgrade(config, "head")
