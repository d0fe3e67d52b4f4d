"""A commit is refused, though every statement succeeded: by a full queue of notifications, or a trigger."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.support.databases import PostgresDatabases
from tests.support.lost_answers import full_notify_queue, refused_commits

from trax import StoreUnavailable, Trax, every
from trax.errors import StoreError
from trax.records import State
from trax.store.store import OPEN_DIRECT_AFTER
from trax.testing import Harness, postgres
from trax.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator
    from pathlib import Path

    from trax.store import Store


@pytest.fixture
def app(postgres_url: str) -> Generator[Trax]:
    made = Trax(postgres_url)

    @made.train
    async def greet(name: str) -> str:
        return name

    made.context.store.open_blocking()
    yield made
    made.close()


def count(url: str, table: str = "work_queue") -> int:
    with psycopg.connect(url) as admin:
        return len(admin.execute(f"TABLE trax.{table}".encode()).fetchall())


async def warm_up(app: Trax) -> None:
    for number in range(OPEN_DIRECT_AFTER):
        await app.queue("greet", f"warm {number}")


@pytest.mark.parametrize("code", ["54000", "P0001", "40001"])
async def test_a_call_whose_commit_is_refused_returns_no_entry(
    app: Trax, postgres_url: str, code: str
) -> None:
    await warm_up(app)
    before = count(postgres_url)

    with refused_commits(postgres_url, "work_queue", code=code):
        results = await asyncio.gather(
            *(app.queue("greet", f"guest {number}") for number in range(20)),
            app.queue("greet", "with a key", unique="key"),
            app.queue("greet", "in a new group", group="new"),
            app.queue_many("greet", ["several", "at once"]),
            asyncio.to_thread(app.sync.queue, "greet", "blocking"),
            return_exceptions=True,
        )

    kind = StoreError if code == "P0001" else StoreUnavailable
    assert [type(result) for result in results] == [kind] * len(results)
    assert not any(getattr(result, "may_be_committed", False) for result in results)
    assert count(postgres_url) == before


async def test_a_transaction_that_the_server_rolled_back_is_not_reported_as_committed(
    app: Trax, postgres_url: str
) -> None:
    def hide_an_error(connection: Any) -> str:
        connection.exec_driver_sql("CREATE TABLE trax.mine (a int)")
        try:
            connection.exec_driver_sql("SELECT 1 / 0")
        except Exception:  # noqa: BLE001
            return "done"
        return "unexpected"

    with pytest.raises(StoreError, match="COMMIT was answered with ROLLBACK"):
        app.context.store.open_blocking().run(hide_an_error)

    with pytest.raises(psycopg.errors.UndefinedTable):
        count(postgres_url, "mine")


@asynccontextmanager
async def worker_on(app: Trax) -> AsyncGenerator[tuple[Harness, Worker]]:
    async with Harness(app) as h:
        store: Store = await app.context.store.open()
        worker = await Worker.start(app.context, store)
        yield h, worker
        await worker.drain(0)
        await worker.unregister()


@pytest.mark.parametrize("code", ["54000", "P0001", "23505"])
async def test_results_whose_commit_is_refused_are_written_when_it_is_not(
    app: Trax, postgres_url: str, code: str
) -> None:
    ran: list[int] = []

    @app.train
    async def work(number: int) -> int:
        ran.append(number)
        return number

    async with worker_on(app) as (h, worker):
        await app.queue_many("work", range(8))
        await h.cycle("job_dispatcher")
        await worker.claim()
        await worker._pool.wait_until_idle()  # pyright: ignore[reportPrivateUsage]
        with refused_commits(postgres_url, "metadata", code=code, when="NEW.ended_at IS NOT NULL"):
            for _ in range(3):
                if code == "54000":
                    with pytest.raises(StoreUnavailable, match="no commit today"):
                        await worker.flush()
                else:
                    assert await worker.flush() == 0
                    await worker.send_heartbeat()
        await worker.flush()
        await worker.send_heartbeat()
        await h.run_until_idle()
        states = [record.state for record in await app.executions.list(train="work")]

    assert states == [State.COMPLETED] * 8
    assert sorted(ran) == list(range(8))


@pytest.mark.parametrize("code", ["54000", "23505"])
async def test_a_schedule_continues_after_its_commits_were_refused(
    app: Trax, postgres_url: str, code: str
) -> None:
    async with Harness(app) as h:
        await app.manifests.schedule(app.trains.get("greet"), "daily", "Ada", every(days=1))
        refused = refused_commits(postgres_url, "work_queue", code=code)
        with refused, pytest.raises(StoreError, match="no commit today"):
            await h.cycle("manifest_manager")
        await h.run_until_idle()
        runs = await app.executions.list(train="greet")

    assert [run.state for run in runs] == [State.COMPLETED]


@pytest.fixture
def small_notify_queue(newest_binaries: Path) -> Generator[str]:
    settings = {"max_notify_queue_pages": "64"}
    with (
        postgres(binaries=newest_binaries, settings=settings) as server,
        PostgresDatabases(server).database() as address,
    ):
        yield address


async def test_a_full_queue_of_notifications_loses_no_entry_and_no_result(small_notify_queue: str) -> None:
    ran: list[int] = []
    app = Trax(small_notify_queue)

    @app.train
    async def work(number: int) -> int:
        ran.append(number)
        return number

    async with worker_on(app) as (h, worker):
        for number in range(8):
            await app.queue("work", number)
        await h.cycle("job_dispatcher")
        await worker.claim()
        await worker._pool.wait_until_idle()  # pyright: ignore[reportPrivateUsage]
        with full_notify_queue(small_notify_queue):
            results = await asyncio.gather(
                *(app.queue("work", number) for number in range(100, 120)), return_exceptions=True
            )
            stored = count(small_notify_queue)
            await worker.flush()
        await h.run_until_idle()
        records = await app.executions.list(train="work", limit=100)

    assert {type(result) for result in results} == {StoreUnavailable}
    assert stored == 8
    assert sorted(ran) == list(range(8))
    assert {record.state for record in records} == {State.COMPLETED}
    assert len(records) == 8
