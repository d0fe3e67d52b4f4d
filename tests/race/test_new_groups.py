"""A group that an open transaction uses first: no other transaction waits for it."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from trax import Trax
from trax.store.url import parse_url
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import Generator

    from sqlalchemy import Engine


@pytest.fixture
def engine(postgres_url: str) -> Generator[Engine]:
    made = create_engine(parse_url(postgres_url))
    yield made
    made.dispose()


def app_on(url: str) -> Trax:
    app = Trax(url)

    @app.train
    async def greet(name: str) -> str:
        return name

    return app


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("unique", [None, "key"])
async def test_others_use_and_seed_it_at_once(
    postgres_url: str, engine: Engine, isolation: str, unique: str | None
) -> None:
    app, other = app_on(postgres_url), app_on(postgres_url)
    with closing(app), engine.connect().execution_options(isolation_level=isolation) as mine:
        await app.queue("greet", "Ada", group="new", unique=unique, connection=mine)

        async with asyncio.timeout(10):
            entry = await other.queue("greet", "Grace", group="new")
            other.group("new", max_active_jobs=1)
            async with Harness(other) as h:
                await h.run_until_idle()
                ran = await other.executions.list()
                mine.commit()
                await h.run_until_idle()
                both = await other.work_queue.list()

    assert [run.input for run in ran] == ["Grace"]
    assert entry.group == "new"
    assert {(one.input, one.group) for one in both} == {("Ada", "new"), ("Grace", "new")}


async def test_an_async_caller_does_not_block_others_either(postgres_url: str) -> None:
    engine = create_async_engine(parse_url(postgres_url))
    app, other = app_on(postgres_url), app_on(postgres_url)
    with closing(app), closing(other):
        async with engine.connect() as mine:
            await app.queue("greet", "Ada", group="new", connection=mine)

            async with asyncio.timeout(10):
                await other.queue("greet", "Grace", group="new")
            await mine.rollback()
        entries = await other.work_queue.list()
    await engine.dispose()

    assert [entry.input for entry in entries] == ["Grace"]


async def test_a_server_that_starts_neither_waits_for_it_nor_loses_its_group(
    postgres_url: str, engine: Engine
) -> None:
    app = app_on(postgres_url)
    async with asyncio.timeout(30), Harness(app) as h:
        with engine.connect() as mine:
            await app.queue("greet", "Ada", group="new", connection=mine)
            await h.seed()
            mine.commit()
        await h.run_until_idle()
        (entry,) = await app.work_queue.list()
        assert entry.group == "new"
        await h.seed()
        assert (await app.groups.get("new")).retired_at is None
