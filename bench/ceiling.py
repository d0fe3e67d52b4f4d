"""The speed limit of the database server: the statements of admission and finish, without Python in between.

They are recorded from the real functions, one batch after the other on one connection, and then sent again
unchanged to a database in the same state, each transaction in one round trip.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import psycopg

from bench.filling import GLOBAL_LIMIT, fill, succeeded
from trax.engine.finish import finish
from trax.engine.job_dispatcher import run_dispatch_cycle
from trax.engine.routing import Routing
from trax.records.result import ResultKind, RunResult
from trax.records.states import State
from trax.settings import Settings
from trax.store import Store
from trax.store.runs.claim import ClaimRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from trax.store import Connection
    from trax.store.runs.claim import Claimed

WORKER = 1
SETTINGS = Settings.load({"max_active_jobs": GLOBAL_LIMIT}, {})


class Statement(NamedTuple):
    query: Any
    parameters: Any
    options: dict[str, Any]


Transaction = list[Statement]


@contextmanager
def open_store(url: str, jobs: int) -> Generator[Store]:
    """A store with a full queue, and limits under which everything is counted and nothing is refused."""
    store = Store(url)
    store.open()
    store.run(fill, store, jobs)
    try:
        yield store
    finally:
        store.close()


def record(store: Store, slots: int) -> list[Transaction]:
    """Run all jobs of a store, and return the statements that were sent to the server."""
    transactions: list[Transaction] = []
    while True:
        jobs: list[Claimed] = store.run(_record, transactions, _admit, store, slots)
        if not jobs:
            return transactions[:-1]
        store.run(_record, transactions, _finish, store, jobs)


def replay(store: Store, url: str, transactions: list[Transaction], jobs: int) -> float:
    """Send the statements again; returns the seconds this took."""
    with psycopg.connect(url, prepare_threshold=None) as connection:
        started = time.perf_counter()
        for transaction in transactions:
            with connection.pipeline():
                for one in transaction:
                    connection.cursor().execute(one.query, one.parameters, **one.options)
                connection.commit()
        took = time.perf_counter() - started
    assert store.read(succeeded) == jobs, "the recorded statements did not end every job"
    return took


class _Recording(psycopg.Cursor[Any]):
    said: ClassVar[Transaction] = []

    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        self.said.append(Statement(query, params, options))
        return super().execute(query, params, **options)


def _record(
    connection: Connection, transactions: list[Transaction], work: Callable[..., Any], *arguments: Any
) -> Any:
    driver: Any = connection.connection.driver_connection
    usual, driver.cursor_factory = driver.cursor_factory, _Recording
    _Recording.said.clear()
    try:
        return work(connection, *arguments)
    finally:
        driver.cursor_factory = usual
        transactions.append(_Recording.said.copy())


def _admit(connection: Connection, store: Store, slots: int) -> list[Claimed]:
    """Admit as many entries as the worker in the same process has slots for, and claim them for it."""
    taker = ClaimRequest(WORKER, "bench", slots, frozenset({"noop"}))
    return run_dispatch_cycle(connection, store, SETTINGS, Routing(), claim_request=taker).claimed


def _finish(connection: Connection, store: Store, jobs: list[Claimed]) -> None:
    ended = [
        RunResult(
            job.metadata_id, job.external_id, WORKER, State.COMPLETED, ResultKind.SUCCESS, output="null"
        )
        for job in jobs
    ]
    finish(connection, ended, SETTINGS, store=store)
