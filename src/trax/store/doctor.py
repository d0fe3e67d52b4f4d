"""Read-only checks of the database for `trax db doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import func, select, text

from trax.store import parking
from trax.store.listening import open_connection
from trax.store.schema import tables
from trax.store.schema.define import SCHEMA
from trax.store.schema.work_queue import PARKED

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

LISTEN_SECONDS: Final = 2.0
CHANNEL: Final = "trax_doctor"
COUNTED_AT_MOST: Final = 1000

OLDEST_TRANSACTION: Final = text("""
    SELECT pid, extract(epoch FROM clock_timestamp() - xact_start)::float, query_start, application_name
    FROM pg_stat_activity
    WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()
      AND backend_type = 'client backend'
    ORDER BY xact_start LIMIT 1
""")
BLOAT: Final = text("""
    SELECT relname, n_live_tup, n_dead_tup FROM pg_stat_user_tables
    WHERE schemaname = :schema ORDER BY n_dead_tup DESC
""")


class OldTransaction(NamedTuple):
    """The oldest open transaction: vacuum cannot remove rows that it may still see."""

    pid: int
    age_seconds: float
    query_started_at: datetime | None
    application: str


class Bloat(NamedTuple):
    """Live rows of a table, and dead rows not yet vacuumed."""

    table: str
    live: int
    dead: int


class PostgresqlState(NamedTuple):
    """Health data of a PostgreSQL database."""

    oldest: OldTransaction | None
    bloat: list[Bloat]
    autovacuum: bool
    backend_pid: int


class SqliteState(NamedTuple):
    """Health data of an SQLite file."""

    journal_mode: str
    synchronous: int
    pages: int
    free_pages: int
    page_bytes: int


class Leftovers(NamedTuple):
    """Workers without a heartbeat, pending runs not claimed in time, and parked entries; bounded."""

    worker_ids: tuple[int, ...]
    pending_ids: tuple[int, ...]
    parked_ids: tuple[int, ...] = ()
    parked_trains: tuple[str, ...] = ()


def load_postgresql_state(connection: Connection) -> PostgresqlState:
    oldest = connection.execute(OLDEST_TRANSACTION).one_or_none()
    bloat = connection.execute(BLOAT, {"schema": SCHEMA})
    return PostgresqlState(
        oldest=OldTransaction(*oldest) if oldest else None,
        bloat=[Bloat(*row) for row in bloat],
        autovacuum=connection.execute(text("SHOW autovacuum")).scalar_one() == "on",
        backend_pid=backend_pid(connection),
    )


def backend_pid(connection: Connection) -> int:
    return connection.execute(select(func.pg_backend_pid())).scalar_one()


def load_sqlite_state(connection: Connection) -> SqliteState:
    names = ("journal_mode", "synchronous", "page_count", "freelist_count", "page_size")
    return SqliteState(*(_pragma(connection, name) for name in names))


def load_leftovers(connection: Connection, *, silent_since: datetime, created_before: datetime) -> Leftovers:
    t = tables(connection)
    silent = select(t.worker.c.id).where(t.worker.c.heartbeat_at < silent_since)
    waiting = select(t.metadata.c.id).where(
        text("state = 'pending'"), t.metadata.c.created_at < created_before
    )
    parked = select(t.work_queue.c.id).where(text(PARKED))
    silent_ids, waiting_ids, parked_ids = (
        tuple(connection.execute(query.limit(COUNTED_AT_MOST)).scalars())
        for query in (silent, waiting, parked)
    )
    trains = dict.fromkeys(map(parking.train_of, parking.keys(connection)))
    return Leftovers(silent_ids, waiting_ids, parked_ids, tuple(trains))


def dependents_of_retired(connection: Connection) -> list[str]:
    """Enabled manifests whose parent is retired; bounded."""
    manifest = tables(connection).manifest
    parent = manifest.alias("parent")
    query = (
        select(manifest.c.external_id)
        .join(parent, parent.c.id == manifest.c.depends_on_id)
        .where(parent.c.retired_at.is_not(None), manifest.c.retired_at.is_(None), manifest.c.enabled)
        .order_by(manifest.c.external_id)
    )
    return list(connection.execute(query.limit(COUNTED_AT_MOST)).scalars())


def can_receive_notifications(address: str, *, seconds: float = LISTEN_SECONDS) -> bool:
    """Whether LISTEN works: a pooler in transaction mode accepts it but delivers nothing."""
    with open_connection(address) as listener, open_connection(address) as notifier:
        listener.execute(f"LISTEN {CHANNEL}".encode())
        notifier.execute(f"NOTIFY {CHANNEL}".encode())
        return any(True for _ in listener.notifies(timeout=seconds, stop_after=1))


def _pragma(connection: Connection, name: str) -> Any:
    return connection.exec_driver_sql(f"PRAGMA {name}").scalar()
