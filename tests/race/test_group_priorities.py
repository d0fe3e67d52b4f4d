"""A group's new priority beside transactions that are open while it changes. Real connections, real locks."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, select
from tests.support.waiting import until

from trax import Trax
from trax.server import loops
from trax.store import groups
from trax.store.schema import tables
from trax.store.url import parse_url
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from sqlalchemy import Connection, Engine

    from trax.store import Store


class Railway(Harness):
    """An app with one group, whose entries are looked at."""

    @property
    def store(self) -> Store:
        return self.app.context.store.open_blocking()

    @property
    def priorities(self) -> dict[str, int]:
        """What stands on each entry, by its input."""

        def asked(connection: Connection) -> dict[str, int]:
            queue = tables(connection).work_queue
            query = select(queue.c.input, queue.c.group_priority).order_by(queue.c.id)
            return {row.input.strip('"'): row.group_priority for row in connection.execute(query)}

        return self.store.read(asked)

    @property
    def is_to_be_applied(self) -> bool:
        def asked(connection: Connection) -> bool:
            group = tables(connection).manifest_group
            return connection.execute(select(group.c.apply_priority_at)).scalar_one() is not None

        return self.store.read(asked)

    def apply(self) -> int:
        return self.store.run(groups.apply_priorities, now=self.now)

    def apply_to_the_end(self) -> None:
        """Other databases of the same server have transactions, too: wait for those that are open."""

        def is_over() -> bool:
            self.now += timedelta(minutes=1)
            self.apply()
            return not self.is_to_be_applied

        until(is_over)


@pytest.fixture
async def railway(postgres_url: str) -> AsyncGenerator[Railway]:
    app = Trax(postgres_url)

    @app.train(group="mail")
    async def greet(name: str) -> str:
        return name

    async with Railway(app) as opened:
        await app.queue("greet", "first")
        yield opened


@pytest.fixture
def callers(postgres_url: str) -> Generator[Engine]:
    engine = create_engine(parse_url(postgres_url))
    yield engine
    engine.dispose()


async def test_an_entry_of_an_open_transaction_gets_the_new_priority(
    railway: Railway, callers: Engine
) -> None:
    app = railway.app
    with callers.connect() as lent:
        app.sync.queue("greet", "lent", connection=lent)
        await app.groups.update("mail", priority=20)  # does not wait for the caller
        assert (await railway.cycle("manifest_manager")).stale_priorities
        railway.apply()
        lent.commit()
    assert railway.priorities == {"first": 20, "lent": 0}, "written with the old one, and committed since"

    await railway.advance(seconds=1)
    assert (await railway.cycle("manifest_manager")).stale_priorities
    assert railway.apply() == 1

    assert railway.priorities == {"first": 20, "lent": 20}


async def test_a_priority_is_applied_until_all_who_could_have_read_the_old_one_are_over(
    railway: Railway, callers: Engine
) -> None:
    app = railway.app
    with callers.connect() as lent:
        app.sync.queue("greet", "lent", connection=lent)
        await app.groups.update("mail", priority=20)
        for _ in range(10):
            railway.apply()
            await railway.advance(minutes=1)
        assert railway.is_to_be_applied, "the caller is not done"
        lent.commit()

    railway.apply_to_the_end()
    assert railway.priorities == {"first": 20, "lent": 20}
    assert not (await railway.cycle("manifest_manager")).stale_priorities


async def test_a_transaction_started_after_the_change_does_not_prolong_it(
    railway: Railway, callers: Engine
) -> None:
    await railway.app.groups.update("mail", priority=20)
    await railway.advance(minutes=1)
    railway.apply()
    with callers.connect() as lent:
        railway.app.sync.queue("greet", "lent", connection=lent)
        railway.apply_to_the_end()
        lent.commit()
    assert railway.priorities["lent"] == 20


async def test_the_managers_loop_applies_it(railway: Railway, callers: Engine) -> None:
    loop = loops.manager(railway.app.context, railway.store)
    with callers.connect() as lent:
        railway.app.sync.queue("greet", "lent", connection=lent)
        await railway.app.groups.update("mail", priority=20)
        lent.commit()

    await loop._turn()  # pyright: ignore[reportPrivateUsage]

    assert railway.priorities == {"first": 20, "lent": 20}


async def test_a_second_change_restarts_the_update(railway: Railway, callers: Engine) -> None:
    app = railway.app
    await app.groups.update("mail", priority=20)
    await railway.advance(minutes=1)
    railway.apply()
    with callers.connect() as lent:
        app.sync.queue("greet", "lent", connection=lent)
        await app.groups.update("mail", priority=5)
        lent.commit()
    await railway.advance(minutes=1)

    railway.apply()

    assert railway.priorities == {"first": 5, "lent": 5}
    assert railway.is_to_be_applied
