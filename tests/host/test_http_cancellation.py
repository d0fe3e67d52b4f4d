"""A run in mode "response" that is cancelled: over here at once, over there when its code looks."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import uvicorn
from tests.support.served import free_port

from trax import Trax, current
from trax.remote.http.workers import HttpWorkers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

SECRET = "a secret for the tests"


class Server(uvicorn.Server):
    """Says when it answers."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.ready.set()


@asynccontextmanager
async def served(endpoint: Any) -> AsyncGenerator[str]:
    """Over a real connection: closing it is what the far side learns by."""
    config = uvicorn.Config(endpoint, host="127.0.0.1", port=free_port(), log_level="warning", lifespan="off")
    server = Server(config)
    serving = asyncio.create_task(server.serve())
    await server.ready.wait()
    yield f"http://127.0.0.1:{config.port}"
    server.should_exit = True
    await serving


async def test_synchronous_code_continues_until_it_checks_though_its_record_has_ended() -> None:
    app, began, looks, ended = Trax("memory://"), *(threading.Event() for _ in range(3))
    saw: list[bool] = []

    @app.train
    def crunch(number: int) -> int:
        run = current()
        assert run
        began.set()
        looks.wait(60)
        saw.append(run.cancelled)
        ended.set()
        return number

    async with served(app.http_endpoint(SECRET)) as address:
        app.route(crunch, to=HttpWorkers(address, SECRET, mode="response"))
        async with app:
            entry = await app.queue(crunch, 1)
            assert await asyncio.to_thread(began.wait, 60)
            (run,) = await app.executions.list(train="crunch")
            await app.executions.cancel([run.id])
            record = await entry.wait(timeout=60)
            was_over_there = ended.is_set()
            looks.set()
            assert await asyncio.to_thread(ended.wait, 60)

    assert (record.state, was_over_there) == ("cancelled", False)
    assert saw == [True]
