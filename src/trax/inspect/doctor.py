"""`trax db doctor`: check the database, and say for each finding what to do."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from trax.clock import format_duration, utc_now
from trax.engine.live_settings import LiveSettings
from trax.inspect.storage import index_finding, storage_findings, wal_file_finding
from trax.records.status import Finding
from trax.records.worker import declaration_conflicts
from trax.store import Store, dialect, inspect, secrets, storage, workers
from trax.store.engine import Timeouts
from trax.store.listen import can_listen
from trax.store.migrations import compare_revision, status
from trax.store.url import has_no_file_yet
from trax.train.secrets import load_keyring

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from trax.store import Connection
    from trax.store.inspect import Leftovers, LockHolder, OldTransaction, SqliteState
    from trax.store.migrations import SchemaStatus


LONG_TRANSACTION: Final = timedelta(minutes=5)

LONG_LOCK: Final = timedelta(seconds=10)

MAX_CLOCK_SKEW: Final = timedelta(seconds=5)

MAX_FREE_SHARE: Final = 0.5

MIN_VACUUM_BYTES: Final = 100 * 1024**2

SYNCHRONOUS_FULL: Final = 2

SHOWN_NAMES: Final = 5


def load_findings(address: str) -> list[Finding]:
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
        yield scheduler_finding(*store.read(_load_scheduling, store))
        yield from leftover_findings(store.read(_find_leftovers, store))
        yield from manifest_findings(*store.read(_find_manifest_problems, store))
        keyring = load_keyring()
        yield secret_finding(store.read(secrets.count_keys), None if keyring is None else keyring.ids)
        yield index_finding(store.read(storage.find_missing_indexes))
    if can_listen(address):
        yield from _postgresql_findings(store, address)
    else:
        records = store.read(storage.count_records) if schema.state == "current" else 0
        yield from sqlite_findings(store.read(inspect.load_sqlite_state), records)
        yield wal_file_finding(store.read(storage.find_wal_bytes))


def _postgresql_findings(store: Store, address: str) -> Iterator[Finding]:
    found = store.read(inspect.load_postgresql_state)
    yield clock_finding(store.read(_clock_skew))
    yield transaction_finding(found.oldest)
    yield from lock_findings(store.read(inspect.load_lock_holders))
    yield from storage_findings(store.read(storage.load_postgresql_storage))
    yield autovacuum_finding(is_on=found.autovacuum)
    listen_url = LiveSettings.load({}).current.listen_url
    is_stable = store.read(inspect.backend_pid) == found.backend_pid
    yield listen_finding(
        is_stable=is_stable, can_listen=inspect.can_receive_notifications(listen_url or address)
    )


def _load_scheduling(connection: Connection, store: Store) -> tuple[int, inspect.SchedulerWork]:
    """How many schedulers are alive, and what waits for one."""
    settings, now = LiveSettings.load({}).refresh(connection), store.now(connection)
    servers = workers.servers(connection, alive_since=now - settings.worker_lost_after)
    return len(servers), inspect.load_scheduler_work(connection)


def _find_leftovers(connection: Connection, store: Store) -> inspect.Leftovers:
    settings, now = LiveSettings.load({}).refresh(connection), store.now(connection)
    return inspect.load_leftovers(
        connection,
        silent_since=now - settings.worker_lost_after,
        created_before=now - settings.stale_pending_timeout,
    )


def _find_manifest_problems(connection: Connection, store: Store) -> tuple[list[str], list[str]]:
    settings, now = LiveSettings.load({}).refresh(connection), store.now(connection)
    alive_since = now - settings.worker_lost_after
    servers = workers.servers(connection, alive_since=alive_since)
    return inspect.dependents_of_retired(connection), declaration_conflicts(servers)


def _clock_skew(connection: Connection) -> timedelta:
    """The database clock minus ours, taken at the middle of the round trip."""
    before = utc_now()
    database_time = dialect.now(connection)
    return database_time - (before + (utc_now() - before) / 2)


def schema_finding(schema: SchemaStatus) -> Finding:
    match schema.state:
        case "current":
            return Finding("schema", f"the tables are current, at {schema.current}")
        case "missing":
            return Finding("schema", "there are no Trax tables", "run `trax db migrate`")
        case "old":
            text = f"the tables are at {schema.current}, this version of Trax needs {schema.wanted}"
            return Finding("schema", text, "run `trax db migrate`")
        case "newer":
            return Finding(
                "schema", f"the tables are newer ({schema.current}) than this Trax", "upgrade Trax"
            )


def clock_finding(skew: timedelta) -> Finding:
    """Only the database's clock decides when jobs run; this host's clock dates log lines."""
    text = f"the clocks of this host and the database differ by {format_duration(abs(skew), units=2)}"
    return Finding(
        "clock", text, "synchronise both with the same time server" if abs(skew) > MAX_CLOCK_SKEW else None
    )


def transaction_finding(oldest: OldTransaction | None) -> Finding:
    if oldest is None or oldest.age_seconds < LONG_TRANSACTION.total_seconds():
        return Finding("transactions", "no transaction has been open for long")
    age = format_duration(timedelta(seconds=round(oldest.age_seconds)))
    query = f", its last query began at {oldest.query_started_at:%H:%M:%S}" if oldest.query_started_at else ""
    return Finding(
        "transactions",
        f"process {oldest.pid} ({oldest.application or 'unnamed'}) has a transaction open for {age}{query}; "
        "vacuum cannot remove dead rows meanwhile",
        f"end it in the program that began it, or SELECT pg_terminate_backend({oldest.pid})",
    )


def lock_findings(holders: Sequence[LockHolder]) -> Iterator[Finding]:
    """Sessions that hold a lock for which servers wait. Our own hold it for milliseconds."""
    long = [each for each in holders if each.is_long(LONG_LOCK.total_seconds())]
    for each in long:
        seconds = each.age_seconds
        age = "" if seconds is None else f" for {format_duration(timedelta(seconds=round(seconds)))}"
        session = f"user {each.user}, {each.application or 'unnamed'}, {each.state or 'in an unknown state'}"
        yield Finding(
            "locks",
            f"process {each.pid} ({session}) "
            f"has held {each.lock}{age}; sessions that wait for it: {each.waiting}",
            f"end it in the program that took it, or SELECT pg_terminate_backend({each.pid})",
        )
    if not long:
        yield Finding("locks", "no session has held a lock of the servers for long")


def autovacuum_finding(*, is_on: bool) -> Finding:
    if is_on:
        return Finding("autovacuum", "autovacuum is on")
    return Finding("autovacuum", "autovacuum is off", "set autovacuum = on in postgresql.conf")


def listen_finding(*, is_stable: bool, can_listen: bool) -> Finding:
    if can_listen:
        through = "" if is_stable else "; a pooler in transaction mode is in use, which is fine"
        return Finding("notifications", f"LISTEN works{through}")
    return Finding(
        "notifications",
        "LISTEN does not work through this URL: servers notice each other's changes only by polling",
        "set listen_url (TRAX_LISTEN_URL) to the URL of PostgreSQL itself, not of the pooler",
    )


def scheduler_finding(alive: int, work: inspect.SchedulerWork) -> Finding:
    if alive:
        return Finding("schedulers", f"live schedulers: {alive}")
    if not any(work):
        return Finding("schedulers", "no scheduler is alive, and nothing waits for one")
    manifests, entries, outbox = work
    counts = f"enabled manifests: {manifests}, queued entries: {entries}, runs to hand over: {outbox}"
    return Finding(
        "schedulers",
        f"no scheduler is alive, so nothing is queued, dispatched or handed over; {counts}",
        "start `trax run` or `trax scheduler`",
    )


def leftover_findings(left_behind: Leftovers) -> Iterator[Finding]:
    fix = "start a scheduler (`trax run` or `trax scheduler`): it removes them and retries their runs"
    lost = len(left_behind.worker_ids)
    yield Finding("workers", f"lost workers that are still registered: {lost}", fix if lost else None)
    waiting = len(left_behind.pending_ids)
    stuck = "start a worker that accepts their trains, or check why their submitter does not"
    yield Finding("pending", f"pending runs not started in time: {waiting}", stuck if waiting else None)
    parked, trains = len(left_behind.parked_ids), ", ".join(map(repr, left_behind.parked_trains))
    missing = f"start a worker that accepts {trains}, or withdraw the entries: trax queue cancel …"
    yield Finding("parked", f"entries that no live worker accepts: {parked}", missing if parked else None)


def manifest_findings(waiting: Sequence[str], disagreements: Sequence[str]) -> Iterator[Finding]:
    """Manifests whose parent is retired, and servers that declare different manifests or groups."""
    names = f" ({', '.join(waiting[:SHOWN_NAMES])}{', …' if len(waiting) > SHOWN_NAMES else ''})"
    fix = "schedule the parent again, or give them another parent or a schedule"
    text = (
        f"manifests that do not run because their parent is retired: {len(waiting)}{names if waiting else ''}"
    )
    yield Finding("retired parents", text, fix if waiting else None)
    for each in disagreements:
        yield Finding("declarations", each, "stop the servers that run old code, or give each app a name")
    if not disagreements:
        yield Finding("declarations", "all live servers of an app declare the same manifests")


def secret_finding(needed: Mapping[str, int], known: Collection[str] | None) -> Finding:
    """The keys that secrets in waiting inputs need; `known` are the keys configured here, or None."""
    if not needed:
        return Finding("secrets", "no waiting input has an encrypted secret")
    missing = {key: count for key, count in needed.items() if known is not None and key not in known}
    if not missing:
        keys = ", ".join(sorted(needed))
        return Finding(
            "secrets", f"waiting inputs with encrypted secrets: {sum(needed.values())}, under key {keys}"
        )
    text = "; ".join(f"key {key} is missing, and {count} inputs need it" for key, count in missing.items())
    return Finding("secrets", text, "add the key to $TRAX_SECRET_KEY on all workers, or queue the jobs again")


def sqlite_findings(state: SqliteState, records: int = 0) -> Iterator[Finding]:
    is_wal, is_full = state.journal_mode in ("wal", "memory"), state.synchronous >= SYNCHRONOUS_FULL
    local = "keep the file on a local disk: a network file system cannot share memory between processes"
    yield Finding("journal", f"the journal mode is {state.journal_mode}", None if is_wal else local)
    safe = "remove what sets PRAGMA synchronous: a crash may lose what was committed"
    yield Finding("synchronous", f"synchronous is {state.synchronous}", None if is_full else safe)
    size, free = state.pages * state.page_bytes, state.free_pages / max(1, state.pages)
    needs_vacuum = size > MIN_VACUUM_BYTES and free > MAX_FREE_SHARE
    share = f"; {size * (1 - free) / records / 1024:.1f} KiB for each record" if records else ""
    text = f"the file has {size / 1024**2:.1f} MiB, {free:.0%} of it free{share}"
    yield Finding("size", text, "run VACUUM while no server runs" if needs_vacuum else None)
