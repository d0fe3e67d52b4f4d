"""Triggers that write down every change of a row, until they are drained: in memory, and on PostgreSQL.

Both say the same of a change: moments are texts, as SQLite stores them.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import psycopg

from trax.store.types import utc_text

if TYPE_CHECKING:
    import sqlite3

    from trax.store import Connection

COLUMNS: Final = {
    "work_queue": (
        "status ready manifest_id origin group_id group_priority priority created_at metadata_id parked "
        "attempt external_id train"
    ),
    "metadata": (
        "state worker_id manifest_id group_id exempt started_at ended_at created_at failure_exception "
        "external_id train"
    ),
    "dead_letter": "status manifest_id last_metadata_id dead_lettered_at resolved_at",
    "manifest": "enabled next_due_at retired_at max_instances external_id schedule_type failure_count",
    "manifest_group": "name max_active_jobs enabled priority",
    "setting": "name value",
    "worker": "heartbeat_at kind",
}
WIDTH: Final = max(len(names.split()) for names in COLUMNS.values())
FIRST_READY: Final = "status = 'queued' AND ready ORDER BY group_priority DESC, priority DESC, created_at, id"


class Change(NamedTuple):
    """One change of a row: `old` and `new` have the columns of its table; None before or after it exists."""

    table: str
    id: Any
    old: tuple[Any, ...] | None
    new: tuple[Any, ...] | None


class SqliteChangeLog:
    """Triggers of the one connection of a database in memory."""

    def __init__(self, driver: sqlite3.Connection) -> None:
        self._driver = driver
        slots = ", ".join(f"{age}{number}" for age in "on" for number in range(WIDTH))
        driver.execute(f"CREATE TEMP TABLE change (number INTEGER PRIMARY KEY, tbl, op, id, {slots})")
        for table, names in COLUMNS.items():
            for operation in ("INSERT", "UPDATE", "DELETE"):
                driver.execute(_trigger(table, names.split(), operation))

    def drain(self) -> list[Change]:
        rows = self._driver.execute("SELECT * FROM temp.change ORDER BY number").fetchall()
        if rows:
            self._driver.execute("DELETE FROM temp.change")
        return [self._parse(row) for row in rows]

    def first_ready_ids(self, most: int) -> list[int]:
        """The first entries of the queue, in order."""
        query = f"SELECT id FROM main.trax_work_queue WHERE {FIRST_READY} LIMIT {most}"  # noqa: S608 - constants
        return [row[0] for row in self._driver.execute(query)]

    def group_and_parent(self, manifest_id: int) -> tuple[Any, Any]:
        query = "SELECT group_id, depends_on_id FROM main.trax_manifest WHERE id = ?"
        return self._driver.execute(query, (manifest_id,)).fetchone()

    def close(self) -> None:
        """The triggers end with the connection."""

    def _parse(self, row: tuple[Any, ...]) -> Change:
        _, table, operation, row_id, *values = row
        count = len(COLUMNS[table].split())
        old = None if operation == "INSERT" else tuple(values[:count])
        new = None if operation == "DELETE" else tuple(values[WIDTH : WIDTH + count])
        return Change(table, row_id, old, new)


def _trigger(table: str, names: list[str], operation: str) -> str:
    ages = {"INSERT": ("NEW",), "UPDATE": ("OLD", "NEW"), "DELETE": ("OLD",)}[operation]
    key = "name" if table == "setting" else "id"
    columns = [f"{age[0].lower()}{number}" for age in ages for number in range(len(names))]
    values = [f"{age}.{name}" for age in ages for name in names]
    return (
        f"CREATE TEMP TRIGGER note_{table}_{operation} AFTER {operation} ON main.trax_{table} BEGIN "  # noqa: S608 - our own tables
        f"INSERT INTO change (tbl, op, id, {', '.join(columns)}) "
        f"VALUES ('{table}', '{operation}', {ages[-1]}.{key}, {', '.join(values)}); END"
    )


class ChangeLog(Protocol):
    """The changes of all tables above, and two reads that see what is committed."""

    def drain(self) -> list[Change]: ...

    def first_ready_ids(self, most: int) -> list[int]: ...

    def group_and_parent(self, manifest_id: int) -> tuple[Any, Any]: ...

    def close(self) -> None: ...


def open_change_log(connection: Connection, url: str | None) -> ChangeLog:
    """Note the changes of this database in memory, or of the one on PostgreSQL at this address."""
    driver: Any = connection.connection.driver_connection
    return SqliteChangeLog(driver) if url is None else PostgresqlChangeLog(url)


class PostgresqlChangeLog:
    """Triggers and a table of the database, read on a connection that has no faults."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute(NOTE)
        for table in COLUMNS:
            self._connection.execute(
                f"CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON trax.{table} "
                "FOR EACH ROW EXECUTE FUNCTION note_change()".encode()
            )

    def drain(self) -> list[Change]:
        query = "WITH gone AS (DELETE FROM change RETURNING *) SELECT tbl, old, new FROM gone ORDER BY number"
        return [_change_of(*row) for row in self._connection.execute(query)]

    def first_ready_ids(self, most: int) -> list[int]:
        query = f"SELECT id FROM trax.work_queue WHERE {FIRST_READY} LIMIT {most}"  # noqa: S608 - constants
        return [row[0] for row in self._connection.execute(query.encode())]

    def group_and_parent(self, manifest_id: int) -> tuple[Any, Any]:
        query = "SELECT group_id, depends_on_id FROM trax.manifest WHERE id = %s"
        row = self._connection.execute(query, [manifest_id]).fetchone()
        assert row
        return row[0], row[1]

    def close(self) -> None:
        self._connection.close()


NOTE: Final = b"""
    CREATE UNLOGGED TABLE change (number bigserial, tbl text, old jsonb, new jsonb);
    CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO public.change (tbl, old, new) VALUES (TG_TABLE_NAME, to_jsonb(OLD), to_jsonb(NEW));
        RETURN NULL;
    END $$;
"""


def _change_of(table: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> Change:
    row = new or old or {}
    key = "name" if table == "setting" else "id"
    return Change(table, row[key], _columns_of(table, old), _columns_of(table, new))


def _columns_of(table: str, row: dict[str, Any] | None) -> tuple[Any, ...] | None:
    if row is None:
        return None
    return tuple(_as_in_sqlite(name, row[name]) for name in COLUMNS[table].split())


def _as_in_sqlite(name: str, value: Any) -> Any:
    if name == "value":
        return json.dumps(value)
    if value is not None and name.endswith("_at"):
        return utc_text(datetime.fromisoformat(value))
    return value
