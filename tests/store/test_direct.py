"""Single statements from an event loop: without a thread once there are many, and as safe as with one."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest
import uvloop
from sqlalchemy import text
from tests.support.backends import cut_off
from tests.support.waiting import until

from trax.errors import AccessDenied, RowsRefused, StoreError, StoreUnavailable
from trax.events import Topic
from trax.records.work_queue_entry import new_external_ids
from trax.store import Store, direct
from trax.store.postgresql import PREPARE_AFTER
from trax.store.queue import entry_batches
from trax.store.store import OPEN_DIRECT_AFTER, DirectConnections

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

COLUMNS = {"train": "greet", "origin": "queue", "priority": 3}
WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


@pytest.fixture
def store(postgres_url: str) -> Generator[Store]:
    store = Store(postgres_url)
    yield store
    store.close()


class Opened(NamedTuple):
    """A connection that an event loop got."""

    connections: DirectConnections
    driver: psycopg.Connection[Any]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Opened]:
    """The connections that event loops get from now on."""
    noted: list[Opened] = []
    add = DirectConnections.add

    def note(self: DirectConnections, pooled: Any) -> None:
        noted.append(Opened(self, pooled.driver_connection))
        add(self, pooled)

    monkeypatch.setattr(DirectConnections, "add", note)
    return noted


async def is_gone(connections: DirectConnections) -> None:
    """Return once this event loop has no connection."""
    while connections.find() is not None:
        await asyncio.to_thread(lambda: None)


def count_sessions(url: str) -> int:
    with psycopg.connect(url) as admin:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        [[number]] = admin.execute(query).fetchall()
        return number - 1


async def insert(store: Store, *inputs: str, external_id: str | None = None, **columns: Any) -> list[int]:
    ids = [external_id] if external_id else new_external_ids(len(inputs))
    statement = entry_batches.bind_batch(
        store.dialect_name, dict(zip(ids, inputs, strict=True)), COLUMNS | columns
    )
    return entry_batches.parse_inserted(await store.call_alone(statement, Topic.WORK_QUEUE)).ids


async def warm_up(store: Store) -> None:
    for _ in range(OPEN_DIRECT_AFTER):
        await insert(store, "1")


def count(store: Store) -> int:
    return store.read(
        lambda connection: connection.execute(text("SELECT count(*) FROM trax.work_queue")).scalar_one()
    )


@contextmanager
def no_threads(store: Store) -> Generator[None]:
    """Fail if a transaction is to run in a thread."""

    async def refuse(_work: Any) -> Any:
        raise AssertionError("a thread was used")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "_run_in_thread", refuse)
        yield


async def sessions_wait(admin: psycopg.Connection[Any], number: int) -> None:
    def are_waiting() -> bool:
        found = admin.execute(WAITING).fetchone()
        return found is not None and found[0] >= number

    await asyncio.to_thread(until, are_waiting)


async def test_an_event_loop_that_writes_often_needs_no_thread(store: Store) -> None:
    await warm_up(store)

    with no_threads(store):
        [first] = await insert(store, "1")
        many = await insert(store, *map(str, range(100)), priority=5, timeout_seconds=1.5, retry='{"a": 1}')

    assert many == list(range(first + 1, first + 101))
    assert count(store) == OPEN_DIRECT_AFTER + 101


async def test_a_large_statement_is_sent_in_parts(store: Store) -> None:
    await warm_up(store)
    long = '"' + 100_000 * "é" + '"'

    with no_threads(store):
        ids = await insert(store, *40 * [long])

    query = text("SELECT input::text FROM trax.work_queue WHERE id = :id")
    assert store.read(lambda connection: connection.execute(query, {"id": ids[-1]}).scalar_one()) == long


async def test_a_second_statement_at_the_same_time_goes_through_a_thread(
    store: Store, postgres_url: str
) -> None:
    await warm_up(store)
    with psycopg.connect(postgres_url) as holder, psycopg.connect(postgres_url, autocommit=True) as admin:
        holder.execute("LOCK TABLE trax.work_queue")
        both = [asyncio.create_task(insert(store, "1")) for _ in range(2)]
        await sessions_wait(admin, 2)
        holder.rollback()

    assert len({entry_id for ids in await asyncio.gather(*both) for entry_id in ids}) == 2


async def test_a_refused_row_is_an_error_of_its_caller_alone(store: Store) -> None:
    await warm_up(store)

    with no_threads(store):
        await insert(store, "1")
        with pytest.raises(RowsRefused):
            await insert(store, "no JSON")
        await insert(store, "1")


async def test_a_cancelled_caller_waits_for_a_statement_that_was_sent(
    store: Store, postgres_url: str
) -> None:
    await warm_up(store)
    with psycopg.connect(postgres_url) as holder, psycopg.connect(postgres_url, autocommit=True) as admin:
        holder.execute("LOCK TABLE trax.work_queue")
        caller = asyncio.create_task(insert(store, "1"))
        await sessions_wait(admin, 1)
        caller.cancel()
        await asyncio.to_thread(lambda: None)
        assert not caller.done()
        holder.rollback()

        with pytest.raises(asyncio.CancelledError):
            await caller

    assert count(store) == OPEN_DIRECT_AFTER + 1
    with no_threads(store):
        await insert(store, "1")


async def test_a_caller_who_is_cancelled_twice_leaves_a_closed_connection(
    store: Store, postgres_url: str
) -> None:
    await warm_up(store)
    with psycopg.connect(postgres_url) as holder, psycopg.connect(postgres_url, autocommit=True) as admin:
        holder.execute("LOCK TABLE trax.work_queue")
        caller = asyncio.create_task(insert(store, "1"))
        await sessions_wait(admin, 1)
        caller.cancel()
        await asyncio.to_thread(lambda: None)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        holder.rollback()

    await insert(store, "1")


async def test_a_connection_lost_during_a_statement_is_a_passing_fault(
    store: Store, postgres_url: str
) -> None:
    await warm_up(store)
    with psycopg.connect(postgres_url) as holder, psycopg.connect(postgres_url, autocommit=True) as admin:
        holder.execute("LOCK TABLE trax.work_queue")
        caller = asyncio.create_task(insert(store, "1"))
        await sessions_wait(admin, 1)
        cut_off(postgres_url, only="trax%")

        with pytest.raises(StoreUnavailable) as lost:
            await caller

    assert lost.value.may_be_committed
    await warm_up(store)
    assert count(store) == 2 * OPEN_DIRECT_AFTER


async def test_a_connection_lost_while_idle_is_replaced(
    store: Store, opened: list[Opened], postgres_url: str
) -> None:
    await warm_up(store)
    cut_off(postgres_url, only="trax%")
    await is_gone(opened[0].connections)

    await warm_up(store)

    with no_threads(store):
        await insert(store, "1")


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_server_that_is_gone_before_the_event_loop_noticed_is_a_passing_fault(
    store: Store,
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    """uvloop reports such a connection once, and never again."""
    monkeypatch.setattr(direct, "CHECK_SECONDS", 0.1)

    async def main() -> None:
        await warm_up(store)
        cut_off(postgres_url, only="trax%")
        until(lambda: count_sessions(postgres_url) == 0)  # in the thread of the event loop

        async with asyncio.timeout(20):  # a statement may take longer
            with pytest.raises(StoreUnavailable):
                await insert(store, "1")

    run(main())


async def test_an_idle_connection_goes_back_to_the_pool(
    store: Store, opened: list[Opened], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "CHECK_SECONDS", 0.01)
    for _ in range(2):
        await warm_up(store)
        await is_gone(opened[-1].connections)

    assert opened[0].driver is opened[1].driver
    assert len(opened) == 2
    assert count_sessions(postgres_url) == 1


async def test_a_read_only_server_is_left(store: Store, opened: list[Opened]) -> None:
    await warm_up(store)
    opened[0].driver.pgconn.exec_(b"SET default_transaction_read_only = on")

    with pytest.raises(AccessDenied), no_threads(store):
        await insert(store, "1")

    await insert(store, "1")


async def test_a_silent_server_does_not_block_a_caller_for_ever(
    store: Store, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr("trax.store.store.LAST_SECONDS", 0.05)
    await warm_up(store)
    with psycopg.connect(postgres_url) as holder:
        holder.execute("LOCK TABLE trax.work_queue")
        store.shorten_timeouts()

        with pytest.raises(StoreUnavailable, match="no response for"):
            await insert(store, "1")


async def test_behind_a_pooler_a_commit_must_be_answered_as_one(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(f"{postgres_url}?prepare_statements=off")
    await warm_up(store)
    usual = direct._COMMIT  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(direct, "_COMMIT", usual._replace(text=b"ROLLBACK"))

    with no_threads(store), pytest.raises(StoreError, match="COMMIT was answered with"):
        await insert(store, "1")

    assert count(store) == OPEN_DIRECT_AFTER
    store.close()


@pytest.mark.parametrize("threshold", [None, PREPARE_AFTER])
async def test_statements_are_prepared_only_where_that_is_safe(
    store: Store, opened: list[Opened], threshold: int | None
) -> None:
    await warm_up(store)
    opened[0].driver.prepare_threshold = threshold

    with no_threads(store):
        await insert(store, *map(str, range(3)))

    response = opened[0].driver.pgconn.exec_(
        b"SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%array_agg%'"
    )
    assert response.get_value(0, 0) == (b"0" if threshold is None else b"1")


async def test_few_event_loops_keep_a_connection(store: Store, opened: list[Opened]) -> None:
    for _ in range(5):
        await asyncio.to_thread(asyncio.run, warm_up(store))
    ended = len(opened)

    await asyncio.gather(*(asyncio.to_thread(asyncio.run, warm_up(store)) for _ in range(5)))

    assert ended == 5
    assert count(store) == 10 * OPEN_DIRECT_AFTER


def test_closing_the_store_closes_the_connections_of_all_event_loops(store: Store, postgres_url: str) -> None:
    async def write_and_close() -> None:
        await warm_up(store)
        store.close()

    asyncio.run(warm_up(store))
    asyncio.run(write_and_close())

    until(lambda: count_sessions(postgres_url) == 0)
