"""A caller's transaction that is prepared: PostgreSQL refuses that after a NOTIFY."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session
from tests.support.databases import PostgresDatabases
from tests.support.waiting import until

from trax import Trax
from trax.errors import DefinitionError
from trax.events import Topic
from trax.testing import postgres

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from sqlalchemy import Engine


@pytest.fixture(scope="module")
def server(newest_binaries: Path) -> Generator[PostgresDatabases]:
    with postgres(binaries=newest_binaries, settings={"max_prepared_transactions": "5"}) as address:
        yield PostgresDatabases(address)


@pytest.fixture
def url(server: PostgresDatabases) -> Generator[str]:
    with server.database() as address:
        yield address


@pytest.fixture
def engine(url: str) -> Generator[Engine]:
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    yield engine
    engine.dispose()


@pytest.fixture
def app(url: str) -> Generator[Trax]:
    made = Trax(url, polling_interval=0.1, local_polling_interval=0.1)

    @made.train
    async def greet(name: str) -> str:
        return name

    made.context.store.open_blocking()
    yield made
    made.close()


@pytest.mark.parametrize("options", [{}, {"unique": "ada"}, {"group": "new"}], ids=str)
async def test_a_transaction_that_queued_without_notifying_can_be_prepared(
    app: Trax, engine: Engine, url: str, options: dict[str, Any]
) -> None:
    with engine.connect() as connection:
        entry = await app.queue("greet", "Ada", connection=connection, notify=False, **options)
        connection.execute(text("PREPARE TRANSACTION 'one'"))
    before = await app.work_queue.list()

    async with asyncio.timeout(60), app:
        with psycopg.connect(url, autocommit=True) as other:
            other.execute("COMMIT PREPARED 'one'")
        ended = await entry.wait()  # found by polling

    assert before == []
    assert ended.output == "Ada"


async def test_a_two_phase_transaction_needs_no_option(app: Trax, engine: Engine) -> None:
    with engine.connect() as connection:
        transaction = connection.begin_twophase()
        entry = await app.queue("greet", "Ada", connection=connection)
        transaction.prepare()
        before = await app.work_queue.list()
        woken: list[str] = []
        app.context.events.listen(Topic.WORK_QUEUE, lambda: woken.append("woken"))
        transaction.commit()
        await asyncio.to_thread(until, lambda: bool(woken))

    assert before == []
    assert [found.id for found in await app.work_queue.list()] == [entry.id]


def test_a_session_of_two_phases_needs_no_option(app: Trax, engine: Engine) -> None:
    with Session(engine, twophase=True) as session:
        app.sync.queue("greet", "Ada", connection=session)
        session.prepare()
        session.commit()
    with Session(engine, twophase=True) as session:
        app.sync.queue("greet", "Bob", connection=session)
        session.prepare()
        session.rollback()

    found = asyncio.run(app.work_queue.list())
    assert [entry.input for entry in found] == ["Ada"]


async def test_a_call_that_may_notify_is_refused_by_prepare(app: Trax, engine: Engine) -> None:
    with engine.connect() as connection:
        await app.queue("greet", "Ada", connection=connection)
        with pytest.raises(Exception, match="NOTIFY"):
            connection.execute(text("PREPARE TRANSACTION 'two'"))


async def test_an_app_without_notifications_sends_none_in_a_callers_transaction(
    url: str, engine: Engine
) -> None:
    app = Trax(url, notifications=False)
    app.train(_greet)
    with engine.connect() as connection:
        await app.queue("_greet", "Ada", connection=connection)
        connection.execute(text("PREPARE TRANSACTION 'three'"))
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("ROLLBACK PREPARED 'three'")
    app.close()


async def test_notify_without_a_connection_is_refused(app: Trax) -> None:
    with pytest.raises(DefinitionError, match="notify needs a connection"):
        await app.queue("greet", "Ada", notify=False)


async def _greet(_name: str) -> None: ...
