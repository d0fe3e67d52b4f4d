"""A receiver for blocking code: claims and runs jobs by id, in its own thread with an event loop."""

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


class ThreadReceiver:
    """Claims runs by id and executes them in this process. Its thread starts with the first run.

    A forked process starts its own thread, as another worker. `slots` is how many runs execute at once;
    further ones wait, and are not claimed before a slot is free.
    """

    def __init__(self, app: Trax, slots: Callable[[], int] = lambda: 1) -> None:
        self._app = app
        self._slots = slots
        self._moving = Lock()
        self._room: _ReceiverThread | None = None

    def execute(self, metadata_id: int) -> bool:
        """Claim a run and return when it has ended; False if it was started elsewhere or has ended.

        Raises what `claim_by_id` raises: then the run was not claimed.
        """
        return self._open_thread().execute(metadata_id).result()

    def close(self) -> None:
        """Wait for active runs, as a stopping worker does, and end the thread."""
        with self._moving:
            room, self._room = self._room, None
        if room is not None and room.is_ours:
            room.close()

    def _open_thread(self) -> _ReceiverThread:
        with self._moving:
            if self._room is None or not self._room.is_ours:
                self._room = _ReceiverThread(self._app, self._slots())
            return self._room


class _ReceiverThread:
    """A thread with an event loop and a receiver."""

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
        """Whether the thread is alive in this process: threads do not survive a fork."""
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
            self._ready.set_exception(error)  # raised in __init__, which waits for it

    async def _receive(self) -> None:
        async with self._app.receiver(concurrency=self._slots) as receiver:
            self._ready.set_result((asyncio.get_running_loop(), receiver))
            await self._closing.wait()
