"""What handing runs over costs, engine by engine, compared with the same engine without Trax.

Each engine has a function that measures it: add it to ENGINES. `handed_over` and `one_by_one` measure any
submitter; the `bare` figures are those of the engine without Trax.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import httpx2
import psycopg

from bench.app import Job, build_app
from bench.children import child
from bench.databases import database
from bench.figures import percentile, row, spread
from bench.http_worker import SECRET
from bench.options import Options
from trax.remote.http.workers import HttpWorkers
from trax.testing import postgres

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from bench.app import BenchApp
    from trax import Submitter

AT_ONCE: Final = 8
WIDTHS: Final = (26, 26)
MILLISECONDS: Final = 1e3


class Sizes(NamedTuple):
    """How many jobs at once, how many one by one, and how many rounds."""

    many: int
    single: int
    rounds: int


class Figures(NamedTuple):
    """Runs per second when there are many, and the duration of a single one."""

    rates: list[float]
    times: list[float]


def main(options: Options) -> None:
    sizes = Sizes(options.sized(2000, 8), options.sized(100, 1), options.sized(options.rounds, 1))
    print(f"engines: {sizes.many} no-op jobs, {AT_ONCE} concurrent calls; then {sizes.single} one by one")
    row("", "jobs a second", "p50, one by one", widths=WIDTHS)
    at_once = options.sized(1, len(ENGINES))  # most of a quick run is starting them
    with postgres(durable=True) as server, ThreadPoolExecutor(at_once) as pool:
        for found in pool.map(_measure, ENGINES.values(), repeat(server), repeat(sizes)):
            for name, figures in found.items():
                half = f"{percentile(figures.times, 0.5) * MILLISECONDS:.1f} ms"
                row(name, spread(figures.rates), half, widths=WIDTHS)


def _measure(measure: Engine, server: str, sizes: Sizes) -> dict[str, Figures]:
    with database(server) as url:
        return asyncio.run(measure(url, sizes))


async def handed_over(made: BenchApp, url: str, jobs: int) -> float:
    """Jobs per second from the queue to their end, with all jobs queued before the start."""
    await made.app.queue_many(made.noop, [Job(number=number) for number in range(jobs)])
    with psycopg.connect(url, autocommit=True) as connection:
        before = _completed(connection)
        began = time.perf_counter()
        await made.app.start("scheduler")
        while _completed(connection) < before + jobs:  # noqa: ASYNC110 - a row has no event
            await asyncio.sleep(0.02)
    seconds = time.perf_counter() - began
    await made.app.stop()
    return jobs / seconds


def _completed(connection: psycopg.Connection[Any]) -> int:
    found = connection.execute("SELECT count(*) FROM trax.metadata WHERE state = 'completed'").fetchone()
    return found[0] if found else 0


async def one_by_one(made: BenchApp, jobs: int) -> list[float]:
    """How long each job takes from its entry to its end, by the database's clock; the first is a warm-up.

    Not by this process's clock: `entry.wait` polls for runs of other processes only four times a second.
    """
    await made.app.start("scheduler")
    times = [await _from_queue_to_end(made) for _ in range(jobs + 1)]
    await made.app.stop()
    return times[1:]


async def _from_queue_to_end(made: BenchApp) -> float:
    entry = await made.app.queue(made.noop, Job(number=1))
    run = await entry.wait(timeout=60)
    assert run.ended_at
    return (run.ended_at - entry.created_at).total_seconds()


async def bare_rate(call: Callable[[], Awaitable[object]], jobs: int) -> float:
    """The rate of the same number of bare calls, with the same concurrency."""
    left = iter(range(jobs))

    async def caller() -> None:
        for _ in left:
            await call()

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(AT_ONCE)))
    return jobs / (time.perf_counter() - began)


async def timed(call: Callable[[], Awaitable[object]], jobs: int) -> list[float]:
    """How long each call takes; the first is a warm-up and does not count."""
    times: list[float] = []
    for _ in range(jobs + 1):
        began = time.perf_counter()
        await call()
        times.append(time.perf_counter() - began)
    return times[1:]


async def ours(url: str, submitter: Submitter, sizes: Sizes) -> Figures:
    """Both figures of Trax with a submitter whose workers are running."""
    made = build_app(url, submitter=submitter, max_active_jobs=None, max_concurrent_dispatch=AT_ONCE)
    rates = [await handed_over(made, url, sizes.many) for _ in range(sizes.rounds)]
    return Figures(rates, await one_by_one(made, sizes.single))


async def http(url: str, sizes: Sizes) -> dict[str, Figures]:
    """A uvicorn process on this machine; bare, it answers a POST with 204."""
    build_app(url).app.context.store.open_blocking()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    environment = {"TRAX_DATABASE_URL": url, "PORT": str(port)}
    with child(Path(sys.executable), "bench.http_worker", environment=environment):
        database_mode = HttpWorkers(f"{address}/jobs", SECRET, name="database")
        response_mode = HttpWorkers(f"{address}/jobs", SECRET, name="response", mode="response")
        return {
            "bare httpx2, one POST a job": await _bare_posts(f"{address}/bare", sizes),
            'HttpWorkers(mode="database")': await ours(url, database_mode, sizes),
            'HttpWorkers(mode="response")': await ours(url, response_mode, sizes),
        }


async def _bare_posts(address: str, sizes: Sizes) -> Figures:
    async with httpx2.AsyncClient() as client:

        async def call() -> None:
            await client.post(address, json={"number": 1})

        rates = [await bare_rate(call, sizes.many) for _ in range(sizes.rounds)]
        return Figures(rates, await timed(call, sizes.single))


async def celery(url: str, sizes: Sizes) -> dict[str, Figures]:
    """A forking worker, with Valkey and with RabbitMQ; bare: tasks that send their results."""
    from bench.celery_engine import measure

    return await measure(url, sizes)


async def sqs(url: str, sizes: Sizes) -> dict[str, Figures]:
    """A consumer and moto's server, slower than Amazon's but local; bare: messages sent and received."""
    from bench.sqs_engine import measure

    return await measure(url, sizes)


async def ray(url: str, sizes: Sizes) -> dict[str, Figures]:
    """A cluster of one node with warm processes; bare: a task for each job, and its result."""
    from bench.ray_engine import measure

    return await measure(url, sizes)


Engine = Callable[[str, Sizes], Coroutine[Any, Any, dict[str, Figures]]]
ENGINES: Final[dict[str, Engine]] = {
    "http": http,
    "celery": celery,
    "ray": ray,
    "sqs": sqs,
}

if __name__ == "__main__":
    main(Options())
