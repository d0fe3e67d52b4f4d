"""Viewers of open dashboard pages: they receive change events and fetch their page again."""

from __future__ import annotations

import asyncio
import json
import re
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from bench.history import GIVEN, long_app
from bench.processes import cpu_seconds

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

VIEWERS: Final = 50
LOOK_AT: Final = ("/", "/executions", "/", "/queue", "/", "/dead-letters", "/", "/manifests")
"""In turn: every second viewer has the home page open, which costs most."""
PACE_SECONDS: Final = 3.0
CHANGE_SECONDS: Final = 0.25
LIVE: Final = re.compile(r'data-live="([^"]*)"')
"""The tags of the changes that affect each part of a page."""


async def cost(
    address: str, url: str, pids: Sequence[int], *, settle_seconds: float, seconds: float, busy: bool
) -> float:
    """The share of a core that these processes use for all viewers, while much or nothing changes."""
    viewers = [asyncio.create_task(_view(address, path)) for path in _paths()]
    changing = asyncio.create_task(_change(url)) if busy else asyncio.create_task(asyncio.sleep(0))
    try:
        await asyncio.sleep(settle_seconds)
        used, started = cpu_seconds(*pids), time.perf_counter()
        await asyncio.sleep(seconds)
        share = (cpu_seconds(*pids) - used) / (time.perf_counter() - started)
        ended = next((task for task in viewers if task.done()), None)
        assert ended is None, f"a viewer ended: {ended}"
        return share
    finally:
        for task in (*viewers, changing):
            task.cancel()
        await asyncio.gather(*viewers, changing, return_exceptions=True)


def _paths() -> list[str]:
    return [LOOK_AT[number % len(LOOK_AT)] for number in range(VIEWERS)]


async def _view(address: str, path: str) -> None:
    """Do what live.js does: listen for changes, and fetch the page again, but not too often."""
    concerned = {tag for tags in LIVE.findall(await _look(address, path)) for tag in tags.split()}
    async with _asked(address, "/api/v1/events") as events:
        looked_at = 0.0
        while line := await events.readline():
            if line.startswith(b"data:") and concerned & set(json.loads(line[5:])["tags"]):
                await asyncio.sleep(max(0.0, looked_at + PACE_SECONDS - time.monotonic()))
                await _look(address, path)
                looked_at = time.monotonic()


async def _look(address: str, path: str) -> str:
    async with _asked(address, path) as page:
        return (await page.read()).decode()


@asynccontextmanager
async def _asked(address: str, path: str) -> AsyncGenerator[asyncio.StreamReader]:
    at = urlsplit(address)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    try:
        head = f"GET {path} HTTP/1.1\r\nHost: {at.netloc}\r\nX-Trax-Live: 1\r\nConnection: close\r\n\r\n"
        writer.write(head.encode())
        await writer.drain()
        yield reader
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def _change(url: str) -> None:
    app = long_app(url)
    try:
        while True:
            await app.queue("train-10", GIVEN)
            await asyncio.sleep(CHANGE_SECONDS)
    finally:
        app.close()
