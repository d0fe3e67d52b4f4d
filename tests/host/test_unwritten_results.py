"""Endings that cannot be written now: a read-only server, a full disk, a lock, a table that is not there.

Whatever it is, the run has ended as it did, and its record says so once the fault is over: no failure, and no
second execution.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import text
from tests.support.backends import read_only
from tests.support.results import refuse_results

from trax import Metadata, Trax
from trax.errors import AccessDenied, SchemaNotMigrated, StoreError, StoreUnavailable
from trax.records import State
from trax.store import pipeline
from trax.store.faults import Fault, RowsRefused, fault_of
from trax.store.runs import metadata
from trax.testing import Harness
from trax.worker import recorded_run, results
from trax.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from trax.records.result import RunResult
    from trax.store import Connection, Store

LONG = "x" * 100_000
"""An output that needs more room than a page has."""


class UnwrittenResultSetup:
    """A worker that does nothing by itself, and a run of it that has ended and is not written."""

    def __init__(self, h: Harness, store: Store, worker: Worker, ran: list[int]) -> None:
        self.h = h
        self.app = h.app
        self.store = store
        self.worker = worker
        self.ran = ran

    async def end(self, *numbers: int) -> None:
        """Run these, and write nothing down."""
        await self.app.queue_many("work", numbers)
        await self.h.cycle("job_dispatcher")
        await self.worker.claim()
        async with asyncio.timeout(30):
            await self.worker._pool.wait_until_idle()  # pyright: ignore[reportPrivateUsage]

    async def records(self) -> list[Metadata]:
        return list(reversed(await self.app.executions.list()))

    async def has_completed(self, *numbers: int) -> None:
        """Each has been executed once, and has one record, which says so."""
        await self.worker.send_heartbeat()
        await self.worker.send_heartbeat()
        await self.h.run_until_idle()
        assert sorted(self.ran) == sorted(numbers)
        assert [(one.input, one.state) for one in await self.records()] == [
            (number, State.COMPLETED) for number in numbers
        ]


@asynccontextmanager
async def yard_on(url: str, **settings: Any) -> AsyncGenerator[UnwrittenResultSetup]:
    app, ran = Trax(url, local_worker_count=5, **settings), list[int]()

    @app.train
    async def work(number: int) -> str:
        ran.append(number)
        return f"{number} {LONG}"

    async with Harness(app) as h:
        store = await app.context.store.open()
        worker = await Worker.start(app.context, store)
        yield UnwrittenResultSetup(h, store, worker, ran)
        await worker.drain(0)
        await worker.unregister()


@pytest.fixture
async def setup(url: str) -> AsyncGenerator[UnwrittenResultSetup]:
    async with yard_on(url) as made:
        yield made


async def test_the_server_is_read_only_for_a_while(postgres_url: str) -> None:
    async with yard_on(postgres_url) as setup:
        await setup.end(1, 2)
        with read_only(postgres_url):
            with pytest.raises(StoreUnavailable):  # its connections were cut
                await setup.worker.flush()
            for _ in range(3):
                with pytest.raises(AccessDenied, match="is read-only"):
                    await setup.worker.flush()

        assert await setup.worker.flush() == 2  # on new connections, to whoever writes now
        await setup.has_completed(1, 2)


async def test_a_server_continues_by_itself_when_it_may_write_again(postgres_url: str) -> None:
    app = Trax(postgres_url, local_polling_interval=0.1, polling_interval=0.1)
    began, go_on, ran = asyncio.Event(), asyncio.Event(), list[int]()

    @app.train
    async def work(number: int) -> int:
        ran.append(number)
        began.set()
        await go_on.wait()
        return number

    async with asyncio.timeout(60), app:
        entry = await app.queue(work, 1)
        await began.wait()
        with read_only(postgres_url):
            go_on.set()
            finisher = next(loop for loop in app.loops if loop.name == "finisher")
            while finisher.failed_turns < 2:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)
        ended = await entry.wait()
        records = await app.executions.list(train="work")

    assert (ended.state, ended.output, ran) == (State.COMPLETED, 1, [1])
    assert [record.state for record in records] == [State.COMPLETED]


@pytest.mark.parametrize("where", ["memory", "file"])
async def test_the_disk_is_full_for_a_while(tmp_path: Any, where: str) -> None:
    url = "memory://" if where == "memory" else f"sqlite:///{tmp_path}/trax.db"

    def allow(connection: Connection, pages: int) -> None:
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

    def pages(connection: Connection) -> int:
        return int(connection.exec_driver_sql("PRAGMA page_count").scalar_one())

    async with yard_on(url) as setup:
        await setup.end(1, 2)
        setup.store.run(allow, setup.store.run(pages))
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match="is full"):
                await setup.worker.flush()
        setup.store.run(allow, 1_000_000)

        assert await setup.worker.flush() == 2
        await setup.has_completed(1, 2)


async def test_the_tables_are_gone_for_a_while(setup: UnwrittenResultSetup) -> None:
    def rename(connection: Connection, old: str, new: str) -> None:
        schema = "trax_" if connection.dialect.name == "sqlite" else "trax."
        target = f"trax_{new}" if connection.dialect.name == "sqlite" else new
        connection.execute(text(f"ALTER TABLE {schema}{old} RENAME TO {target}"))

    await setup.end(1, 2)
    setup.store.run(rename, "metadata", "elsewhere")
    with pytest.raises(SchemaNotMigrated):
        await setup.worker.flush()
    setup.store.run(rename, "elsewhere", "metadata")

    assert await setup.worker.flush() == 2
    await setup.has_completed(1, 2)


async def test_a_lock_is_held_for_too_long(postgres_url: str) -> None:
    async with yard_on(f"{postgres_url}?options=-c%20lock_timeout%3D100ms") as setup:
        await setup.end(1)
        with psycopg.connect(postgres_url) as other:
            other.execute("LOCK TABLE trax.metadata")
            with pytest.raises(StoreUnavailable, match="lock timeout"):
                await setup.worker.flush()

        assert await setup.worker.flush() == 1
        await setup.has_completed(1)


async def test_an_unknown_fault_delays_only_the_result_it_affects(
    setup: UnwrittenResultSetup, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def error_for(result: RunResult) -> Exception | None:
        return StoreError("XX000: what is this?") if result.metadata_id == spoiled else None

    await setup.end(1, 2, 3)
    spoiled = (await setup.records())[0].id
    with monkeypatch.context() as patch:
        refuse_results(patch, error_for)
        assert await setup.worker.flush() == 2
        for _ in range(3):  # it is tried again with each heartbeat, and reported once
            await setup.worker.send_heartbeat()
        states = [record.state for record in await setup.records()]

    assert states == [State.IN_PROGRESS, State.COMPLETED, State.COMPLETED]
    assert caplog.text.count("the database refuses its result") == 1
    await setup.has_completed(1, 2, 3)


async def test_a_result_refused_even_as_a_failure_is_written_when_it_is_accepted(
    setup: UnwrittenResultSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    await setup.end(1, 2)
    refused = (await setup.records())[0].id
    with monkeypatch.context() as patch:
        refuse_results(patch, lambda result: RowsRefused("no") if result.metadata_id == refused else None)
        assert await setup.worker.flush() == 1
        await setup.worker.send_heartbeat()

    await setup.has_completed(1, 2)


async def test_large_results_are_written_in_several_batches(
    setup: UnwrittenResultSetup, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pipeline, "MAX_STATEMENT_BYTES", 3 * len(LONG))
    monkeypatch.setattr(results, "MAX_BATCH_CHARACTERS", 2 * len(LONG) + 10)
    await setup.end(*range(5))

    assert await setup.worker.flush() == 5

    assert "could not be written in one batch" not in caplog.text
    await setup.has_completed(*range(5))


async def test_a_result_too_large_for_a_statement_is_recorded_as_a_failure(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with yard_on(postgres_url) as setup:
        await setup.end(1)
        with monkeypatch.context() as patch:
            patch.setattr(pipeline, "MAX_STATEMENT_BYTES", len(LONG))
            assert await setup.worker.flush() == 1
        (record,) = await setup.records()

    assert record.state is State.FAILED
    assert "one statement can have at most 100,000" in str(record.failure_reason)


@pytest.fixture
def app(url: str) -> Generator[Trax]:
    made = Trax(url)
    yield made
    made.close()


async def test_app_run_waits_until_its_result_can_be_written(
    app: Trax, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish: Any = metadata.finish
    faults = [AccessDenied("is read-only"), StoreUnavailable("is full"), SchemaNotMigrated("gone")]

    def late(*what: Any, **how: Any) -> Any:
        if faults:
            raise faults.pop()
        return finish(*what, **how)

    monkeypatch.setattr(recorded_run, "PAUSES", (0,))
    monkeypatch.setattr(metadata, "finish", late)
    ran: list[int] = []

    @app.train
    async def work(number: int) -> int:
        ran.append(number)
        return number

    assert await app.run(work, 1) == 1

    (record,) = await app.executions.list()
    assert (record.state, record.output, ran, faults) == (State.COMPLETED, 1, [1], [])


async def test_app_run_gives_up_on_its_result_after_the_last_pause(
    app: Trax, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AccessDenied("is read-only")

    monkeypatch.setattr(recorded_run, "PAUSES", (app.context.settings.worker_lost_after.total_seconds() + 1,))
    monkeypatch.setattr(metadata, "finish", never)

    @app.train
    async def work(number: int) -> int:
        return number

    with pytest.raises(AccessDenied):
        await app.run(work, 1)


async def test_a_result_of_app_run_that_cannot_be_stored_is_recorded_as_a_failure(
    app: Trax, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish: Any = metadata.finish

    def picky(connection: Any, endings: Any, **how: Any) -> Any:
        if endings[0].state is State.COMPLETED:
            raise RowsRefused("22P05: no such character")
        return finish(connection, endings, **how)

    monkeypatch.setattr(metadata, "finish", picky)

    @app.train
    async def work(number: int) -> int:
        return number

    with pytest.raises(RowsRefused):
        await app.run(work, 1)

    (record,) = await app.executions.list()
    assert (record.state, record.failure_exception) == (State.FAILED, RowsRefused.__name__)
    assert "could not be stored: 22P05" in str(record.failure_reason)


def _refusal(store: Store, statement: str, **given: Any) -> Fault:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - of what kind is the question
        store.run(lambda connection: connection.execute(text(statement), given))
    return fault_of(raised.value)


@pytest.mark.parametrize(
    ("statement", "given", "fault"),
    [
        ("INSERT INTO {group} (name) VALUES (NULL)", {}, Fault.CONTENT),
        ("SELECT :value", {"value": "\ud800"}, Fault.CONTENT),
        ("SELECT :value", {"value": object()}, Fault.CONTENT),
        ("SELECT nothing FROM nowhere", {}, Fault.CONFIGURATION),
        ("this is no SQL", {}, Fault.CONFIGURATION),
    ],
)
def test_only_data_errors_are_faults_of_content(
    store: Store, statement: str, given: dict[str, Any], fault: Fault
) -> None:
    sqlite = store.run(lambda connection: connection.dialect.name == "sqlite")
    group = "trax_manifest_group" if sqlite else "trax.manifest_group"

    assert _refusal(store, statement.format(group=group), **given) is fault


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("SELECT 1 / (SELECT 0)", Fault.CONTENT),
        ("SELECT E'\\x00'", Fault.CONTENT),
        ("DO $$ BEGIN RAISE SQLSTATE '53100'; END $$", Fault.TRANSIENT),
        ("DO $$ BEGIN RAISE SQLSTATE '55P03'; END $$", Fault.TRANSIENT),
        ("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$", Fault.TRANSIENT),
        ("DO $$ BEGIN RAISE SQLSTATE '25006'; END $$", Fault.CONFIGURATION),
        ("DO $$ BEGIN RAISE SQLSTATE 'XX000'; END $$", Fault.CONFIGURATION),
    ],
)
def test_every_data_error_of_postgresql_is_recognized(
    postgres_url: str, statement: str, fault: Fault
) -> None:
    app = Trax(postgres_url)
    try:
        assert _refusal(app.context.store.open_blocking(), statement) is fault
    finally:
        app.close()
