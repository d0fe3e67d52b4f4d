"""Callers who wait for a lock block no loop of a server, and give up in time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, text
from tests.support.waiting import until

from trax import Trax
from trax.errors import StoreUnavailable
from trax.store import workers
from trax.store.queue import work_queue
from trax.store.url import parse_url

if TYPE_CHECKING:
    from collections.abc import Generator
    from datetime import datetime

    from sqlalchemy import Engine

    from trax.store import Connection

CALLERS = 10
"""As many as a store has threads for them."""
WAITING = text(
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)
LIMIT = text("SHOW lock_timeout")


@pytest.fixture
def engine(postgres_url: str) -> Generator[Engine]:
    made = create_engine(parse_url(postgres_url))
    yield made
    made.dispose()


def app_on(url: str) -> Trax:
    app = Trax(url, heartbeat_interval=0.1, local_polling_interval=0.1, polling_interval=0.1)

    @app.train
    async def greet(name: str) -> str:
        return f"Hello, {name}!"

    return app


def last_beat(connection: Connection) -> datetime:
    (worker,) = workers.load_list(connection)
    return worker.heartbeat_at


@pytest.mark.parametrize("commits", [True, False])
async def test_a_job_still_runs_and_the_worker_beats_while_ten_callers_wait_for_one_key(
    postgres_url: str, engine: Engine, commits: bool
) -> None:
    async with asyncio.timeout(60), app_on(postgres_url) as app:
        other = app_on(postgres_url)
        outside = engine.execution_options(isolation_level="AUTOCOMMIT")
        with engine.connect() as mine, outside.connect() as watching:
            other.sync.queue("greet", "Ada", unique="ada", connection=mine)
            callers = [
                asyncio.create_task(app.queue("greet", f"{number}", unique="ada"))
                for number in range(CALLERS)
            ]
            await asyncio.to_thread(until, lambda: watching.execute(WAITING).scalar_one() == CALLERS)

            store = other.context.store.open_blocking()
            beaten_at = store.read(last_beat)
            entry = await other.queue("greet", "Grace")
            ended = await entry.wait()
            await asyncio.to_thread(until, lambda: store.read(last_beat) > beaten_at)

            waiting = [caller.done() for caller in callers]
            if commits:
                mine.commit()
            else:
                mine.rollback()
            found = await asyncio.gather(*callers)
        other.close()

    assert ended.output == "Hello, Grace!"
    assert waiting == [False] * CALLERS
    assert {one.train for one in found} == {"greet"}, "each of them has its answer"


async def test_callers_give_up_a_key_that_is_locked_for_too_long_and_name_it(
    postgres_url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_queue, "WAIT_SECONDS", 0.2)
    app = app_on(postgres_url)
    with engine.connect() as mine, engine.connect() as theirs:
        first = app.sync.queue("greet", "Ada", unique="ada", connection=mine)

        async with asyncio.timeout(30):
            with pytest.raises(StoreUnavailable, match=r"unique key 'ada' of train 'greet'.* 0\.2 s"):
                await app.queue("greet", "Grace", unique="ada")
            with pytest.raises(StoreUnavailable, match="unique key 'ada'"):
                await app.queue("greet", "Grace", unique="ada", connection=theirs)
            theirs.rollback()
            theirs.execute(text("SET LOCAL lock_timeout = '50ms'"))
            with pytest.raises(StoreUnavailable, match="within 50ms"):
                await app.queue("greet", "Grace", unique="ada", connection=theirs)

        mine.commit()
        assert (await app.queue("greet", "Grace", unique="ada")).id == first.id
    app.close()


async def test_a_caller_finds_the_limit_of_its_own_transaction_as_it_was(
    postgres_url: str, engine: Engine
) -> None:
    app = app_on(postgres_url)
    with engine.connect() as mine:
        await app.queue("greet", "Ada", unique="ada", connection=mine)
        assert mine.execute(LIMIT).scalar_one() == "0"
        mine.execute(text("SET LOCAL lock_timeout = '7s'"))
        await app.queue("greet", "Ada", unique="other", connection=mine)
        assert mine.execute(LIMIT).scalar_one() == "7s"
    app.close()
