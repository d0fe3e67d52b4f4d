# pyright: basic, reportMissingImports=false
# The peer is installed in an environment of its own, which the type checker does not see.
"""SAQ on Valkey."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from saq import Job, Queue, Worker

from bench.adapters import Adapter, jobs

CONCURRENCY = 50
"""Each waits for one job in a blocking call of its own; 10 are a tenth slower."""


async def noop(_context: Any, *, number: int) -> None:
    jobs.do_nothing(number)


async def tell(_context: Any, *, asked: float) -> None:
    jobs.tell(asked)


class Contender(Adapter):
    """hiredis as the parser; a result is kept for ten minutes (its default)."""

    async def open(self) -> None:
        logging.getLogger("saq").setLevel(logging.ERROR)  # it warns of every stop
        self._queue = Queue.from_url(self.url)

    async def add_many(self, count: int) -> None:
        # It has no call for many: they are sent at once, as its own `map` and `batch` do.
        await asyncio.gather(*(self._queue.enqueue("noop", number=number) for number in range(count)))

    async def add_one(self) -> None:
        await self._queue.enqueue("noop", number=1)

    async def add_tell(self, asked: float) -> None:
        await self._queue.enqueue(Job("tell", kwargs={"asked": asked}))

    async def work(self) -> None:
        self._worker = Worker(self._queue, [noop, tell], concurrency=CONCURRENCY)
        self._worker.SIGNALS = []
        self._working = asyncio.create_task(self._worker.start())

    async def is_done(self) -> bool:
        return await self._queue.count("incomplete") == 0

    async def close(self) -> None:
        if hasattr(self, "_working"):
            await self._worker.stop()
            await self._working
        await self._queue.disconnect()
