from __future__ import annotations

import asyncio
import os
import signal

import pytest

from trax import Trax
from trax.worker.loop import STOP_SIGNALS, StopSignals


@pytest.mark.parametrize("number", STOP_SIGNALS)
async def test_the_first_signal_requests_a_stop_and_the_second_interrupts(number: int) -> None:
    async with asyncio.timeout(30):
        with StopSignals() as signals:
            os.kill(os.getpid(), number)
            await signals.stop_requested.wait()
            assert not signals.interrupt_requested.is_set()

            os.kill(os.getpid(), number)
            await signals.interrupt_requested.wait()


async def test_a_start_is_broken_off_by_a_signal() -> None:
    began, ended = asyncio.Event(), list[str]()

    async def start() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("broken off")
            raise

    async with asyncio.timeout(30):
        with StopSignals() as signals:
            starting = asyncio.create_task(signals.run_until_stopped(start()))
            await began.wait()
            os.kill(os.getpid(), signal.SIGTERM)
            await starting

    assert ended == ["broken off"]


async def test_a_start_that_fails_raises_its_error() -> None:
    async def start() -> None:
        raise LookupError("no such thing")

    with StopSignals() as signals, pytest.raises(LookupError, match="no such thing"):
        await signals.run_until_stopped(start())


async def test_an_app_serves_until_a_signal_arrives(url: str) -> None:
    app = Trax(url)

    @app.train
    async def greet(_name: str) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    async with asyncio.timeout(60):
        serving = asyncio.create_task(app.serve())
        await app.queue(greet, "Ada")
        await serving
