"""A database of any size, within minutes: 1 M manifests, 1 M entries, 10 M records and 10,000 groups.

The rows are those of `history`. They are written without indexes and without checks of foreign keys, which
hold by the way the rows are made; then the indexes are made at once. Only for a database that is thrown away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import text

from bench.history import Size, write_rows
from trax.store import Store, dialect

if TYPE_CHECKING:
    from trax.store import Connection

FULL: Final = Size(
    runs=10_000_000, manifests=1_000_000, queued=1_000_000, letters=10_000, lines=1_000_000, groups=10_000
)
SERVER: Final = {
    "max_wal_size": "16GB",
    "maintenance_work_mem": "1GB",
    "autovacuum": "off",
    "shared_buffers": "512MB",
}
"""Settings of the server it is built on; vacuum is run explicitly, so that nothing else runs meanwhile."""
INDEXES: Final = """
    SELECT indexdef, format('DROP INDEX trax.%I', indexname) FROM pg_indexes
    WHERE schemaname = 'trax'
      AND NOT EXISTS (SELECT FROM pg_constraint WHERE conname = indexname AND contype IN ('p', 'u'))
"""
TALLIED: Final = """
    INSERT INTO trax.tally (span, at, train, completed, failed, cancelled, seconds)
    VALUES ('minute', date_trunc('minute', now()), 'train-10', 0, 0, 0, 0)
"""
"""Marks the totals as written: computing them would take longer than everything else."""


def shrunk(share: float) -> Size:
    """The same proportions, at a smaller size."""
    return Size(
        runs=int(FULL.runs * share),
        manifests=int(FULL.manifests * share),
        queued=int(FULL.queued * share),
        letters=int(FULL.letters * share),
        lines=int(FULL.lines * share),
        groups=int(FULL.groups * share),
    )


def build(address: str, size: Size) -> None:
    """Migrate, fill and vacuum a database of PostgreSQL."""
    store = Store(address)
    try:
        store.open()
        store.run(_fill, size)
    finally:
        store.close()
    vacuum(address)


def _fill(connection: Connection, size: Size) -> None:
    dialect.lift_limits(connection)
    connection.execute(text("SET LOCAL session_replication_role = replica"))
    indexes = connection.execute(text(INDEXES)).all()
    for _, drop in indexes:
        connection.execute(text(drop))
    write_rows(connection, size)
    connection.execute(text(TALLIED))
    for create, _ in indexes:
        connection.exec_driver_sql(create)


def vacuum(address: str) -> None:
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
