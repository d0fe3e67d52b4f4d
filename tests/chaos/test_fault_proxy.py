"""The proxy makes each fault on every kind of connection, and nothing else."""

from __future__ import annotations

import asyncio
import select
import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import text
from tests.support.fault_proxy import Fault, FaultProxy, fault_proxy

from trax.errors import StoreError
from trax.events import Events, Topic
from trax.server.listen import Listener
from trax.store import Store
from trax.store.announce import Announcer
from trax.store.pipeline import commit_together

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from psycopg.pq.abc import PGresult

    from trax.store import Connection

INSERT = text("INSERT INTO trax.setting VALUES (:name, '1', now())")
ALONE = text(
    "INSERT INTO trax.setting VALUES (:name, '1', coalesce(CAST(:now AS timestamptz), now())) "
    "RETURNING CAST(:payload AS text)"
)
COUNT = text("SELECT count(*) FROM trax.setting")
IS_STORED = {
    Fault.REFUSED: False,
    Fault.LOST_BEFORE: False,
    Fault.LOST_AFTER: True,
    Fault.CUT: True,
    Fault.SLOW: True,
}


@pytest.fixture
def proxy(postgres_url: str) -> Generator[FaultProxy]:
    with fault_proxy(postgres_url) as made:
        yield made


@contextmanager
def opened(url: str) -> Generator[Store]:
    store = Store(url)
    with closing(store):
        yield store


def add(connection: Connection, name: str) -> None:
    connection.execute(INSERT, {"name": name})


def count(store: Store) -> int:
    return store.read(lambda connection: connection.execute(COUNT).scalar_one())


def pooled(store: Store) -> None:
    store.run(add, "new")


def in_one_trip(store: Store) -> None:
    """A pipeline with the commit in it."""
    store.run(commit_together, (INSERT, {"name": "new"}), SELECT)


def alone(store: Store) -> None:
    store.run_alone((ALONE, {"name": "new"}), Topic.MANIFEST)


def direct(store: Store) -> None:
    """On a connection of the event loop: several statements, one synchronisation."""

    async def call() -> None:
        for _ in range(6):
            await store.call_together(SELECT)
        assert store._lane.direct is not None  # pyright: ignore[reportPrivateUsage]
        assert store._lane.direct.find() is not None  # pyright: ignore[reportPrivateUsage]
        await store.call_together((INSERT, {"name": "new"}), SELECT)

    asyncio.run(call())


SELECT = (text("SELECT 1"), dict[str, object]())


@pytest.mark.parametrize("fault", IS_STORED)
@pytest.mark.parametrize("write", [pooled, in_one_trip, alone])
def test_a_fault_hits_one_commit_and_the_next_one_works(
    postgres_url: str, proxy: FaultProxy, write: Callable[[Store], None], fault: Fault
) -> None:
    with opened(proxy.url) as store, opened(postgres_url) as witness:
        count(store)
        proxy.inject(fault)

        if fault is Fault.SLOW:
            write(store)
        else:
            with pytest.raises(StoreError):
                write(store)

        assert (count(witness), proxy.counts[fault]) == (IS_STORED[fault], 1)
        store.run(add, "another")
        assert count(witness) == IS_STORED[fault] + 1
        assert proxy.counts.total() == 1


@pytest.mark.parametrize("fault", IS_STORED)
def test_a_fault_hits_a_transaction_of_the_direct_connection(
    postgres_url: str, proxy: FaultProxy, fault: Fault
) -> None:
    with opened(proxy.url) as store, opened(postgres_url) as witness:
        count(store)
        proxy.inject(fault)

        if fault is Fault.SLOW:
            direct(store)
        else:
            with pytest.raises(StoreError):
                direct(store)

        assert (count(witness), proxy.counts[fault]) == (IS_STORED[fault], 1)


def next_result(connection: psycopg.Connection[Any]) -> PGresult | None:
    """libpq itself would wait without letting the thread of the proxy run."""
    while connection.pgconn.is_busy():
        select.select([connection.fileno()], [], [])
        connection.pgconn.consume_input()
    return connection.pgconn.get_result()


def test_a_refused_implicit_commit_is_reported_after_the_statement_is_complete(
    postgres_url: str, proxy: FaultProxy
) -> None:
    """As by a server: first that the statement is complete, then the error, and nothing is stored."""
    proxy.inject(Fault.REFUSED)
    with psycopg.connect(proxy.url, autocommit=True) as connection:
        connection.pgconn.send_query_params(b"INSERT INTO trax.setting VALUES ('a', '1', now())", [])
        results: list[tuple[int, bytes | None]] = []
        while (result := next_result(connection)) is not None:
            results.append((result.status, result.error_field(psycopg.pq.DiagnosticField.SQLSTATE)))

    assert results[-1] == (psycopg.pq.ExecStatus.FATAL_ERROR, b"54000")
    with opened(postgres_url) as witness:
        assert count(witness) == 0


def test_a_doubled_statement_is_executed_twice_and_answered_once(proxy: FaultProxy) -> None:
    proxy.inject(Fault.DOUBLED, lambda unit: unit.has("nextval"))
    with psycopg.connect(proxy.url, autocommit=True) as connection:
        connection.execute("CREATE SEQUENCE numbers")
        numbers = [connection.execute("SELECT nextval('numbers')").fetchone() for _ in range(2)]

    assert numbers == [(2,), (3,)]


def test_a_listener_whose_connection_is_cut_connects_again(postgres_url: str, proxy: FaultProxy) -> None:
    woken = threading.Event()
    events = Events()
    events.listen(Topic.CANCEL, woken.set)
    with opened(postgres_url) as store:
        listener = Listener(proxy.url, Announcer(events), timeouts=store.timeouts)
        try:
            listener.wait_for_first_try(30)
            woken.clear()
            proxy.cut()
            assert woken.wait(30), "connecting again wakes everything"
        finally:
            listener.close()
