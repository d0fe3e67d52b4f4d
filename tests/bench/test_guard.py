"""A drain must not become much dearer than it was: compared within one run, by processor time.

Wall time would fail on a busy machine. Processor time does not, as long as both sides of a comparison are
measured in the same minute; the bounds are wide, and the best of a few rounds counts.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Final, NamedTuple

import psycopg
import pytest

from bench import ceiling
from bench.adapters import jobs
from bench.app import Job, build_app
from bench.filling import GLOBAL_LIMIT, fill, is_drained
from bench.processes import PROC, parent_pid, tree_cpu_seconds
from trax.testing.postgres import URL_VARIABLE

if TYPE_CHECKING:
    from tests.support.databases import PostgresDatabases

JOBS: Final = 3_000
SLOTS: Final = 500
ROUNDS: Final = 3
LOWEST_SHARE: Final = 0.2
"""Of all processor time of a drain, that of the bare SQL of it; 0.45 is usual."""
HIGHEST_MULTIPLE: Final = 15
"""Of a task that validates and dumps the same input; 6 is usual."""

pytestmark = pytest.mark.skipif(
    not PROC.is_dir() or URL_VARIABLE in os.environ,
    reason="processor time is read from /proc, of a server that nobody else uses",
)


class Cost(NamedTuple):
    """Seconds of a processor for one job."""

    python: float
    server: float

    @property
    def whole(self) -> float:
        return self.python + self.server


async def test_a_drain_is_not_much_dearer_than_its_statements(postgres_databases: PostgresDatabases) -> None:
    shares: list[float] = []

    while len(shares) < ROUNDS and max(shares, default=0) < LOWEST_SHARE:
        bare = await asyncio.to_thread(cost_of_statements, postgres_databases)
        with postgres_databases.database() as url:
            shares.append(bare.server / (await cost_of_drain(url)).whole)

    assert max(shares) >= LOWEST_SHARE, shares


async def test_a_job_costs_python_a_small_multiple_of_a_task(postgres_databases: PostgresDatabases) -> None:
    multiples: list[float] = []

    while len(multiples) < ROUNDS and min(multiples, default=HIGHEST_MULTIPLE) >= HIGHEST_MULTIPLE:
        task = await cost_of_task()
        with postgres_databases.database() as url:
            multiples.append((await cost_of_drain(url)).python / task)

    assert min(multiples) < HIGHEST_MULTIPLE, multiples


def cost_of_statements(databases: PostgresDatabases) -> Cost:
    with databases.database() as url, ceiling.open_store(url, JOBS) as store:
        statements = ceiling.record(store, SLOTS)
    with databases.database() as url, ceiling.open_store(url, JOBS) as store:
        server = server_pid(url)
        python, used = time.process_time(), tree_cpu_seconds(server)
        ceiling.replay(store, url, statements, JOBS)
        return Cost((time.process_time() - python) / JOBS, (tree_cpu_seconds(server) - used) / JOBS)


async def cost_of_drain(url: str) -> Cost:
    """From the first jobs to the last end: what a start costs is not part of it."""
    app = build_app(url, local_worker_count=SLOTS, max_active_jobs=GLOBAL_LIMIT).app
    store = await app.context.store.open()
    await store.call(fill, store, JOBS)
    server, before = server_pid(url), jobs.ran
    await app.start()
    try:
        while jobs.ran == before:  # noqa: ASYNC110 - a counter tells nobody
            await asyncio.sleep(0.001)
        first, python, used = jobs.ran, time.process_time(), tree_cpu_seconds(server)
        while not await store.ask(is_drained):  # noqa: ASYNC110 - nor does a row
            await asyncio.sleep(0.02)
        count = before + JOBS - first
        return Cost((time.process_time() - python) / count, (tree_cpu_seconds(server) - used) / count)
    finally:
        await app.stop()


async def cost_of_task() -> float:
    async def run() -> str:
        return Job.model_validate_json('{"number":1}').model_dump_json()

    started = time.process_time()
    for _ in range(JOBS):
        await asyncio.create_task(run())
    return (time.process_time() - started) / JOBS


def server_pid(url: str) -> int:
    with psycopg.connect(url) as connection:
        return parent_pid(connection.info.backend_pid)
