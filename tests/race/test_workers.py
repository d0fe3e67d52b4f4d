"""A worker that beats in the moment in which it is taken for dead. Real connections, real locks."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from threading import Event
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text
from tests.conftest import NOON
from tests.store.test_claim import WORKER
from tests.support.waiting import until

from trax import Trax, junction
from trax.engine.job_dispatcher import run_dispatch_cycle
from trax.engine.rescue import recover
from trax.engine.routing import Routing
from trax.records import State
from trax.settings import Settings
from trax.store import Store, workers
from trax.store.runs import claim, metadata
from trax.store.runs.claim import ClaimRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from concurrent.futures import ThreadPoolExecutor

    from trax.store import Connection

TIMEOUT_SECONDS = 30
WAITING = text("SELECT count(*) FROM pg_locks WHERE NOT granted")


@pytest.fixture
def store(postgres_url: str) -> Generator[Store]:
    opened = Store(postgres_url, clock=lambda: NOON)
    opened.open()
    yield opened
    opened.close()


def rescue(connection: Connection) -> None:
    recover(connection, Settings(), now=NOON)


def beat(worker_id: int) -> Callable[[Connection], bool]:
    return lambda connection: workers.record_heartbeat(connection, worker_id, concurrency=4, now=NOON)


def queue_and_claim(store: Store, url: str, worker_id: int) -> int:
    with closing(Trax(url)) as app:
        app.train("greet", junction(greet))
        app.sync.queue("greet", "Ada")
    store.run(run_dispatch_cycle, store, Settings(), Routing())
    request = ClaimRequest(worker_id, "box", 1, frozenset({"greet"}))
    (claimed,) = store.run(claim.claim, request, now=NOON)
    return claimed.metadata_id


def greet(name: str) -> str:
    return name


def someone_waits(store: Store) -> None:
    until(lambda: store.read(lambda connection: connection.execute(WAITING).scalar_one()) > 0)


def test_a_worker_whose_row_is_about_to_go_learns_that_it_is_dead(
    store: Store, threads: ThreadPoolExecutor
) -> None:
    silent = store.run(workers.register, WORKER, now=NOON - timedelta(minutes=1))
    done, go = Event(), Event()

    def rescue_slowly(connection: Connection) -> None:
        rescue(connection)
        done.set()
        assert go.wait(TIMEOUT_SECONDS)

    rescuing = threads.submit(store.run, rescue_slowly)
    assert done.wait(TIMEOUT_SECONDS)
    beating = threads.submit(store.run, beat(silent))
    someone_waits(store)
    go.set()
    rescuing.result(TIMEOUT_SECONDS)

    assert beating.result(TIMEOUT_SECONDS) is False


def test_a_worker_whose_beat_comes_first_keeps_its_row_and_its_run(
    store: Store, postgres_url: str, threads: ThreadPoolExecutor
) -> None:
    silent = store.run(workers.register, WORKER, now=NOON - timedelta(minutes=1))
    run = queue_and_claim(store, postgres_url, silent)
    done, go = Event(), Event()

    def beat_slowly(connection: Connection) -> bool:
        lives = beat(silent)(connection)
        done.set()
        assert go.wait(TIMEOUT_SECONDS)
        return lives

    beating = threads.submit(store.run, beat_slowly)
    assert done.wait(TIMEOUT_SECONDS)
    rescuing = threads.submit(store.run, rescue)
    someone_waits(store)
    go.set()
    rescuing.result(TIMEOUT_SECONDS)

    assert beating.result(TIMEOUT_SECONDS) is True
    assert [worker.id for worker in store.read(workers.load_list)] == [silent]
    record = store.read(metadata.get, run)
    assert record
    assert record.state is State.IN_PROGRESS
