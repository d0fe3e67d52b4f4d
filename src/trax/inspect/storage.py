"""Findings of `trax db doctor` about tables and indexes: sizes, vacuum, snapshots, missing indexes.

docs/reference/cost.md has the expected values. Small tables are never reported: they cannot make a server slow.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from trax.clock import format_duration
from trax.records.status import Finding
from trax.store.schema.define import BUSY_TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trax.store.storage import HeldSnapshot, IndexStorage, PostgresqlStorage, TableStorage

MIN_BLOATED_BYTES: Final = 100 * 1024**2
MAX_BLOAT: Final = 3.0
"""The maximum size of a table or an index, as a multiple of what its rows need."""
MAX_VACUUM_LAG: Final = 3.0
"""The maximum number of dead rows, as a multiple of the number that starts autovacuum."""
MIN_DEAD_ROWS: Final = 50_000
MIN_HOT_SHARE: Final = 0.5
MIN_UPDATES: Final = 10_000
MIN_RUNS: Final = 10_000
MAX_UPDATES_PER_RUN: Final = 6.0
"""A run and its entry are updated two to four times; a progress report needs no new index entry."""
MAX_SCANS: Final = 100
LARGE_SCAN_ROWS: Final = 100_000
"""Scans that read this many rows on average are scans of a large table."""
MAX_PREPARED: Final = timedelta(minutes=5)
MAX_SLOT_AGE: Final = 1_000_000
MAX_WAL_FILE_BYTES: Final = 100 * 1024**2
BUSY_TABLES: Final = ("metadata", "work_queue")
HOT_TABLE: Final = "worker"


def storage_findings(found: PostgresqlStorage) -> Iterator[Finding]:
    yield size_finding(found.tables)
    yield from bloat_findings(found.tables, found.indexes)
    yield vacuum_finding(found.tables)
    yield options_finding(found.tables)
    yield update_finding(found.tables)
    yield hot_finding(found.tables)
    yield scan_finding(found.tables)
    yield validity_finding(found.indexes)
    yield snapshot_finding(found.prepared, found.slot)


def size_finding(tables: Sequence[TableStorage]) -> Finding:
    """The size of records with their queue entries, including the space of deleted ones."""
    total = sum(each.total_bytes for each in tables if each.name in BUSY_TABLES)
    records = next((each.rows for each in tables if each.name == "metadata"), 0)
    share = f", {total / records / 1024:.1f} KiB each" if records else ""
    return Finding("size", f"records and their entries take {_mebibytes(total)}{share}")


def bloat_findings(tables: Sequence[TableStorage], indexes: Sequence[IndexStorage]) -> Iterator[Finding]:
    """Compare sizes with what the rows need. Both are estimates, so only a large difference is reported."""
    is_any = False
    for table in tables:
        if _is_bloated(table.table_bytes, table.normal_bytes):
            is_any = True
            fix = f"run VACUUM FULL trax.{table.name} when it may be locked for a while, or pg_repack"
            yield Finding(
                "bloat", _bloat_text("table", table.name, table.table_bytes, table.normal_bytes), fix
            )
    for index in indexes:
        if _is_bloated(index.bytes, index.normal_bytes):
            is_any = True
            fix = f"REINDEX INDEX CONCURRENTLY trax.{index.name}"
            yield Finding("bloat", _bloat_text("index", index.name, index.bytes, index.normal_bytes), fix)
    if not is_any:
        yield Finding("bloat", "no table or index is much larger than its rows need")


def _is_bloated(size: int, expected: float | None) -> bool:
    return expected is not None and size > MIN_BLOATED_BYTES and size > MAX_BLOAT * expected


def _bloat_text(kind: str, name: str, size: int, expected: float | None) -> str:
    return f"{kind} {name} has {_mebibytes(size)}, its rows need about {_mebibytes(expected or 0)}"


def vacuum_finding(tables: Sequence[TableStorage]) -> Finding:
    """Whether autovacuum keeps up."""
    late = [
        each for each in tables if each.dead > MIN_DEAD_ROWS and each.dead > MAX_VACUUM_LAG * each.vacuum_at
    ]
    if not late:
        return Finding("vacuum", "autovacuum keeps up with dead rows")
    worst = max(late, key=lambda each: each.dead)
    last = (
        f"last vacuumed at {worst.vacuumed_at:%Y-%m-%d %H:%M} UTC" if worst.vacuumed_at else "never vacuumed"
    )
    return Finding(
        "vacuum",
        f"table {worst.name} has {worst.dead} dead rows and {worst.live} live ones, {last}; autovacuum "
        f"should have begun at {worst.vacuum_at}",
        "end what holds a snapshot open, raise autovacuum_max_workers, then "
        f"VACUUM (ANALYZE) trax.{worst.name}",
    )


def options_finding(tables: Sequence[TableStorage]) -> Finding:
    """Whether the busy tables still have the storage options that Trax creates them with."""
    wanted = {f"{name}={value}" for name, value in BUSY_TABLE.items()}
    changed = {
        each.name: sorted(wanted - set(each.options))
        for each in tables
        if each.name in BUSY_TABLES and not wanted <= set(each.options)
    }
    if not changed:
        return Finding("storage options", "the busy tables have the storage options that Trax sets")
    name, options = next(iter(changed.items()))
    return Finding(
        "storage options",
        f"table {name} does not have the storage options that Trax sets: {', '.join(options)}",
        f"ALTER TABLE trax.{name} SET ({', '.join(options)})",
    )


def update_finding(tables: Sequence[TableStorage]) -> Finding:
    """How often a run and its entry are updated such that each of their indexes gets a new entry."""
    updates = sum(each.updates - each.hot_updates for each in tables if each.name in BUSY_TABLES)
    runs = next((each.inserts for each in tables if each.name == "metadata"), 0)
    if runs < MIN_RUNS:
        return Finding("updates", "too few runs yet to judge how often each is updated")
    text = f"{updates / runs:.1f} updates with new index entries for each of {runs} runs with its entry"
    fix = (
        "drop indexes of trax.metadata and trax.work_queue that Trax has not created, and look for triggers "
        "and programs that update these tables"
    )
    return Finding("updates", text, fix if updates > MAX_UPDATES_PER_RUN * runs else None)


def hot_finding(tables: Sequence[TableStorage]) -> Finding:
    """A heartbeat changes no indexed column: if it needs new index entries, its page is full of dead rows."""
    for table in tables:
        if table.name == HOT_TABLE and table.updates >= MIN_UPDATES:
            share = table.hot_updates / table.updates
            if share < MIN_HOT_SHARE:
                return Finding(
                    "heartbeats",
                    f"only {share:.0%} of the heartbeats were written without a new index entry",
                    "end transactions that stay open for hours; then VACUUM trax.worker",
                )
            return Finding("heartbeats", f"{share:.0%} of the heartbeats needed no new index entry")
    return Finding("heartbeats", "too few heartbeats yet to judge")


def scan_finding(tables: Sequence[TableStorage]) -> Finding:
    """Trax finds its rows by an index; exports and hand-written queries may not."""
    for table in tables:
        if table.scans > MAX_SCANS and table.scanned_rows / table.scans > LARGE_SCAN_ROWS:
            rows = round(table.scanned_rows / table.scans)
            return Finding(
                "scans",
                f"table {table.name} was scanned from its start {table.scans} times, {rows} rows each time",
                f"ANALYZE trax.{table.name}; if this continues, find the query with "
                "log_min_duration_statement: the statements of Trax use indexes",
            )
    return Finding("scans", "no large table is scanned from its start repeatedly")


def validity_finding(indexes: Sequence[IndexStorage]) -> Finding:
    invalid = [each.name for each in indexes if not each.is_valid]
    if not invalid:
        return Finding("invalid indexes", "all indexes are valid")
    return Finding(
        "invalid indexes",
        f"indexes that are not used because their creation failed: {', '.join(invalid)}",
        "; ".join(f"REINDEX INDEX CONCURRENTLY trax.{name}" for name in invalid),
    )


def index_finding(missing: Mapping[str, str]) -> Finding:
    if not missing:
        return Finding("indexes", "no index is missing")
    return Finding("indexes", f"missing indexes: {', '.join(missing)}", "; ".join(missing.values()))


def snapshot_finding(prepared: HeldSnapshot | None, slot: HeldSnapshot | None) -> Finding:
    """What holds back vacuum like an open transaction, but belongs to no session."""
    if prepared is not None and prepared.age > MAX_PREPARED.total_seconds():
        age = format_duration(timedelta(seconds=round(prepared.age)))
        return Finding(
            "snapshots",
            f"transaction {prepared.name!r} was prepared {age} ago and neither committed nor rolled back; "
            "vacuum cannot remove dead rows meanwhile",
            f"COMMIT PREPARED '{prepared.name}' or ROLLBACK PREPARED '{prepared.name}'",
        )
    if slot is not None and slot.age > MAX_SLOT_AGE:
        return Finding(
            "snapshots",
            f"replication slot {slot.name} is not used, and holds back vacuum by {slot.age:.0f} transactions",
            f"start its standby, or SELECT pg_drop_replication_slot('{slot.name}')",
        )
    return Finding("snapshots", "no prepared transaction or unused replication slot holds back vacuum")


def wal_file_finding(size: int) -> Finding:
    """SQLite restarts its write-ahead log once all of it is in the file; a long read prevents that."""
    is_long = size > MAX_WAL_FILE_BYTES
    fix = (
        "end the program that reads the file for long, or stop all servers once: the last one empties the log"
    )
    return Finding("log file", f"the write-ahead log has {_mebibytes(size)}", fix if is_long else None)


def _mebibytes(size: float) -> str:
    return f"{size / 1024**2:.1f} MiB"
