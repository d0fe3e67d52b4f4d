"""`trax db doctor`: examines a database, one question after the other, and changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.admin.doctor import (
    of_autovacuum,
    of_bloat,
    of_clocks,
    of_left_behind,
    of_manifests,
    of_oldest_transaction,
    of_pooler,
    of_schema,
    of_secrets,
    of_sqlite,
)
from trax.clock import utc_now
from trax.host.live_settings import LiveSettings
from trax.records.worker import disagreements
from trax.store import Store, dialect, doctor, secrets, workers
from trax.store.engine import Timeouts
from trax.store.listening import can_listen
from trax.store.migrations import compared, status
from trax.store.url import has_no_file_yet
from trax.train.keyring import load_keyring

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from trax.records.finding import Finding
    from trax.store import Connection


def examined(address: str) -> list[Finding]:
    """Everything that was looked at, well or not."""
    if has_no_file_yet(address):
        return [of_schema(compared(None))]
    store = Store(address, timeouts=Timeouts(statement_seconds=None))
    try:
        return list(_findings(store, address))
    finally:
        store.close()


def _findings(store: Store, address: str) -> Iterator[Finding]:
    schema = store.read(status)
    yield of_schema(schema)
    if schema.state == "current":
        yield from of_left_behind(store.read(_left_behind, store))
        yield from of_manifests(*store.read(_manifests, store))
        keyring = load_keyring()
        yield of_secrets(store.read(secrets.count_keys), None if keyring is None else keyring.ids)
    if can_listen(address):
        yield from _of_postgresql(store, address)
    else:
        yield from of_sqlite(store.read(doctor.sqlite))


def _of_postgresql(store: Store, address: str) -> Iterator[Finding]:
    found = store.read(doctor.postgresql)
    yield of_clocks(store.read(_skew))
    yield of_oldest_transaction(found.oldest)
    yield from of_bloat(found.bloat)
    yield of_autovacuum(is_on=found.autovacuum)
    listen_url = LiveSettings.load({}).now.listen_url
    is_stable = store.read(doctor.backend_pid) == found.backend_pid
    yield of_pooler(is_stable=is_stable, hears=doctor.hears(listen_url or address))


def _left_behind(connection: Connection, store: Store) -> doctor.LeftBehind:
    settings, now = LiveSettings.load({}).refresh(connection), store.now(connection)
    return doctor.left_behind(
        connection,
        silent_since=now - settings.worker_lost_after,
        created_before=now - settings.stale_pending_timeout,
    )


def _manifests(connection: Connection, store: Store) -> tuple[list[str], list[str]]:
    settings, now = LiveSettings.load({}).refresh(connection), store.now(connection)
    alive_since = now - settings.worker_lost_after
    servers = workers.servers(connection, alive_since=alive_since)
    return doctor.dependents_of_retired(connection), disagreements(servers)


def _skew(connection: Connection) -> timedelta:
    """Their clock against the middle of the time it took to read it."""
    before = utc_now()
    theirs = dialect.now(connection)
    return theirs - (before + (utc_now() - before) / 2)
