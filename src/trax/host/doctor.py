"""`trax db doctor`: examine a database, read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.admin.doctor import (
    autovacuum_finding,
    bloat_findings,
    clock_finding,
    left_behind_findings,
    listen_finding,
    manifest_findings,
    schema_finding,
    secret_finding,
    sqlite_findings,
    transaction_finding,
)
from trax.clock import utc_now
from trax.host.live_settings import LiveSettings
from trax.records.worker import declaration_conflicts
from trax.store import Store, dialect, doctor, secrets, workers
from trax.store.engine import Timeouts
from trax.store.listening import can_listen
from trax.store.migrations import compare_revision, status
from trax.store.url import has_no_file_yet
from trax.train.keyring import load_keyring

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from trax.records.finding import Finding
    from trax.store import Connection


def examine(address: str) -> list[Finding]:
    """Run every check; return all findings, good and bad."""
    if has_no_file_yet(address):
        return [schema_finding(compare_revision(None))]
    store = Store(address, timeouts=Timeouts(statement_seconds=None))
    try:
        return list(_findings(store, address))
    finally:
        store.close()


def _findings(store: Store, address: str) -> Iterator[Finding]:
    schema = store.read(status)
    yield schema_finding(schema)
    if schema.state == "current":
        yield from left_behind_findings(store.read(_find_leftovers, store))
        yield from manifest_findings(*store.read(_find_manifest_problems, store))
        keyring = load_keyring()
        yield secret_finding(store.read(secrets.count_keys), None if keyring is None else keyring.ids)
    if can_listen(address):
        yield from _postgresql_findings(store, address)
    else:
        yield from sqlite_findings(store.read(doctor.load_sqlite_state))


def _postgresql_findings(store: Store, address: str) -> Iterator[Finding]:
    found = store.read(doctor.load_postgresql_state)
    yield clock_finding(store.read(_clock_skew))
    yield transaction_finding(found.oldest)
    yield from bloat_findings(found.bloat)
    yield autovacuum_finding(is_on=found.autovacuum)
    listen_url = LiveSettings.load({}).current.listen_url
    is_stable = store.read(doctor.backend_pid) == found.backend_pid
    yield listen_finding(
        is_stable=is_stable, can_listen=doctor.can_receive_notifications(listen_url or address)
    )


def _find_leftovers(connection: Connection, store: Store) -> doctor.Leftovers:
    settings, now = LiveSettings.load({}).refresh(connection), store.now(connection)
    return doctor.load_leftovers(
        connection,
        silent_since=now - settings.worker_lost_after,
        created_before=now - settings.stale_pending_timeout,
    )


def _find_manifest_problems(connection: Connection, store: Store) -> tuple[list[str], list[str]]:
    settings, now = LiveSettings.load({}).refresh(connection), store.now(connection)
    alive_since = now - settings.worker_lost_after
    servers = workers.servers(connection, alive_since=alive_since)
    return doctor.dependents_of_retired(connection), declaration_conflicts(servers)


def _clock_skew(connection: Connection) -> timedelta:
    """The database clock minus ours, taken at the middle of the round trip."""
    before = utc_now()
    database_time = dialect.now(connection)
    return database_time - (before + (utc_now() - before) / 2)
