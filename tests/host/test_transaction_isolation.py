"""The database's own default isolation level changes nothing: every transaction of Trax is READ COMMITTED."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import create_engine, text
from tests.support.waiting import until

from trax import Trax
from trax.records.metadata import NewRun
from trax.store import Store
from trax.store.dialect import gate_lock
from trax.store.listen import open_connection
from trax.store.runs import metadata
from trax.store.store import OPEN_DIRECT_AFTER

if TYPE_CHECKING:
    from collections.abc import Generator

HOUR = timedelta(hours=1)
LEVEL: Any = text("SELECT current_setting('transaction_isolation') AS level, :given AS given")
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


@pytest.fixture(params=["repeatable read", "serializable"])
def strict_url(request: pytest.FixtureRequest, postgres_url: str) -> str:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        name = admin.info.dbname
        admin.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = '{request.param}'".encode())
    return postgres_url


@pytest.fixture(params=["", "?prepare_statements=off"], ids=["own session", "behind a pooler"])
def address(request: pytest.FixtureRequest, strict_url: str) -> str:
    return f"{strict_url}{request.param}"


@pytest.fixture
def store(address: str) -> Generator[Store]:
    store = Store(address)
    yield store
    store.close()


async def test_every_transaction_of_a_store_is_read_committed(store: Store) -> None:
    statement = (LEVEL, {"given": "x"})
    levels = [
        store.run(lambda connection: connection.execute(*statement).scalar_one()),
        store.read(lambda connection: connection.execute(*statement).scalar_one()),
    ]
    for _ in range(OPEN_DIRECT_AFTER + 1):  # first through threads, then without
        levels += [rows[0][0] for rows in await store.call_together(statement)]
        levels += [rows[0][0] for rows in await store.call_together(statement, statement)]

    assert set(levels) == {"read committed"}


def test_a_listening_session_is_read_committed(strict_url: str) -> None:
    with open_connection(strict_url) as connection:
        assert connection.execute("SHOW transaction_isolation").fetchall() == [("read committed",)]


async def test_a_dispatcher_that_waited_for_the_gate_counts_a_run_admitted_meanwhile(
    address: str, strict_url: str
) -> None:
    """The snapshot of a stricter level would be older than the wait."""
    app = Trax(address, max_active_jobs=1, polling_interval=HOUR, local_polling_interval=HOUR)
    ran: list[str] = []

    @app.train
    async def note(word: str) -> None:
        ran.append(word)

    engine = create_engine(strict_url.replace("postgresql:", "postgresql+psycopg:"))
    async with asyncio.timeout(60), app:
        for word in ("first", "second"):  # so that the next visits are quick ones, where there are such
            await (await app.queue(note, word)).wait()
        dispatcher = next(loop for loop in app.loops if loop.name == "job_dispatcher")
        with engine.connect() as other, psycopg.connect(strict_url, autocommit=True) as admin:
            for statement, parameters in gate_lock("postgresql"):
                other.execute(statement, parameters)
            new = NewRun(external_id="other", train="note", exempt=False)
            metadata.begin(other, new, now=other.execute(text("SELECT now()")).scalar_one())
            entry = await app.queue(note, "third")
            await asyncio.to_thread(until, lambda: admin.execute(WAITING).fetchone() != (0,))
            turns = dispatcher.turns
            other.commit()
            dispatcher.wake()
            await asyncio.to_thread(until, lambda: dispatcher.turns > turns)
        third = await app.work_queue.get(entry.id)
    engine.dispose()

    assert (third.status, ran) == ("queued", ["first", "second"])
