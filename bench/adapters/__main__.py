"""The process of a contender, `python -m bench.adapters NAME URL [SETTINGS]`; commands come from stdin."""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from bench.adapters import jobs, run_in_loop
from bench.children import say, words

if TYPE_CHECKING:
    from bench.adapters import Adapter

POLL_SECONDS = 0.01
CALLERS = 16
"""The number of concurrent enqueue calls while jobs are offered at a rate."""


async def main(name: str, url: str, settings: str = "{}") -> None:
    module: Any = importlib.import_module(f"bench.adapters.{name}")
    adapter: Adapter = module.Contender(url, **json.loads(settings))
    say(ready=True)
    async for line in words():
        word, *numbers = line.split()
        await VERBS[word](adapter, *map(int, numbers))
    await adapter.close()


async def connect(adapter: Adapter) -> None:
    await adapter.open()
    gc.collect()
    gc.freeze()  # what is loaded stays to the end: the collector need not look at it again
    say(connected=True)


async def fill(adapter: Adapter, count: int) -> None:
    await adapter.fill(count)
    say(filled=count)


async def work(adapter: Adapter) -> None:
    await adapter.work()
    say(works=True)


async def wait(adapter: Adapter) -> None:
    """Poll until all jobs are done, and report when that was."""
    while not await adapter.is_done():  # noqa: ASYNC110 - a row tells nobody
        await asyncio.sleep(POLL_SECONDS)
    say(done=time.monotonic())


async def enqueue(adapter: Adapter, calls: int, size: int, singles: int) -> None:
    """Report how many jobs per second are enqueued, many per call and one per call."""
    await adapter.add_many(size)  # the first calls pay for what is made once
    await adapter.add_one()
    started = time.perf_counter()
    for _ in range(calls):
        await adapter.add_many(size)
    between = time.perf_counter()
    for _ in range(singles):
        await adapter.add_one()
    ended = time.perf_counter()
    say(bulk=calls * size / (between - started), single=singles / (ended - between))


async def tell(adapter: Adapter) -> None:
    await adapter.add_tell(time.monotonic())


async def offer(adapter: Adapter, rate: int, seconds: int) -> None:
    """Queue single jobs at a steady rate, whether the worker keeps up or not; report how many."""
    await asyncio.gather(*(adapter.add_tell(time.monotonic()) for _ in range(CALLERS)))  # to warm up
    count = rate * seconds
    numbers = iter(range(count))
    began = time.monotonic()

    async def call() -> None:
        for number in numbers:
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            await adapter.add_tell(time.monotonic())

    await asyncio.gather(*(call() for _ in range(CALLERS)))
    say(offered=count, began=began, ended=time.monotonic())


async def collect(_adapter: Adapter) -> None:
    jobs.collect()
    say(collects=True)


async def count(_adapter: Adapter) -> None:
    say(ran=jobs.ran)


async def starts(_adapter: Adapter) -> None:
    say(starts=jobs.starts)


VERBS = {
    each.__name__: each for each in (connect, fill, work, wait, enqueue, tell, offer, collect, starts, count)
}

if __name__ == "__main__":
    run_in_loop(main(*sys.argv[1:]))
