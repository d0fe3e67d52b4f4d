from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest
from tests.store.test_claim import WORKER, pending
from tests.support.flow_seeding import USERS, Railway, register_server
from tests.support.waiting import until

from trax import Trax, every
from trax.inspect import storage as storage_checks
from trax.inspect.doctor import load_findings, lock_findings
from trax.store import Connection, Store, dialect, inspect, storage, workers
from trax.testing import Harness

if TYPE_CHECKING:
    from pathlib import Path

    from trax.records.status import Finding


@pytest.fixture
def address(url: str, tmp_path: Path) -> str:
    """A database that two stores can share, migrated."""
    address = f"sqlite:///{tmp_path}/shared.db" if url == "memory://" else url
    store = Store(address)
    store.open()
    store.close()
    return address


def test_a_fresh_database_is_well(address: str) -> None:
    findings = load_findings(address)

    assert [finding for finding in findings if finding.is_wrong] == []
    codes = {finding.code for finding in findings}
    assert {"schema", "workers", "pending"} < codes
    assert ("notifications" in codes) is address.startswith("postgresql")
    assert ("journal" in codes) is address.startswith("sqlite")


def test_a_session_that_holds_a_server_lock_is_named(postgres_url: str) -> None:
    store = Store(postgres_url)
    store.open()
    with psycopg.connect(postgres_url, application_name="shop") as holder:
        holder.execute("SELECT trax.take_gate_lock()")
        holder.execute("SELECT trax.take_lock('leader')")
        holder.execute("SELECT FROM trax.setting")

        gate, leader = store.read(inspect.load_lock_holders)
        pid, user = holder.info.backend_pid, holder.info.user
    store.close()

    assert gate[:5] == (pid, user, "shop", "idle in transaction", "gate_lock")
    assert (leader.lock, gate.age_seconds is not None, gate.waiting) == ("leader_lock", True, 0)
    [finding] = lock_findings([gate._replace(age_seconds=34.0, waiting=2), leader._replace(age_seconds=0.5)])
    assert finding.is_wrong
    assert finding.text == (
        f"process {pid} (user {user}, shop, idle in transaction) has held gate_lock for 34 s; "
        "sessions that wait for it: 2"
    )


def test_a_holder_with_hidden_activity_is_reported_if_others_wait() -> None:
    hidden = inspect.LockHolder(7, "ada", "", None, "gate_lock", None, 0)

    assert [one.is_wrong for one in lock_findings([hidden])] == [False]
    [finding] = lock_findings([hidden._replace(waiting=1)])
    assert finding.text == (
        "process 7 (user ada, unnamed, in an unknown state) has held gate_lock; sessions that wait for it: 1"
    )


def test_lost_workers_and_overdue_pending_runs_are_found(address: str) -> None:
    store = Store(address)
    now = store.read(store.now)
    store.run(workers.register, WORKER, now=now - timedelta(minutes=1))
    store.run(workers.register, WORKER, now=now)
    store.run(pending, 2, now - timedelta(hours=1))
    store.run(pending, 1, now)
    store.close()

    wrong = [finding.text for finding in load_findings(address) if finding.is_wrong]

    assert wrong == [
        "lost workers that are still registered: 1",
        "pending runs not started in time: 2",
    ]


def test_dependents_of_a_retired_parent_and_differing_servers_are_found(address: str) -> None:
    app = Railway(address)
    app.schedule(app.sync_table, "goes", USERS, every(hours=1)).include(app.sync_table, "waits", USERS)

    async def retire() -> None:
        async with Harness(app):
            await app.manifests.delete("goes")
            store = await app.context.store.open()
            now = await store.ask(dialect.now)
            for pid in (1, 2):
                await register_server(app, declares=f"set {pid}", pid=pid, now=now)

    asyncio.run(retire())

    wrong = {finding.code: finding.text for finding in load_findings(address) if finding.is_wrong}

    assert wrong["retired parents"] == "manifests that do not run because their parent is retired: 1 (waits)"
    assert "different manifests or groups: here (process 1), here (process 2)" in wrong["declarations"]


def test_an_index_that_is_gone_is_found_with_the_statement_that_makes_it(address: str) -> None:
    store = Store(address)
    schema, prefix = ("trax.", "") if address.startswith("postgresql") else ("", "trax_")
    store.run(lambda connection: connection.exec_driver_sql(f"DROP INDEX {schema}{prefix}log_metadata_idx"))
    store.close()

    (wrong,) = [finding for finding in load_findings(address) if finding.is_wrong]
    assert wrong.text == f"missing indexes: {prefix}log_metadata_idx"
    assert wrong.fix is not None
    made = Store(address)
    made.run(lambda connection: connection.exec_driver_sql(str(wrong.fix).replace("CONCURRENTLY ", "")))
    made.close()

    assert [finding for finding in load_findings(address) if finding.is_wrong] == []


def test_changed_storage_options_are_found(postgres_url: str) -> None:
    store = Store(postgres_url)
    store.run(lambda connection: connection.exec_driver_sql("ALTER TABLE trax.metadata RESET (fillfactor)"))
    store.close()

    wrong = [finding.fix for finding in load_findings(postgres_url) if finding.is_wrong]

    assert wrong == ["ALTER TABLE trax.metadata SET (fillfactor=46)"]


@pytest.mark.parametrize("value", ["false", "off"])
def test_a_table_that_autovacuum_leaves_out_is_found(postgres_url: str, value: str) -> None:
    store = Store(postgres_url)
    turn_off = f"ALTER TABLE trax.work_queue SET (autovacuum_enabled = {value})"
    store.run(lambda connection: connection.exec_driver_sql(turn_off))

    [wrong] = [finding for finding in load_findings(postgres_url) if finding.is_wrong]

    assert wrong.text == "autovacuum is disabled for tables: work_queue"
    assert wrong.fix is not None
    store.run(lambda connection: connection.exec_driver_sql(str(wrong.fix)))
    store.close()

    assert [finding for finding in load_findings(postgres_url) if finding.is_wrong] == []


async def test_work_without_a_scheduler_is_found(address: str) -> None:
    app = Railway(address)
    app.schedule(app.sync_table, "users", USERS, every(hours=1))
    async with Harness(app):
        await app.queue(app.sync_table, USERS)
        store = await app.context.store.open()

        [wrong] = [finding for finding in await asyncio.to_thread(load_findings, address) if finding.is_wrong]
        await register_server(app, declares="", pid=1, now=await store.ask(dialect.now))
        alive = await asyncio.to_thread(load_findings, address)

    assert wrong.text == (
        "no scheduler is alive, so nothing is queued, dispatched or handed over; "
        "enabled manifests: 1, queued entries: 1, runs to hand over: 0"
    )
    assert wrong.fix == "start `trax run` or `trax scheduler`"
    assert "live schedulers: 1" in [finding.text for finding in alive]
    assert [finding for finding in alive if finding.is_wrong] == []


async def test_updates_slowed_by_a_foreign_index_are_found(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_checks, "MIN_RUNS", 10)
    app = Trax(postgres_url)

    @app.train
    async def greet(name: str) -> str:
        return name

    async with Harness(app) as h:
        await app.queue_many(greet, ["Ada"] * 10)
        await h.run_until_idle()
    until(lambda: "each of 10 runs" in found_updates(postgres_url).text)
    usual = found_updates(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as somebody:
        somebody.execute("CREATE INDEX ON trax.metadata (host)")
        for number in range(10):
            somebody.execute("UPDATE trax.metadata SET host = %s", [f"host-{number}"])

    assert not usual.is_wrong, usual.text
    until(lambda: found_updates(postgres_url).is_wrong)


def found_updates(url: str) -> Finding:
    """The server counts what a session did when that has ended."""
    (finding,) = [each for each in load_findings(url) if each.code == "updates"]
    return finding


def test_sizes_are_those_of_the_rows_that_are_there(postgres_url: str) -> None:
    store = Store(postgres_url)
    store.run(pending, 2_000, store.read(store.now))
    store.run(lambda connection: connection.exec_driver_sql("ANALYZE trax.metadata"))
    found = store.read(storage.load_postgresql_storage)
    store.close()

    (runs,) = [each for each in found.tables if each.name == "metadata"]
    (key,) = [each for each in found.indexes if each.name == "metadata_pkey"]
    assert (runs.rows, runs.fillfactor, runs.vacuum_at) == (2_000, 46, 90)
    assert runs.normal_bytes is not None
    assert 0.5 < runs.table_bytes / runs.normal_bytes < 1.5
    assert 0.5 < key.bytes / key.normal_bytes < 1.5


def test_a_database_without_tables_names_the_command_to_create_them(empty_url: str) -> None:
    wrong = [finding for finding in load_findings(empty_url) if finding.is_wrong]

    assert [(finding.code, finding.fix) for finding in wrong] == [("schema", "run `trax db migrate`")]


def test_the_oldest_transaction_excludes_the_reader(postgres_url: str) -> None:
    holding, looking = Store(postgres_url), Store(postgres_url)

    def held_open(connection: Connection) -> tuple[int, inspect.OldTransaction | None]:
        return inspect.backend_pid(connection), looking.read(inspect.load_postgresql_state).oldest

    try:
        pid, oldest = holding.read(held_open)
    finally:
        holding.close()
        looking.close()

    assert oldest is not None
    assert (oldest.pid, oldest.application, oldest.age_seconds >= 0) == (pid, "trax", True)
