"""Concurrent calls with one unique key. Real connections, real locks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, text
from tests.support.verified import assert_clean
from tests.support.waiting import until

from trax import Trax
from trax.store.queue import requeue, work_queue
from trax.store.url import parse_url
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from sqlalchemy import Engine

CALLERS = 8
TIMEOUT_SECONDS = 30
WAITING = text("SELECT count(*) FROM pg_locks WHERE NOT granted")


def app_on(url: str) -> Trax:
    """Each is like a process of its own: another app, with other connections."""
    app = Trax(url)

    @app.train
    def greet(name: str) -> str:
        return name

    app.context.store.open_blocking()
    return app


@pytest.fixture(params=["sqlite", "postgresql"])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    if request.param == "sqlite":
        yield (url := f"sqlite:///{tmp_path}/trax.db")
        assert_clean(url)
    else:
        yield request.getfixturevalue("postgres_url")


@pytest.fixture
def apps(shared_url: str) -> Generator[list[Trax]]:
    made = [app_on(shared_url) for _ in range(CALLERS)]
    yield made
    for app in made:
        app.close()


@pytest.fixture
def threads() -> Generator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(CALLERS) as pool:
        yield pool


@pytest.fixture
def engine(postgres_url: str) -> Generator[Engine]:
    made = create_engine(parse_url(postgres_url))
    yield made
    made.dispose()


def all_at_once(apps: list[Trax], threads: ThreadPoolExecutor, key: str) -> set[int]:
    gate = Barrier(len(apps))

    def ask(app: Trax) -> int:
        gate.wait(TIMEOUT_SECONDS)
        return app.sync.queue("greet", "Ada", unique=key).id

    return set(threads.map(ask, apps))


def test_concurrent_calls_with_one_key_share_one_entry(apps: list[Trax], threads: ThreadPoolExecutor) -> None:
    for key in ("a", "b", "c", "d", "e"):
        assert len(all_at_once(apps, threads, key)) == 1


async def test_concurrent_calls_reuse_the_key_of_an_ended_job_once(
    apps: list[Trax], threads: ThreadPoolExecutor
) -> None:
    for _ in range(5):
        (held,) = all_at_once(apps, threads, "ada")
        await apps[0].work_queue.cancel([held])

        (taken,) = all_at_once(apps, threads, "ada")

        assert taken != held
        await apps[0].work_queue.cancel([taken])


def test_a_key_that_another_caller_has_released_meanwhile_is_still_known(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rerun of the ended job asks for it."""
    with closing(app_on(postgres_url)) as app, closing(app_on(postgres_url)) as other:
        ended = app.sync.queue("greet", "Ada", unique="ada")
        store = app.context.store.open_blocking()
        store.run(requeue.withdraw, [ended.id])
        release, found = work_queue.release_key, list[int]()

        def release_after_the_other(*arguments: Any) -> None:
            monkeypatch.setattr(work_queue, "release_key", release)
            found.append(other.sync.queue("greet", "Ada", unique="ada").id)
            release(*arguments)

        monkeypatch.setattr(work_queue, "release_key", release_after_the_other)
        entry = app.sync.queue("greet", "Ada", unique="ada")

        query = text("SELECT unique_key, former_key FROM trax.work_queue ORDER BY id")
        keys = store.read(lambda connection: [tuple(row) for row in connection.execute(query)])

    assert [entry.id] == found
    assert keys == [(None, "ada"), ("ada", None)]


@pytest.mark.parametrize("commits", [True, False])
def test_the_second_waits_for_the_first_to_commit_or_not(
    postgres_url: str, engine: Engine, threads: ThreadPoolExecutor, commits: bool
) -> None:
    with (
        closing(app_on(postgres_url)) as app,
        closing(app_on(postgres_url)) as other,
        engine.connect() as mine,
        engine.connect() as watching,
    ):
        first = app.sync.queue("greet", "Ada", unique="ada", connection=mine)

        second = threads.submit(other.sync.queue, "greet", "Grace", unique="ada")
        until(lambda: watching.execute(WAITING).scalar_one() > 0)
        if commits:
            mine.commit()
        else:
            mine.rollback()

        found = second.result(TIMEOUT_SECONDS)

    assert (found.id == first.id, found.input) == ((True, "Ada") if commits else (False, "Grace"))


async def test_a_caller_who_found_an_entry_holds_up_neither_the_gate_nor_a_worker(
    postgres_url: str, engine: Engine
) -> None:
    app = app_on(postgres_url)
    async with Harness(app) as h:
        first = await app.queue("greet", "Ada", unique="ada")
        with engine.connect() as mine:
            found = await app.queue("greet", "Grace", unique="ada", connection=mine)

            await h.run_until_idle()  # would wait for ever if the caller's transaction had locked the entry

            mine.commit()
        ended = await first.wait()

    assert found.id == first.id
    assert ended.state == "completed"
