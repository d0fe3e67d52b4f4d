"""Trax, as `trax run` runs it: every shape of a queue, out of the box, with async and with sync trains."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any, Final

from bench.adapters import Adapter
from bench.app import Job, build_app
from bench.filling import SHAPES, USUAL, fill, is_drained

SLOTS: Final = 500


class Contender(Adapter):
    def __init__(self, url: str, *, shape: str = USUAL, train: str = "noop", defaults: bool = False) -> None:
        super().__init__(url)
        settings: dict[str, Any] = {}
        if not defaults:
            settings = {
                "local_worker_count": SLOTS,
                "max_active_jobs": SHAPES[shape].max_active_jobs,
            }
        self._shape, self._train = "no group" if defaults else shape, train
        self._bench = build_app(url, **settings)
        self._works = False

    async def open(self) -> None:
        importlib.import_module("trax.server.start")  # else in `work`; the peers import all their code before
        self._store = await self._bench.app.context.store.open()

    async def fill(self, jobs: int) -> None:
        await self._store.call(fill, self._store, jobs, shape=self._shape, train=self._train)

    async def add_many(self, count: int) -> None:
        await self._bench.app.queue_many(self._bench.noop, [Job(number=number) for number in range(count)])

    async def add_one(self) -> None:
        await self._bench.app.queue(self._bench.noop, Job(number=1))

    async def add_tell(self, asked: float) -> None:
        await self._bench.app.queue(self._bench.tell, asked)

    async def work(self) -> None:
        await self._bench.app.start()
        self._works = True

    async def is_done(self) -> bool:
        return await self._store.ask(is_drained)

    async def close(self) -> None:
        if self._works:
            await self._bench.app.stop()
        else:
            await asyncio.to_thread(self._bench.app.close)
