"""A process that is stopped inside a transaction must not hold up the others for ever."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from threading import Event
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy import text
from tests.support.waiting import until

from trax import Trax
from trax.errors import StoreUnavailable
from trax.server import loops
from trax.store import Store
from trax.store.runs.rescue import end_suspended
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import Generator

    from trax.store import Connection


@pytest.fixture
def suspended(postgres_url: str) -> Generator[int]:
    """A session like ours that holds the gate and says nothing more."""
    connection = psycopg.connect(postgres_url, application_name="trax")
    connection.execute("SELECT trax.take_gate_lock()")
    yield connection.info.backend_pid
    connection.close()


def is_there(connection: Connection, pid: int) -> bool:
    query = text("SELECT count(*) FROM pg_stat_activity WHERE pid = :pid")
    return bool(connection.execute(query, {"pid": pid}).scalar_one())


async def test_the_gate_of_a_suspended_process_is_opened_for_the_others(
    postgres_url: str, suspended: int
) -> None:
    app = Trax(postgres_url, heartbeat_interval=0.1, worker_lost_after=0.2)

    @app.train
    async def work(number: int) -> None: ...

    async with Harness(app) as h:
        await app.queue(work, 1)
        store = await app.context.store.open()
        rescue = loops.session_reaper(app.context, store)

        async with asyncio.timeout(30):
            while store.read(is_there, suspended):
                await rescue._turn()  # pyright: ignore[reportPrivateUsage]

        assert (await h.cycle("job_dispatcher")).has_changes


async def test_a_session_that_has_only_just_paused_or_is_not_ours_is_left_alone(
    postgres_url: str, suspended: int
) -> None:
    store = Store(postgres_url)
    with psycopg.connect(postgres_url, application_name="shop") as another:
        another.execute("SELECT 1")

        assert store.run(end_suspended, idle_for=timedelta(hours=1)) == 0
        assert store.run(end_suspended, idle_for=timedelta(0)) == 1
        assert store.read(is_there, another.info.backend_pid)
        until(lambda: not store.read(is_there, suspended))
    store.close()


async def test_a_session_with_our_name_that_holds_nothing_of_ours_is_left_alone(postgres_url: str) -> None:
    """A pooler hands on a connection with the name that its last user gave it."""
    store = Store(postgres_url)
    store.open()
    with closing(psycopg.connect(postgres_url, application_name="trax")) as another:
        another.execute("CREATE TABLE shop (id int)")
        another.execute("SELECT pg_advisory_xact_lock(1)")

        assert store.run(end_suspended, idle_for=timedelta(0)) == 0

        another.execute("SELECT id FROM trax.manifest")
        assert store.run(end_suspended, idle_for=timedelta(0)) == 1
    store.close()


@pytest.mark.parametrize("name", ["shop", "trax"])
def test_our_sessions_are_recognized_under_any_application_name(postgres_url: str, name: str) -> None:
    address = f"{postgres_url}?application_name={name}"
    ours, reaper = Store(address), Store(postgres_url)
    held, go_on = Event(), Event()

    def stand_still(connection: Connection) -> None:
        connection.execute(text("SELECT count(*) FROM trax.setting"))
        held.set()
        assert go_on.wait(30)
        connection.execute(text("SELECT 1"))

    with ThreadPoolExecutor(1) as threads, psycopg.connect(address, application_name="shop") as theirs:
        theirs.execute("SELECT 1")
        standing = threads.submit(ours.run, stand_still)
        assert held.wait(30)

        assert reaper.run(end_suspended, idle_for=timedelta(0)) == 1
        go_on.set()
        with pytest.raises(StoreUnavailable):
            standing.result(30)
        assert theirs.execute("SELECT 1").fetchall() == [(1,)]
    ours.close()
    reaper.close()
