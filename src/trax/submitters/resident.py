"""The receiving end of an app for code that blocks: it lives in a thread of its own, beside that code."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import Future
from threading import Lock, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from trax.host.app import Trax
    from trax.host.receiving import Receiver


class Resident:
    """Takes runs up for whoever asks, in this process. It moves in when it is first needed.

    A process that is forked has nothing of its parent's: there another one moves in, as another worker.
    `slots` says how many runs there may be at once; one too many waits, and is not taken up before its turn.
    """

    def __init__(self, app: Trax, slots: Callable[[], int] = lambda: 1) -> None:
        self._app = app
        self._slots = slots
        self._moving = Lock()
        self._room: _Room | None = None

    def execute(self, metadata_id: int) -> bool:
        """Take a run up, and return when it has ended; False when it has begun elsewhere, or is over.

        Raises as `take_up` does: then the run was not taken up.
        """
        return self._opened().execute(metadata_id).result()

    def close(self) -> None:
        """Let what runs end, as a worker that is asked to stop does, and move out."""
        with self._moving:
            room, self._room = self._room, None
        if room is not None and room.is_ours:
            room.close()

    def _opened(self) -> _Room:
        with self._moving:
            if self._room is None or not self._room.is_ours:
                self._room = _Room(self._app, self._slots())
            return self._room


class _Room:
    """A thread with an event loop, in which the app is receiving."""

    def __init__(self, app: Trax, slots: int) -> None:
        self._app = app
        self._slots = slots
        self._pid = os.getpid()
        self._closing = asyncio.Event()
        self._free = asyncio.Semaphore(slots)
        self._ready: Future[tuple[asyncio.AbstractEventLoop, Receiver]] = Future()
        self._thread = Thread(target=self._run, name="trax-receiving", daemon=True)
        self._thread.start()
        self._loop, self._receiver = self._ready.result()

    @property
    def is_ours(self) -> bool:
        """Whether it lives in this process: a thread does not survive a fork."""
        return self._pid == os.getpid() and self._thread.is_alive()

    def execute(self, metadata_id: int) -> Future[bool]:
        return asyncio.run_coroutine_threadsafe(self._execute(metadata_id), self._loop)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()

    async def _execute(self, metadata_id: int) -> bool:
        async with self._free:
            return await self._receiver.execute(metadata_id)

    def _run(self) -> None:
        try:
            asyncio.run(self._receive())
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)  # whoever wanted to move in learns why that failed

    async def _receive(self) -> None:
        async with self._app.receiving(concurrency=self._slots) as receiver:
            self._ready.set_result((asyncio.get_running_loop(), receiver))
            await self._closing.wait()
