"""Old records are forgotten, and nothing else is."""

from __future__ import annotations

import importlib
import pkgutil
from datetime import UTC, datetime, timedelta
from threading import Barrier, Thread
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import insert, select, text
from tests.support.manager_harness import MANAGER, ManagerHarness

from trax import engine, every
from trax.engine.metadata_cleanup import ADMINISTRATIVE_TRAINS, MetadataCleanupResult
from trax.records.metadata import ADMINISTRATIVE_PREFIX as PREFIX
from trax.records.work_queue_entry import new_external_id
from trax.server.loops import clean_metadata_now
from trax.store import dialect
from trax.store.runs.cleanup import BEGINNING, select_ended
from trax.store.schema import tables
from trax.train import Train

if TYPE_CHECKING:
    from sqlalchemy import Connection

TEN = datetime(2027, 3, 1, 10, tzinfo=UTC)
CLEANUP = "trax.metadata_cleanup"


def build_harness(url: str, **settings: Any) -> ManagerHarness:
    return ManagerHarness(url, TEN, metadata_cleanup_enabled=True, **settings)


def add_ended(
    h: ManagerHarness, train: str, minutes_ago: float, state: str = "completed", **columns: Any
) -> int:
    ended = h.now - timedelta(minutes=minutes_ago)
    return h.insert_run(train=train, state=state, created_at=ended, ended_at=ended, **columns)


def add_many(h: ManagerHarness, count: int, minutes_ago: float) -> None:
    """Records that expired, each with the entry that led to it and a line it logged."""
    ended = h.now - timedelta(minutes=minutes_ago)

    def added(connection: Connection) -> None:
        t = tables(connection)
        names = [new_external_id() for _ in range(count)]
        run = {
            "train": "job",
            "state": "completed",
            "created_at": ended,
            "started_at": ended,
            "ended_at": ended,
        }
        runs = [run | {"external_id": name, "entry_id": at} for at, name in enumerate(names, 1)]
        connection.execute(insert(t.metadata), runs)
        rows = connection.execute(
            select(t.metadata.c.id, t.metadata.c.entry_id, t.metadata.c.external_id)
        ).all()
        entry = {"train": "job", "status": "dispatched", "origin": "queue", "ready": True}
        moments = {"created_at": ended, "dispatched_at": ended}
        entries = [
            entry | moments | {"id": row.entry_id, "external_id": row.external_id, "metadata_id": row.id}
            for row in rows
        ]
        connection.execute(insert(t.work_queue), entries)
        line = {"created_at": ended, "level": "information", "logger": "job", "message": "done"}
        connection.execute(insert(t.log), [line | {"metadata_id": row.id} for row in rows])

    h.store.run(added)


def trains(h: ManagerHarness) -> list[str]:
    def named(connection: Connection) -> list[str]:
        metadata = tables(connection).metadata
        return list(connection.execute(select(metadata.c.train).order_by(metadata.c.id)).scalars())

    return h.store.read(named)


def deleted(cleaned: list[MetadataCleanupResult]) -> list[int]:
    return [batch.total for batch in cleaned]


@pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
async def test_an_administrative_record_is_deleted_after_its_retention(url: str, state: str) -> None:
    async with build_harness(url) as h:
        gone = add_ended(h, MANAGER, minutes_ago=31, state=state)
        kept = add_ended(h, MANAGER, minutes_ago=29, state=state)

        cleaned = await h.cycle("metadata_cleanup")

        assert deleted(cleaned) == [1]
        left = {run.id for run in await h.app.executions.list(train=MANAGER)}
        assert left == {kept}
        assert gone not in left


async def test_records_of_active_runs_are_kept_at_any_age(url: str) -> None:
    async with build_harness(url) as h:
        two_days_ago = h.now - timedelta(days=2)
        h.insert_run(train=MANAGER, state="pending", created_at=two_days_ago)
        h.insert_run(train=MANAGER, state="in_progress", created_at=two_days_ago, started_at=two_days_ago)

        assert await h.cycle("metadata_cleanup") == []

        assert trains(h) == [MANAGER, MANAGER]


async def test_a_long_run_that_has_just_ended_is_not_old(url: str) -> None:
    async with build_harness(url, metadata_cleanup_trains=["job"]) as h:
        began = h.now - timedelta(hours=5)
        h.insert_run(state="completed", created_at=began, started_at=began, ended_at=h.now)

        assert await h.cycle("metadata_cleanup") == []


async def test_users_records_are_kept_unless_their_train_is_named(url: str) -> None:
    async with build_harness(url) as h:
        add_ended(h, "job", minutes_ago=600)

        assert await h.cycle("metadata_cleanup") == []
        await h.app.settings.update(metadata_cleanup_trains=["job"])
        assert deleted(await h.cycle("metadata_cleanup")) == [1]

        assert trains(h) == [CLEANUP]


async def test_a_train_is_meant_by_any_of_its_names(url: str) -> None:
    h = build_harness(url, metadata_cleanup_trains=["older_name"])

    @h.app.train(aliases=("older_name",))
    async def renamed(value: str) -> str:
        return value

    async with h:
        add_ended(h, renamed.name, minutes_ago=40)
        add_ended(h, "older_name", minutes_ago=40)

        assert deleted(await h.cycle("metadata_cleanup")) == [2]


async def test_records_are_deleted_in_batches_with_their_lines_and_entries(url: str) -> None:
    async with build_harness(url, metadata_cleanup_trains=["job"], metadata_cleanup_batch_size=1000) as h:
        add_many(h, 2500, minutes_ago=45)

        cleaned = await h.cycle("metadata_cleanup")

        assert deleted(cleaned) == [1000, 1000, 500]
        ended = h.now - timedelta(minutes=45)
        assert [batch.resume_at for batch in cleaned] == [{"job": ended}, {"job": ended}, {}]
        assert set(trains(h)) == {CLEANUP}
        assert (h.count("work_queue"), h.count("log")) == (0, 0)


async def test_without_a_batch_size_all_records_are_deleted_at_once(url: str) -> None:
    async with build_harness(url, metadata_cleanup_trains=["job"], metadata_cleanup_batch_size=None) as h:
        add_many(h, 1200, minutes_ago=45)

        assert deleted(await h.cycle("metadata_cleanup")) == [1200]


async def test_an_entry_that_waits_for_a_retry_is_kept(url: str) -> None:
    async with build_harness(
        url, metadata_cleanup_trains=["job"], default_retry_delay=timedelta(hours=1)
    ) as h:
        h.errors["sync"] = RuntimeError("no luck")
        await h.app.queue(h.job, "sync")
        await h.run_until_idle()
        await h.advance(minutes=31)

        assert deleted(await h.cycle("metadata_cleanup")) == [1]

        assert h.entry().scheduled_at == TEN + timedelta(hours=1)
        h.errors.clear()
        await h.advance(hours=1)
        await h.run_until_idle()
        assert h.ran == ["sync", "sync"]


async def test_children_and_dead_letters_only_forget_the_record(url: str) -> None:
    async with build_harness(url, metadata_cleanup_trains=["job"]) as h:
        h.app.schedule(h.job, "sync", "sync", every(minutes=5), max_retries=1)
        await h.seed()
        await h.dead_letter("sync")
        (letter,) = await h.letters()
        await h.app.dead_letters.requeue([letter.id])
        await h.cycle("job_dispatcher")
        await h.work()
        parent = (await h.app.dead_letters.get(letter.id)).retry_metadata_id
        child = h.insert_run(train="other", parent_id=parent)
        await h.advance(minutes=31)

        await h.cycle("metadata_cleanup")

        assert (await h.app.dead_letters.get(letter.id)).retry_metadata_id is None
        assert (await h.app.executions.get(child)).parent_id is None
        assert await h.app.executions.list(train="job") == []


async def test_cleaning_a_parents_history_does_not_stop_its_dependents(url: str) -> None:
    h = build_harness(url, metadata_cleanup_trains=["job"], metadata_cleanup_retention=timedelta(minutes=1))
    h.schedule(h.job, "parent", "parent", every(minutes=30)).then_include(h.job, "child", "child")
    async with h:
        await h.cycle("manifest_manager")
        await h.cycle("job_dispatcher")
        await h.work()
        await h.advance(minutes=2)
        await h.cycle("metadata_cleanup")
        assert await h.app.executions.list() == []

        await h.run_until_idle()
        assert h.ran == ["parent", "child"]

        await h.advance(minutes=30)
        await h.cycle("metadata_cleanup")
        await h.run_until_idle()
        assert h.ran == ["parent", "child", "parent", "child"]


async def test_the_cleanup_leaves_a_record_and_none_about_removing_its_own(url: str) -> None:
    async with build_harness(url) as h:
        add_ended(h, MANAGER, minutes_ago=31)
        await h.cycle("metadata_cleanup")
        assert trains(h) == [CLEANUP]

        await h.advance(minutes=31)
        assert deleted(await h.cycle("metadata_cleanup")) == [1]

        assert trains(h) == []


async def test_the_cleanup_is_off_by_default_and_can_be_switched_on(url: str) -> None:
    async with ManagerHarness(url, TEN) as h:
        add_ended(h, MANAGER, minutes_ago=31)

        assert await h.cycle("metadata_cleanup") == []
        await h.app.settings.update(metadata_cleanup_enabled=True)
        assert deleted(await h.cycle("metadata_cleanup")) == [1]


def test_every_administrative_train_is_among_those_that_are_cleaned() -> None:
    modules = [
        importlib.import_module(f"{engine.__name__}.{each.name}")
        for each in pkgutil.iter_modules(engine.__path__)
    ]
    found = {value.name for module in modules for value in vars(module).values() if isinstance(value, Train)}

    assert found == ADMINISTRATIVE_TRAINS
    assert all(name.startswith(PREFIX) for name in found)


async def test_a_server_that_finds_another_one_cleaning_does_not_wait(postgres_url: str) -> None:
    async with build_harness(postgres_url) as h:
        add_ended(h, MANAGER, minutes_ago=31)
        context, store = h.app.context, h.store
        held, done = Barrier(2), Barrier(2)

        def hold(connection: Connection) -> None:
            assert dialect.try_cleanup_lock(connection)
            held.wait()
            done.wait()

        other = Thread(target=store.run, args=[hold])
        other.start()
        held.wait()
        cleaned = await store.call(clean_metadata_now, store, context, {})
        done.wait()
        other.join()

        assert cleaned.total == 0
        assert deleted(await h.cycle("metadata_cleanup")) == [1]


async def test_the_cleanup_finds_old_records_with_an_index(postgres_url: str) -> None:
    async with build_harness(postgres_url) as h:
        add_many(h, 3000, minutes_ago=600)

        def explained(connection: Connection) -> str:
            connection.execute(text("ANALYZE trax.metadata"))
            query = (
                select_ended("postgresql").limit(1000).params(train=MANAGER, since=BEGINNING, before=h.now)
            )
            literal = query.compile(connection.engine, compile_kwargs={"literal_binds": True})
            return "\n".join(connection.execute(text(f"EXPLAIN {literal}")).scalars())

        assert "Index Scan using metadata_ended_idx" in h.store.run(explained)


async def test_a_train_that_has_much_to_delete_does_not_keep_the_batches_from_the_others(url: str) -> None:
    settings = {"metadata_cleanup_trains": ["busy", "calm"], "metadata_cleanup_batch_size": 2}
    async with build_harness(url, **settings) as h:
        for minutes_ago in (60, 59, 58, 57):
            add_ended(h, "busy", minutes_ago)
        add_ended(h, "calm", 40)

        cleaned = await h.cycle("metadata_cleanup")

        assert [dict(batch.by_train) for batch in cleaned] == [
            {"busy": 2},
            {"calm": 1, "busy": 1},
            {"busy": 1},
        ]
