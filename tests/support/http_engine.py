"""HTTP workers as an engine under test: a uvicorn process on the loopback."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from tests.support import http_server
from tests.support.preloaded_engine import PreloadedEngine
from tests.support.served import free_port

from trax.remote.http.client import CallRetry
from trax.remote.http.workers import HttpWorkers

if TYPE_CHECKING:
    from trax import Trax
    from trax.testing.submitter_contract import Workspace

QUICK = CallRetry(max_retries=2, base_delay=timedelta(seconds=0.05), max_delay=timedelta(seconds=0.1))


class HttpEngine(PreloadedEngine):
    """With mode "response" the far side has no database to reach: it gets an address where there is none."""

    def __init__(self, mode: Literal["database", "response"]) -> None:
        self._mode: Literal["database", "response"] = mode
        self._port = free_port()

    def submitter(self, app: Trax) -> HttpWorkers:
        del app
        url = f"http://127.0.0.1:{self._port}/jobs"
        return HttpWorkers(url, http_server.SECRET, mode=self._mode, retry=QUICK)

    async def start(self, site: Workspace) -> None:
        there = site if self._mode == "database" else replace(site, url=http_server.NOWHERE)
        await self.launch("-m", http_server.__name__, site=there, PORT=str(self._port))
