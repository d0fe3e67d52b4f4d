# pyright: basic, reportMissingImports=false
# The peer is installed in an environment of its own, which the type checker does not see.
"""Celery on Valkey."""

from __future__ import annotations

import asyncio
import logging
from threading import Thread
from typing import Any

from celery import Celery

from bench.adapters import Adapter, jobs

PREFETCH = 500
"""Messages fetched ahead; its default of 4 waits for the broker more often."""
POOL = "threads"
"""solo, threads, and prefork with one and with two processes differ by a tenth."""


class Contender(Adapter):
    """No results stored, no remote control; a task is acknowledged before it runs (its default)."""

    async def open(self) -> None:
        logging.disable(logging.INFO)
        self._app = Celery("bench", broker=self.url)
        self._app.conf.update(
            task_ignore_result=True,
            worker_prefetch_multiplier=PREFETCH,
            worker_enable_remote_control=False,
            worker_send_task_events=False,
            broker_connection_retry_on_startup=True,
        )

        @self._app.task(name="noop")
        def noop(number: int) -> None:
            jobs.do_nothing(number)

        @self._app.task(name="tell")
        def tell(asked: float) -> None:
            jobs.tell(asked)

        self._noop, self._tell = noop, tell
        self._broker = self._app.connection_for_write()
        self._worker: Any = None

    async def add_many(self, count: int) -> None:
        # It has no call for many; one connection for all of them is the way its manual names.
        with self._app.producer_pool.acquire(block=True) as producer:
            for number in range(count):
                self._noop.apply_async((number,), producer=producer)

    async def add_one(self) -> None:
        self._noop.delay(1)

    async def add_tell(self, asked: float) -> None:
        self._tell.delay(asked)

    async def work(self) -> None:
        self._worker = self._app.WorkController(
            app=self._app,
            pool=POOL,
            concurrency=1,
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        )
        self._thread = Thread(target=self._worker.start, daemon=True)
        self._thread.start()

    async def is_done(self) -> bool:
        client = self._broker.default_channel.client
        return client.llen("celery") == 0 and client.hlen("unacked") == 0

    async def close(self) -> None:
        if self._worker is not None:
            self._worker.stop()
            await asyncio.to_thread(self._thread.join, 5)
        self._broker.release()
