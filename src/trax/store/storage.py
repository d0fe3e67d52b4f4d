"""Read how tables and indexes are stored, for `trax db doctor`: sizes, dead rows, vacuum, missing indexes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlalchemy import func, select, text
from sqlalchemy.schema import CreateIndex

from trax.store.schema import tables
from trax.store.schema.define import SCHEMA
from trax.store.types import SQLITE

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection, Index, Table

PAGE_BYTES: Final = 8192
ROW_HEADER_BYTES: Final = 28
INDEX_ENTRY_BYTES: Final = 20
"""The header of an entry and its pointer on the page."""

TABLES: Final = text("""
    SELECT c.relname, greatest(c.reltuples, 0)::bigint, s.n_live_tup, s.n_dead_tup, s.n_tup_ins,
      s.n_tup_upd, s.n_tup_hot_upd, s.seq_scan, s.seq_tup_read, greatest(s.last_vacuum, s.last_autovacuum),
      pg_relation_size(c.oid), pg_total_relation_size(c.oid),
      coalesce(option.fillfactor::int, 100),
      (coalesce(option.threshold, current_setting('autovacuum_vacuum_threshold'))::float
        + coalesce(option.scale, current_setting('autovacuum_vacuum_scale_factor'))::float
        * greatest(c.reltuples, 0))::bigint,
      coalesce(option.is_vacuumed::boolean, true), coalesce(c.reloptions, '{}'),
      (SELECT sum(avg_width * (1 - null_frac))::float FROM pg_stats
        WHERE schemaname = :schema AND tablename = c.relname)
    FROM pg_class c
    JOIN pg_stat_user_tables s ON s.relid = c.oid
    CROSS JOIN LATERAL (
      SELECT max(option_value) FILTER (WHERE option_name = 'fillfactor') AS fillfactor,
        max(option_value) FILTER (WHERE option_name = 'autovacuum_enabled') AS is_vacuumed,
        max(option_value) FILTER (WHERE option_name = 'autovacuum_vacuum_threshold') AS threshold,
        max(option_value) FILTER (WHERE option_name = 'autovacuum_vacuum_scale_factor') AS scale
      FROM pg_options_to_table(c.reloptions)
    ) option
    WHERE s.schemaname = :schema ORDER BY c.relname
""")
INDEXES: Final = text("""
    SELECT c.relname, t.relname, i.indisvalid, pg_relation_size(c.oid), greatest(c.reltuples, 0)::bigint,
      coalesce((SELECT sum(s.avg_width)::float FROM pg_attribute a
        JOIN pg_stats s ON s.schemaname = :schema AND s.tablename = t.relname AND s.attname = a.attname
        WHERE a.attrelid = t.oid AND a.attnum = ANY (i.indkey::int[])), 0)
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid
    JOIN pg_namespace n ON n.oid = t.relnamespace
    WHERE n.nspname = :schema ORDER BY c.relname
""")
PREPARED: Final = text("""
    SELECT gid, extract(epoch FROM clock_timestamp() - prepared)::float FROM pg_prepared_xacts
    WHERE database = current_database() ORDER BY prepared LIMIT 1
""")
SLOTS: Final = text("""
    SELECT slot_name, greatest(age(xmin), age(catalog_xmin))::bigint FROM pg_replication_slots
    WHERE NOT active AND coalesce(xmin, catalog_xmin) IS NOT NULL ORDER BY 2 DESC LIMIT 1
""")


class TableStorage(NamedTuple):
    """A table as PostgreSQL's statistics describe it. Counters are since they were last reset."""

    name: str
    rows: int
    """As of the last vacuum or analyze."""
    live: int
    dead: int
    inserts: int
    updates: int
    hot_updates: int
    scans: int
    """How often it was read from its start, without an index."""
    scanned_rows: int
    vacuumed_at: datetime | None
    table_bytes: int
    total_bytes: int
    """With its indexes and long values."""
    fillfactor: int
    vacuum_at: int
    """Autovacuum starts at this number of dead rows."""
    is_vacuumed: bool
    """Whether autovacuum is allowed for it."""
    options: tuple[str, ...]
    row_bytes: float | None
    """The columns of an average row; None if the table was never analyzed."""

    @property
    def normal_bytes(self) -> float | None:
        """The size that its rows need, as they are filled in."""
        if self.row_bytes is None:
            return None
        return self.rows * (self.row_bytes + ROW_HEADER_BYTES) * 100 / self.fillfactor


class IndexStorage(NamedTuple):
    """An index as PostgreSQL describes it."""

    name: str
    table: str
    is_valid: bool
    bytes: int
    entries: int
    """As of the last vacuum or analyze."""
    key_bytes: float

    @property
    def normal_bytes(self) -> float:
        return self.entries * (self.key_bytes + INDEX_ENTRY_BYTES)


class HeldSnapshot(NamedTuple):
    """What holds back vacuum besides sessions: a prepared transaction, or the slot of an absent standby."""

    name: str
    age: float
    """In seconds for a prepared transaction, in transactions for a slot."""


class PostgresqlStorage(NamedTuple):
    """How a PostgreSQL database is stored."""

    tables: list[TableStorage]
    indexes: list[IndexStorage]
    prepared: HeldSnapshot | None
    slot: HeldSnapshot | None


def load_postgresql_storage(connection: Connection) -> PostgresqlStorage:
    schema = {"schema": SCHEMA}
    prepared = connection.execute(PREPARED).one_or_none()
    slot = connection.execute(SLOTS).one_or_none()
    return PostgresqlStorage(
        tables=[
            TableStorage(*row[:-2], options=tuple(row[-2]), row_bytes=row[-1])
            for row in map(tuple, connection.execute(TABLES, schema))
        ],
        indexes=[IndexStorage(*row) for row in connection.execute(INDEXES, schema)],
        prepared=HeldSnapshot(*prepared) if prepared else None,
        slot=HeldSnapshot(*slot) if slot else None,
    )


def find_missing_indexes(connection: Connection) -> dict[str, str]:
    """Names of indexes that the schema has but the database lacks, with the statements that create them."""
    found = _index_names(connection)
    missing = [
        index
        for table in tables(connection).all.sorted_tables
        for index in _indexes(table)
        if index.name not in found
    ]
    return {str(index.name): _creation(connection, index) for index in missing}


def _index_names(connection: Connection) -> set[str]:
    if connection.dialect.name == SQLITE:
        query = text("SELECT name FROM sqlite_master WHERE type = 'index'")
        return set(connection.execute(query).scalars())
    query = text("SELECT indexname FROM pg_indexes WHERE schemaname = :schema")
    return set(connection.execute(query, {"schema": SCHEMA}).scalars())


def _indexes(table: Table) -> list[Index]:
    return sorted(table.indexes, key=lambda index: str(index.name))


def _creation(connection: Connection, index: Index) -> str:
    statement = " ".join(str(CreateIndex(index).compile(dialect=connection.dialect)).split())
    if connection.dialect.name == SQLITE:
        return statement
    return statement.replace("INDEX ", "INDEX CONCURRENTLY ", 1)


def count_records(connection: Connection) -> int:
    return connection.execute(select(func.count()).select_from(tables(connection).metadata)).scalar_one()


def find_wal_bytes(connection: Connection) -> int:
    """The size of the write-ahead log beside an SQLite file; 0 in memory."""
    rows = connection.exec_driver_sql("PRAGMA database_list").all()
    file = next((row[2] for row in rows if row[1] == "main"), "")
    log = Path(f"{file}-wal")
    return log.stat().st_size if file and log.exists() else 0
