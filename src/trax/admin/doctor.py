"""What is well with the database, and what is not. No I/O: give it what was read, get findings."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from trax.records.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from trax.store.doctor import Bloat, LeftBehind, OldTransaction, SqliteState
    from trax.store.migrations import SchemaStatus

LONG_TRANSACTION: Final = timedelta(minutes=5)
MANY_DEAD_ROWS: Final = 50_000
SKEW: Final = timedelta(seconds=5)
MUCH_FREE: Final = 0.5
WORTH_A_VACUUM_BYTES: Final = 100 * 1024**2
FULL: Final = 2
SHOWN_NAMES: Final = 5


def of_schema(found: SchemaStatus) -> Finding:
    match found.state:
        case "current":
            return Finding("schema", f"the tables are current, at {found.current}")
        case "missing":
            return Finding("schema", "there are no Trax tables", "run `trax db migrate`")
        case "old":
            wanted = f"the tables are at {found.current}, this version of Trax needs {found.wanted}"
            return Finding("schema", wanted, "run `trax db migrate`")
        case "newer":
            return Finding("schema", f"the tables are newer ({found.current}) than this Trax", "upgrade Trax")


def of_clocks(skew: timedelta) -> Finding:
    """The database's clock is the only one that decides; ours dates logs and what people compare."""
    text = f"the clocks here and there are {abs(skew).total_seconds():.1f} s apart"
    return Finding("clock", text, "let both follow the same time server" if abs(skew) > SKEW else None)


def of_oldest_transaction(oldest: OldTransaction | None) -> Finding:
    if oldest is None or oldest.age_seconds < LONG_TRANSACTION.total_seconds():
        return Finding("transactions", "no transaction has been open for long")
    age = timedelta(seconds=round(oldest.age_seconds))
    asked = f", its last query began at {oldest.query_started_at:%H:%M:%S}" if oldest.query_started_at else ""
    return Finding(
        "transactions",
        f"process {oldest.pid} ({oldest.application or 'unnamed'}) has a transaction open for {age}{asked}; "
        "dead rows cannot be cleaned up meanwhile",
        f"end it where it was begun, or SELECT pg_terminate_backend({oldest.pid})",
    )


def of_bloat(tables: Sequence[Bloat]) -> Iterator[Finding]:
    bloated = [one for one in tables if one.dead > MANY_DEAD_ROWS and one.dead > one.live]
    for one in bloated:
        text = f"table {one.table} has {one.dead} dead rows beside {one.live} live ones"
        yield Finding("bloat", text, f"VACUUM (ANALYZE) trax.{one.table}; then see why autovacuum did not")
    if not bloated:
        yield Finding("bloat", "no table is full of dead rows")


def of_autovacuum(*, is_on: bool) -> Finding:
    if is_on:
        return Finding("autovacuum", "autovacuum is on")
    return Finding("autovacuum", "autovacuum is off", "set autovacuum = on in postgresql.conf")


def of_pooler(*, is_stable: bool, hears: bool) -> Finding:
    if hears:
        through = "" if is_stable else "; a pooler gives each transaction another connection, which is fine"
        return Finding("notifications", f"LISTEN works{through}")
    return Finding(
        "notifications",
        "LISTEN does not work through this address: servers find each other's work by polling alone",
        "set listen_url (TRAX_LISTEN_URL) to the address of PostgreSQL itself, past the pooler",
    )


def of_left_behind(found: LeftBehind) -> Iterator[Finding]:
    fix = "start a scheduler (`trax run` or `trax scheduler`): it removes them, and tries their runs again"
    silent = len(found.worker_ids)
    text = f"silent workers whose rows are still there: {silent}"
    yield Finding("workers", text, fix if silent else None)
    waiting = len(found.pending_ids)
    stuck = "start a worker that has their trains, or see why their submitter does not take them"
    yield Finding("pending", f"runs that nobody took up in time: {waiting}", stuck if waiting else None)
    parked, trains = len(found.parked_ids), ", ".join(map(repr, found.parked_trains))
    missing = f"start a worker that takes {trains}, or withdraw the entries: trax queue cancel …"
    yield Finding("parked", f"entries that no live worker takes: {parked}", missing if parked else None)


def of_manifests(waiting: Sequence[str], disagreements: Sequence[str]) -> Iterator[Finding]:
    """Who waits for a retired parent, and which servers do not declare the same."""
    names = f" ({', '.join(waiting[:SHOWN_NAMES])}{', …' if len(waiting) > SHOWN_NAMES else ''})"
    again = "schedule the parent again, or give them another one or a schedule"
    text = f"manifests that rest because their parent is retired: {len(waiting)}{names if waiting else ''}"
    yield Finding("retired parents", text, again if waiting else None)
    for one in disagreements:
        yield Finding("declarations", one, "stop the servers that run old code, or name the apps")
    if not disagreements:
        yield Finding("declarations", "all live servers of an app declare the same manifests")


def of_secrets(needed: Mapping[str, int], known: Collection[str] | None) -> Finding:
    """Which keys the secrets in waiting inputs need; `known` are those that are here, None if none are."""
    if not needed:
        return Finding("secrets", "no input that waits holds an encrypted secret")
    missing = {key: count for key, count in needed.items() if known is not None and key not in known}
    if not missing:
        keys = ", ".join(sorted(needed))
        return Finding(
            "secrets", f"inputs that wait with encrypted secrets: {sum(needed.values())}, under key {keys}"
        )
    text = "; ".join(f"key {key} is not here, and {count} inputs need it" for key, count in missing.items())
    return Finding(
        "secrets", text, "add the key to $TRAX_SECRET_KEY wherever workers run, or queue them anew"
    )


def of_sqlite(found: SqliteState) -> Iterator[Finding]:
    is_wal, is_full = found.journal_mode in ("wal", "memory"), found.synchronous >= FULL
    local = "keep the file on a local disk: a network file system cannot share memory between processes"
    yield Finding("journal", f"the journal mode is {found.journal_mode}", None if is_wal else local)
    safe = "remove what sets PRAGMA synchronous: a crash may lose what was committed"
    yield Finding("synchronous", f"synchronous is {found.synchronous}", None if is_full else safe)
    size, free = found.pages * found.page_bytes, found.free_pages / max(1, found.pages)
    is_hollow = size > WORTH_A_VACUUM_BYTES and free > MUCH_FREE
    text = f"the file has {size / 1024**2:.1f} MiB, {free:.0%} of it free"
    yield Finding("size", text, "run VACUUM while no server runs" if is_hollow else None)
