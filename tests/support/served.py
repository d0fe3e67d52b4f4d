"""The roastery as people meet it: every duty and the control room on a port, in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tests.support.roastery import Roastery

from trax.web import Access
from trax.web.serve import ListenAddress, WebListener

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

    from trax import Trax

    T = TypeVar("T")

QUICKLY: dict[str, Any] = {"polling_interval": 0.2, "max_active_jobs": 20, "local_worker_count": 8}


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@dataclass
class Served:
    """A server that is started, stopped, and started again at the same address."""

    url: str
    access: Access = field(default_factory=lambda: Access(allow_anonymous=True))
    port: int = field(default_factory=free_port)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        self.world = Roastery(self.url)
        self.app: Trax = self.world.app(**QUICKLY)
        self._started, self._doorway = threading.Event(), WebListener(ListenAddress(self.port), self.access)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="served")
        self._thread.start()
        assert self._started.wait(30), "the server did not start"

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something where the app lives."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=30)

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        async with self.app, self._doorway.serve(self.app, title="Roastery", environment="test"):
            self._started.set()
            await self._stopping.wait()
            self.world.release.set()
