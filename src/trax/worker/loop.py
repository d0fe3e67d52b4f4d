"""`Loop`: call a function repeatedly until it is stopped; the loops of a worker; stop signals of a server."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from functools import partial
from random import Random
from threading import Event
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from trax.clock import is_set_within
from trax.engine.open_store import use_web_lane
from trax.errors import StoreError
from trax.escapes import visible_text
from trax.events import Topic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from trax.store import Connection, Store
    from trax.worker.app_context import AppContext
    from trax.worker.worker import Worker

logger = logging.getLogger(__name__)
T = TypeVar("T")

_random: Final = Random()  # noqa: S311 - for jitter; its own instance, since a train may call random.seed

JITTER: Final = 0.2

FAILING_AFTER_TURNS: Final = 3
"""How many turns in a row must fail before health reports it."""
FAILURE_CHARACTERS: Final = 300

PAUSES: Final = (0.5, 1.0, 2.0, 5.0)
"""Seconds to wait after failed turns, if the poll is not sooner."""


class Loop:
    """Calls `turn` repeatedly. Turns never overlap, and a failed one does not end the loop.

    A turn returns the seconds until the next one: 0 for at once, None for the next poll. A wake-up ends the
    wait. The first turn starts `first_after` seconds after the start.
    """

    def __init__(
        self,
        name: str,
        turn: Callable[[], Awaitable[float | None]],
        *,
        poll_seconds: Callable[[], float],
        first_after: float = 0,
    ) -> None:
        self.name = name
        self._extra = {"loop": name}
        self.is_requested = True
        """Whether this turn was woken or requested by the last one. If not, it is only a poll."""
        self.turns = 0
        self.failed_turns = 0
        self._turn = turn
        self._poll_seconds = poll_seconds
        self._first_after = first_after
        self._wake_event = asyncio.Event()
        self._stopping = False
        self._failures = 0
        self._last_failure: type[Exception] | None = None
        self._failure_text = ""
        self.repair: Callable[[Exception], Awaitable[bool]] | None = None
        """Called after a failed turn; true if it removed the cause: then the next turn follows at once."""
        self._event_loop = asyncio.get_running_loop()

    def wake(self) -> None:
        """Request a turn now. Thread-safe."""
        if self._wake_event.is_set() or self._event_loop.is_closed():
            return
        self._event_loop.call_soon_threadsafe(self._wake_event.set)

    def stop(self) -> None:
        """Finish the current turn, and start no other."""
        self._stopping = True
        self.wake()

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    @property
    def failure(self) -> str | None:
        """The last error, once some turns in a row have failed; None while turns succeed."""
        return self._failure_text if self._failures >= FAILING_AFTER_TURNS else None

    async def run(self) -> None:
        if not self._stopping:
            self._wake_event.clear()  # the first turn is still to come
            await self._sleep(self._first_after)
        while not self._stopping:
            self._wake_event.clear()  # before the turn, so that a wake-up during it is not lost
            await self._sleep(await self._run_turn())

    async def _run_turn(self) -> float | None:
        self.turns += 1
        try:
            seconds_to_next = await self._turn()
        except Exception as error:  # noqa: BLE001 - the next turn may succeed
            self._log_failure(error)
            if await self._is_repaired(error):
                return 0
            return PAUSES[min(self._failures, len(PAUSES)) - 1]
        if self._failures:
            text = "loop %s: recovered after %s failed turns"
            logger.info(text, self.name, self._failures, extra=self._extra)
            self._failures = 0
        return seconds_to_next

    async def _is_repaired(self, error: Exception) -> bool:
        try:
            return self.repair is not None and await self.repair(error)
        except Exception as failed:  # noqa: BLE001 - the turn is tried again in any case
            logger.warning("loop %s: could not repair rows: %s", self.name, failed, extra=self._extra)
            return False

    def _log_failure(self, error: Exception) -> None:
        """Log a kind of failure once: a long outage must not flood the log."""
        is_known = self._failures > 0 and type(error) is self._last_failure
        self._failures += 1
        self.failed_turns += 1
        self._last_failure = type(error)
        self._failure_text = visible_text(f"{type(error).__name__}: {error}"[:FAILURE_CHARACTERS])
        if is_known:
            logger.debug("loop %s: failed again: %s", self.name, error, extra=self._extra)
        elif isinstance(error, StoreError):
            logger.warning("loop %s: a turn failed; trying again: %s", self.name, error, extra=self._extra)
        else:
            logger.error("loop %s: a turn failed; trying again", self.name, exc_info=error, extra=self._extra)

    async def _sleep(self, seconds_to_next: float | None) -> None:
        poll = self._poll_seconds() * _random.uniform(1 - JITTER, 1)
        seconds = poll if seconds_to_next is None else min(seconds_to_next, poll)
        self.is_requested = seconds_to_next is not None and seconds_to_next <= poll
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        if await is_set_within(self._wake_event, seconds):
            self.is_requested = True


def run_server(main: Coroutine[Any, Any, T]) -> T:
    """Run this in uvloop if that is installed (the `fast` extra), else in the standard event loop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


async def run_in_loop(event_loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
    """Await this in another thread's event loop, with the context of this task."""
    if event_loop is asyncio.get_running_loop() or event_loop.is_closed():
        return await coroutine
    tasks: list[asyncio.Task[Any]] = []
    cancelled = Event()

    async def run_there() -> T:
        tasks.extend(filter(None, [asyncio.current_task()]))
        if cancelled.is_set():
            coroutine.close()
            raise asyncio.CancelledError
        use_web_lane(is_for_web=False)
        return await coroutine

    future = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(run_there(), event_loop))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        # Cancel the task there and wait until it has ended: it may have something to write.
        cancelled.set()
        event_loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
        future.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        await asyncio.wait([future])
        raise


YOUNG_THRESHOLD: Final = 10_000
"""New objects before the young generation is collected; Python's default is 700."""


def freeze_loaded_objects() -> None:
    """Exclude everything loaded so far (modules, models, statements) from future collections.

    A job allocates hundreds of objects without cycles. With Python's defaults the collector scans everything
    ever imported every few thousand jobs, and the process stops meanwhile.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_THRESHOLD, *gc.get_threshold()[1:])


STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Handles stop signals while the block lasts.

    The first signal drains: active runs may end. The second interrupts them and returns them to the queue.
    The third exits the process at once.
    """

    def __init__(self) -> None:
        self.stop_requested = asyncio.Event()
        self.interrupt_requested = asyncio.Event()

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._handle_signal, number)
        return self

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)

    async def run_until_stopped(
        self, work: Coroutine[Any, Any, None], *, before_cancel: Callable[[], None] = lambda: None
    ) -> None:
        """Run this until it is done or a stop signal comes; then call `before_cancel` and cancel it."""
        work_task, stop_task = asyncio.create_task(work), asyncio.create_task(self.stop_requested.wait())
        try:
            await asyncio.wait({work_task, stop_task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not work_task.done():
                before_cancel()
            for task in (work_task, stop_task):
                task.cancel()  # no effect on a task that is done
            await asyncio.wait({work_task, stop_task})
        if not work_task.cancelled():
            await work_task

    def _handle_signal(self, number: int) -> None:
        if self.interrupt_requested.is_set():
            os._exit(128 + number)
        (self.interrupt_requested if self.stop_requested.is_set() else self.stop_requested).set()


def claimer(context: AppContext, worker: Worker) -> Loop:
    async def turn() -> float | None:
        slots = worker.slots_to_fill
        claimed = await worker.claim()
        has_more = 0 < slots <= claimed and worker.slots_to_fill > 0  # jobs that compute come a few at a time
        return 0 if has_more else None

    return Loop("claimer", turn, poll_seconds=partial(interval_seconds, context, "local_polling"))


def finisher(
    context: AppContext,
    store: Store,
    worker: Worker,
    *,
    leave_to_dispatcher: Callable[[], bool] = lambda: False,
    wake_dispatcher: Callable[[], bool] = lambda: False,
) -> Loop:
    """Writes results, unless the dispatcher of this process does it (`leave_to_dispatcher`).

    `wake_dispatcher` wakes the dispatcher of this process; False if there is none.
    """

    async def turn() -> None:
        if leave_to_dispatcher() or not await worker.flush():
            return
        context.events.emit(Topic.FINISHED)
        if not wake_dispatcher():
            context.events.emit(Topic.PENDING)
            await store.call(announce_capacity)

    return Loop("finisher", turn, poll_seconds=partial(interval_seconds, context, "local_polling"))


def heartbeat(context: AppContext, worker: Worker) -> Loop:
    poll = partial(interval_seconds, context, "heartbeat")
    return Loop("heartbeat", worker.send_heartbeat, poll_seconds=poll, first_after=poll())  # its row is new


def announce_capacity(connection: Connection) -> None:
    """Announce free capacity to other processes, if entries are ready.

    Called after the results are committed: an entry written later than this check finds the capacity free.
    """
    from trax.store.announce import announce
    from trax.store.queue import work_queue

    if work_queue.is_any_ready(connection):
        announce(connection, Topic.WORK_QUEUE)


def interval_seconds(context: AppContext, setting: str) -> float:
    """The current value of an interval setting: an operator may change it while the loop runs."""
    interval: Any = getattr(context.settings, f"{setting}_interval")
    return interval.total_seconds()
