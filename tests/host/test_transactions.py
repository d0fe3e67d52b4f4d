"""Queueing inside a transaction of the caller's: the entry exists exactly if the caller commits."""

from __future__ import annotations

from contextlib import asynccontextmanager, closing
from threading import Event
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from tests.support import listing

from trax import Trax
from trax.errors import DefinitionError, SchemaNotMigrated, StoreError
from trax.events import Topic
from trax.store.queue import work_queue
from trax.store.url import parse_url

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator
    from pathlib import Path

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncConnection

TIMEOUT_SECONDS = 30
BULK = 2 * work_queue.COPY_ABOVE + 1
DRIVERS = ["aiosqlite", "asyncpg", "psycopg"]


@pytest.fixture(params=["sqlite", "postgresql"])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database that more than one connection reaches."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/trax.db"
    return request.getfixturevalue("postgres_url")


@pytest.fixture
def app(shared_url: str) -> Generator[Trax]:
    with closing(app_on(shared_url)) as made:
        yield made


@pytest.fixture
def engine(shared_url: str) -> Generator[Engine]:
    made = create_engine(parse_url(shared_url))
    yield made
    made.dispose()


def app_on(url: str) -> Trax:
    made = Trax(url)

    @made.train
    async def greet(name: str) -> str:
        return name

    made.context.store.open_blocking()
    return made


async def queued(app: Trax) -> list[Any]:
    return [entry.input for entry in reversed(await app.work_queue.list(limit=1000))]


async def test_an_entry_appears_with_the_commit_of_a_connection(app: Trax, engine: Engine) -> None:
    with engine.connect() as connection:
        entry = await app.queue("greet", "Ada", group="mail", connection=connection)
        before = await queued(app)
        connection.commit()

    assert before == []
    assert await app.work_queue.get(entry.id) == entry


async def test_an_entry_goes_with_the_rollback_of_a_connection(app: Trax, engine: Engine) -> None:
    with engine.connect() as connection:
        await app.queue("greet", "Ada", unique="ada", connection=connection)
        connection.rollback()

    assert await queued(app) == []


async def test_an_entry_belongs_to_the_transaction_of_a_session(app: Trax, engine: Engine) -> None:
    with Session(engine) as session:
        session.execute(text("CREATE TABLE orders (id int)"))
        session.commit()
        for order, commits in ((1, True), (2, False)):
            session.execute(text("INSERT INTO orders VALUES (:id)"), {"id": order})
            await app.queue("greet", f"order {order}", connection=session)
            session.commit() if commits else session.rollback()

        orders = session.execute(text("SELECT id FROM orders")).scalars().all()

    assert orders == [1]
    assert await queued(app) == ["order 1"]


def test_blocking_code_lends_its_session(app: Trax, engine: Engine) -> None:
    sessions = scoped_session(sessionmaker(engine))

    with sessions.begin():
        entry = app.sync.queue("greet", "Ada", connection=sessions())
        many = app.sync.queue_many("greet", ["Grace", "Mary"], connection=sessions)
    sessions.remove()

    stored = app.context.store.open_blocking().read(listing.entries)
    assert [one.id for one in reversed(stored)] == [entry.id, *(one.id for one in many)]


async def test_an_entry_of_a_rolled_back_savepoint_is_gone(app: Trax, engine: Engine) -> None:
    with Session(engine) as session:
        await app.queue("greet", "kept", connection=session)
        inner = session.begin_nested()
        await app.queue("greet", "taken back", unique="key", connection=session)
        inner.rollback()
        with session.begin_nested():
            await app.queue("greet", "kept too", unique="key", connection=session)
        session.commit()

    assert await queued(app) == ["kept", "kept too"]


async def test_many_entries_fit_into_a_callers_transaction(app: Trax, engine: Engine) -> None:
    with engine.begin() as connection:
        entries = await app.queue_many("greet", map(str, range(BULK)), connection=connection)

    assert [one.input for one in entries] == [str(number) for number in range(BULK)]
    assert await app.work_queue.get(entries[-1].id) == entries[-1]


@pytest.mark.parametrize("kind", ["connection", "session"])
async def test_the_dispatcher_is_woken_after_the_commit_and_not_before(
    app: Trax, engine: Engine, kind: str
) -> None:
    woken = Event()
    seen: list[list[Any]] = []
    store = app.context.store.open_blocking()

    def look() -> None:
        seen.append([entry.input for entry in store.read(listing.entries)])
        woken.set()

    app.context.events.listen(Topic.WORK_QUEUE, look)
    with engine.connect() if kind == "connection" else Session(engine) as lent:
        await app.queue("greet", "Ada", connection=lent)
        await app.queue("greet", "Grace", connection=lent)
        before = list(seen)
        lent.commit()
        assert woken.wait(TIMEOUT_SECONDS)

        await app.queue("greet", "Mary", connection=lent)
        lent.rollback()

    assert before == []
    assert seen[0] == ["Grace", "Ada"]


async def test_a_listening_server_is_notified_of_the_commit(postgres_url: str) -> None:
    engine = create_engine(parse_url(postgres_url))
    with (
        closing(app_on(postgres_url)) as app,
        psycopg.connect(postgres_url, autocommit=True) as ear,
        engine.connect() as connection,
    ):
        ear.execute("LISTEN trax")
        await app.queue("greet", "Ada", connection=connection)
        before = list(ear.notifies(timeout=0))
        connection.commit()

        heard = next(ear.notifies(timeout=TIMEOUT_SECONDS, stop_after=1))

    engine.dispose()
    assert before == []
    assert heard.payload.startswith("work_queue")


@asynccontextmanager
async def async_connection(
    request: pytest.FixtureRequest, driver: str, folder: Path
) -> AsyncGenerator[tuple[Trax, AsyncConnection]]:
    url = f"sqlite:///{folder}/trax.db" if driver == "aiosqlite" else request.getfixturevalue("postgres_url")
    address = parse_url(url).set(drivername=f"{parse_url(url).get_backend_name()}+{driver}")
    engine = create_async_engine(address)
    try:
        with closing(app_on(url)) as app:
            async with engine.connect() as connection:
                yield app, connection
    finally:
        await engine.dispose()


@pytest.mark.parametrize("driver", DRIVERS)
async def test_an_async_connection_of_any_driver_will_do(
    request: pytest.FixtureRequest, tmp_path: Path, driver: str
) -> None:
    async with async_connection(request, driver, tmp_path) as (app, connection):
        woken = Event()
        app.context.events.listen(Topic.WORK_QUEUE, woken.set)

        entry = await app.queue("greet", "Ada", group="mail", unique="ada", connection=connection)
        again = await app.queue("greet", "Grace", unique="ada", connection=connection)
        many = await app.queue_many("greet", map(str, range(BULK)), connection=connection)
        before = woken.is_set(), await queued(app)
        await connection.commit()

        assert before == (False, [])
        assert again == entry == await app.work_queue.get(entry.id)
        assert await app.work_queue.get(many[-1].id) == many[-1]
        assert woken.wait(TIMEOUT_SECONDS)

        await app.queue("greet", "gone", connection=connection)
        await connection.rollback()
        assert "gone" not in await queued(app)


@pytest.mark.parametrize("driver", DRIVERS)
async def test_an_async_session_of_any_driver_will_do(
    request: pytest.FixtureRequest, tmp_path: Path, driver: str
) -> None:
    async with async_connection(request, driver, tmp_path) as (app, connection):
        sessions = async_scoped_session(async_sessionmaker(connection.engine), scopefunc=lambda: 1)
        async with AsyncSession(connection.engine) as session:
            entry = await app.queue("greet", "Ada", connection=session)
            await session.commit()
            await app.queue("greet", "gone", connection=session)
        scoped = await app.queue("greet", "scoped", connection=sessions)
        await sessions.commit()
        await sessions.remove()

        assert [one.id for one in await app.work_queue.list()] == [scoped.id, entry.id]


async def test_blocking_code_cannot_use_an_async_connection(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with async_connection(request, "aiosqlite", tmp_path) as (app, connection):
        with pytest.raises(DefinitionError, match=r"cannot use AsyncConnection; use `await"):
            app.sync.queue("greet", "Ada", connection=connection)


async def test_a_connection_to_a_database_without_tables_is_refused(app: Trax, tmp_path: Path) -> None:
    is_postgresql = app.context.store.open_blocking().address.startswith("postgresql")
    said = "is to sqlite, but the app's database is" if is_postgresql else "where the Trax tables are missing"
    other = create_engine(f"sqlite:///{tmp_path}/other.db")

    with other.connect() as connection, pytest.raises(StoreError, match=said):
        await app.queue("greet", "Ada", connection=connection)
    other.dispose()

    assert await queued(app) == []


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_a_postgresql_database_without_tables_is_named(
    request: pytest.FixtureRequest, tmp_path: Path, driver: str
) -> None:
    async with async_connection(request, driver, tmp_path) as (app, connection):
        await connection.execute(text("ALTER SCHEMA trax RENAME TO elsewhere"))

        with pytest.raises(SchemaNotMigrated, match=r"the connection is to .*, where the Trax tables"):
            await app.queue("greet", "Ada", connection=connection)


async def test_an_app_in_memory_has_no_database_to_share(tmp_path: Path) -> None:
    other = create_engine(f"sqlite:///{tmp_path}/other.db")

    with (
        closing(app_on("memory://")) as app,
        other.connect() as connection,
        pytest.raises(StoreError, match="is in memory"),
    ):
        await app.queue("greet", "Ada", connection=connection)
    other.dispose()


async def test_a_closed_connection_is_refused(app: Trax, engine: Engine) -> None:
    connection = engine.connect()
    connection.close()

    with pytest.raises(StoreError, match="connection cannot be used: This Connection is closed"):
        await app.queue("greet", "Ada", connection=connection)
    with pytest.raises(StoreError, match="connection cannot be used: This Connection is closed"):
        app.sync.queue("greet", "Ada", connection=connection)


async def test_a_session_whose_transaction_has_failed_is_refused(app: Trax, engine: Engine) -> None:
    with Session(engine) as session:
        session.begin()
        with session.begin_nested() as savepoint:
            savepoint.rollback()
        session.connection().invalidate()

        with pytest.raises(StoreError, match="connection cannot be used: "):
            await app.queue("greet", "Ada", connection=session)


def test_lending_a_connection_does_not_wait_for_the_app_to_open(app: Trax, engine: Engine) -> None:
    app.close()

    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id int)"))  # in SQLite nobody else can write now
        entry = app.sync.queue("greet", "Ada", connection=connection)

    assert app.context.store.open_blocking().read(work_queue.get, entry.id) == entry
