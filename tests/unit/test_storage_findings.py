from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from trax.inspect import storage
from trax.inspect.storage import (
    bloat_findings,
    hot_finding,
    index_finding,
    options_finding,
    scan_finding,
    size_finding,
    snapshot_finding,
    storage_findings,
    update_finding,
    vacuum_finding,
    validity_finding,
    wal_file_finding,
)
from trax.store.schema.define import BUSY_TABLE
from trax.store.storage import HeldSnapshot, IndexStorage, PostgresqlStorage, TableStorage

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "cost.md"
MEBIBYTE = 1024**2
GIBIBYTE = 1024**3
TABLE = TableStorage(
    "metadata",
    rows=1_000_000,
    live=1_000_000,
    dead=20_000,
    inserts=1_000_000,
    updates=1_000_000,
    hot_updates=0,
    scans=3,
    scanned_rows=3_000_000,
    vacuumed_at=datetime(2027, 3, 1, 12, tzinfo=UTC),
    table_bytes=600 * MEBIBYTE,
    total_bytes=GIBIBYTE,
    fillfactor=50,
    vacuum_at=20_050,
    options=tuple(f"{name}={value}" for name, value in BUSY_TABLE.items()),
    row_bytes=250.0,
)
INDEX = IndexStorage(
    "metadata_ended_idx", "metadata", is_valid=True, bytes=60 * MEBIBYTE, entries=1_000_000, key_bytes=16.0
)


def test_a_database_as_it_should_be_has_no_wrong_finding() -> None:
    findings = list(storage_findings(PostgresqlStorage([TABLE], [INDEX], None, None)))

    assert [finding for finding in findings if finding.is_wrong] == []
    assert "records and their entries take 1024.0 MiB, 1.0 KiB each" in [finding.text for finding in findings]


def test_an_empty_database_has_no_size_a_record() -> None:
    assert size_finding([TABLE._replace(rows=0)]).text == "records and their entries take 1024.0 MiB"


def test_a_table_or_an_index_much_larger_than_its_rows_need_is_wrong() -> None:
    large, swollen = TABLE._replace(table_bytes=2 * GIBIBYTE), INDEX._replace(bytes=GIBIBYTE)
    unknown = TABLE._replace(name="log", table_bytes=2 * GIBIBYTE, row_bytes=None)
    small = TABLE._replace(name="audit", rows=0, table_bytes=90 * MEBIBYTE)

    [table, index] = bloat_findings([large, unknown, small], [swollen])

    assert table.text == "table metadata has 2048.0 MiB, its rows need about 530.2 MiB"
    assert (table.fix, index.fix) == (
        "run VACUUM FULL trax.metadata when it may be locked for a while, or pg_repack",
        "REINDEX INDEX CONCURRENTLY trax.metadata_ended_idx",
    )


def test_a_table_that_autovacuum_does_not_reach_is_wrong() -> None:
    late = TABLE._replace(dead=70_000)

    finding = vacuum_finding([TABLE, late])
    never = vacuum_finding([late._replace(vacuumed_at=None)])

    assert finding.text == (
        "table metadata has 70000 dead rows and 1000000 live ones, last vacuumed at 2027-03-01 12:00 UTC; "
        "autovacuum should have begun at 20050"
    )
    assert "never vacuumed" in never.text
    assert finding.fix is not None
    assert finding.fix.endswith("VACUUM (ANALYZE) trax.metadata")
    assert not vacuum_finding([late._replace(dead=49_999, vacuum_at=1)]).is_wrong


def test_a_busy_table_keeps_its_storage_options() -> None:
    finding = options_finding([TABLE._replace(options=TABLE.options[1:])])

    assert finding.fix == "ALTER TABLE trax.metadata SET (fillfactor=46)"
    assert not options_finding([TABLE, TABLE._replace(name="audit", options=())]).is_wrong


@pytest.mark.parametrize(
    ("runs", "updates", "is_wrong"),
    [(10_000, 60_000, False), (10_000, 60_001, True), (9_999, 90_000, False)],
)
def test_a_run_and_its_entry_are_updated_a_few_times(runs: int, updates: int, is_wrong: bool) -> None:
    run = TABLE._replace(inserts=runs, updates=updates + 480, hot_updates=500)
    entry = TABLE._replace(name="work_queue", inserts=1, updates=20)
    other = TABLE._replace(name="worker", updates=10**9)

    assert update_finding([entry, run, other]).is_wrong is is_wrong


@pytest.mark.parametrize(
    ("updates", "hot", "is_wrong"), [(20_000, 19_000, False), (20_000, 9_000, True), (900, 0, False)]
)
def test_heartbeats_need_no_new_index_entries(updates: int, hot: int, is_wrong: bool) -> None:
    finding = hot_finding([TABLE._replace(name="worker", updates=updates, hot_updates=hot)])

    assert finding.is_wrong is is_wrong


@pytest.mark.parametrize(
    ("scans", "rows", "is_wrong"), [(101, 1_000_000, True), (100, 1_000_000, False), (1_000, 5_000, False)]
)
def test_large_tables_are_not_read_from_their_start_again_and_again(
    scans: int, rows: int, is_wrong: bool
) -> None:
    finding = scan_finding([TABLE._replace(scans=scans, scanned_rows=scans * rows)])

    assert finding.is_wrong is is_wrong


def test_an_index_that_is_invalid_or_missing_is_named_with_its_cure() -> None:
    invalid = validity_finding([INDEX, INDEX._replace(name="log_metadata_idx", is_valid=False)])
    missing = index_finding({"log_metadata_idx": "CREATE INDEX CONCURRENTLY …"})

    assert invalid.fix == "REINDEX INDEX CONCURRENTLY trax.log_metadata_idx"
    assert (missing.text, missing.fix) == ("missing indexes: log_metadata_idx", "CREATE INDEX CONCURRENTLY …")
    assert not index_finding({}).is_wrong


def test_an_old_snapshot_without_a_session_is_a_fault() -> None:
    prepared, slot = HeldSnapshot("order-7", 3600.0), HeldSnapshot("standby", 2_000_000)

    assert snapshot_finding(prepared, slot).fix == "COMMIT PREPARED 'order-7' or ROLLBACK PREPARED 'order-7'"
    assert "pg_drop_replication_slot('standby')" in str(snapshot_finding(None, slot).fix)
    assert not snapshot_finding(prepared._replace(age=1.0), slot._replace(age=10)).is_wrong


def test_a_write_ahead_log_that_is_not_truncated_is_a_fault() -> None:
    assert wal_file_finding(200 * MEBIBYTE).is_wrong
    assert wal_file_finding(4 * MEBIBYTE).text == "the write-ahead log has 4.0 MiB"


def test_the_page_names_the_bounds_of_the_doctor() -> None:
    page = PAGE.read_text(encoding="utf-8")

    for expected in (
        f"{storage.MAX_BLOAT:g} times what its rows need",
        f"{storage.MAX_VACUUM_LAG:g} times as many dead rows",
        f"{storage.MIN_HOT_SHARE:.0%}".replace("%", " %"),
        f"{storage.MAX_SCANS} scans",
        f"{storage.MAX_UPDATES_PER_RUN:g} a run, of {storage.MIN_RUNS:,} runs",
        f"{storage.MIN_BLOATED_BYTES // MEBIBYTE} MiB",
    ):
        assert expected in page, expected
