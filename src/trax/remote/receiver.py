"""Receive runs from a submitter: a worker that claims runs only by id. Open the submitters of a server."""

from __future__ import annotations

import asyncio
import logging
import os
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Protocol, Self

from trax.engine.submitter import open_submitter
from trax.errors import NotFound, StoreError, TraxError, UnknownTrain
from trax.events import Topic
from trax.records.worker import WorkerKind
from trax.schedule.validate import SLOTS_OR_NONE
from trax.store.runs import claim
from trax.worker import loop as worker_loops
from trax.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
    from contextlib import AbstractAsyncContextManager

    from trax.engine.submitter import Submitter
    from trax.records.result import RunResult
    from trax.store import Connection
    from trax.store.runs.claim import Claimed
    from trax.worker.active_run import ActiveRun
    from trax.worker.app_context import AppContext
    from trax.worker.recorded_run import RemoteExecutor
    from trax.worker.results import WriteResults

logger = logging.getLogger(__name__)


class ReceivingApp(Protocol):
    """What a submitter's worker side needs of an app."""

    def receiver(
        self, *, concurrency: int | None = None, executor: RemoteExecutor | None = None
    ) -> AbstractAsyncContextManager[Receiver]: ...

    def close(self) -> None: ...


class Receiver(Worker):
    """Claims runs by id. A run is executed once, however often and wherever it is handed over.

    Runs beyond its slots wait here, and start when a slot becomes free: no other worker would get them.
    """

    kind = WorkerKind.RECEIVER
    _keeps_waiting = True

    def __init__(self, *args: Any, executor: RemoteExecutor | None = None, **more: Any) -> None:
        self._executor = executor
        super().__init__(*args, **more)
        self._writing = asyncio.Lock()

    async def claim_by_id(self, metadata_id: int) -> bool:
        """Start a run and return; False if it was started elsewhere or has ended.

        Raises NotFound for a run that does not exist, and UnknownTrain for one that this process has no code
        for: it stays pending, and the submitter gets the error. A missing or invalid input is recorded as a
        failed run.
        """
        (taken,) = await self.claim_by_ids([metadata_id])
        if isinstance(taken, TraxError):
            raise taken
        return taken

    async def claim_by_ids(self, metadata_ids: Sequence[int]) -> list[bool | TraxError]:
        """The same for several runs in one transaction; an error of a run is its element of the result."""
        if self._is_stopping or self._has_missed_heartbeats():
            raise TraxError(f"worker {self.id} claims no runs: it is stopping, or missed its heartbeat")
        async with self._claims:
            jobs, refused = await self._store.call(self._claim_ids, metadata_ids, self._pool.slots_to_fill)
            await self._pool.start(jobs)
        taken = {job.metadata_id for job in jobs}
        return [refused.get(run_id) or run_id in taken for run_id in metadata_ids]

    async def execute(self, metadata_id: int) -> bool:
        """Start a run and wait until its result is written; other runs may run at the same time."""
        if not await self.claim_by_id(metadata_id):
            return False
        while metadata_id in self._pool.job_ids:
            runs = {run.job.metadata_id: run.task for run in self._pool.runs if run.task is not None}
            its_own = runs.get(metadata_id)  # None while it waits for a slot
            await asyncio.wait([its_own] if its_own else runs.values(), return_when=asyncio.FIRST_COMPLETED)
        await self.flush()
        await self._results.wait_for_hooks()
        return True

    async def wait_until_idle(self) -> None:
        """Wait until all claimed runs have ended and their results are written."""
        await self._pool.wait_until_idle()
        await self.flush()
        await self._results.wait_for_hooks()

    async def flush(self, write: WriteResults | None = None) -> int:
        async with self._writing:  # `execute` returns only after the result is written
            return await super().flush(write)

    def _claim_ids(
        self, connection: Connection, metadata_ids: Sequence[int], slots: int
    ) -> tuple[list[Claimed], dict[int, TraxError]]:
        named, known = claim.load_named(connection, metadata_ids), self._context.trains
        refused: dict[int, TraxError] = {
            run.metadata_id: UnknownTrain(run.train, known.names_and_aliases)
            for run in named
            if run.train not in known
        }
        absent = set(metadata_ids) - {run.metadata_id for run in named}
        refused |= {run_id: NotFound(f"there is no execution {run_id}") for run_id in absent}
        fit = [run.metadata_id for run in named if run.metadata_id not in refused]
        if not fit:
            return [], refused
        host, now = self._context.identity.host, self._store.now(connection)
        starting, waiting = fit[:slots], fit[slots:]
        return claim.claim_by_id(
            connection, starting, waiting, worker_id=self.id, host=host, now=now
        ), refused

    async def _execute(self, run: ActiveRun[Claimed]) -> RunResult:
        """Record the start of a run that has waited for a slot before its code begins."""
        if run.job.waited_seconds is None:
            try:
                if not await self._store.call(self._start_waiting, run.metadata_id):
                    return self._runner.put_back_result(run.job, "it was reassigned before it began")
            except StoreError as error:
                return self._runner.put_back_result(run.job, f"its start could not be recorded: {error}")
        return await self._runner.execute(run)

    def _start_waiting(self, connection: Connection, metadata_id: int) -> bool:
        return claim.start_waiting(
            connection, metadata_id, worker_id=self.id, now=self._store.now(connection)
        )


@asynccontextmanager
async def run_receiver(
    context: AppContext, *, concurrency: int | None = None, executor: RemoteExecutor | None = None
) -> AsyncGenerator[Receiver]:
    """Run a receiver in the block, with its heartbeat and result loops; then drain it.

    With an `executor` the trains are executed there, and only their records are kept here.
    """
    SLOTS_OR_NONE("concurrency", concurrency)
    store = (await context.store.open()).engine_lane
    receiver = await Receiver.start(context, store, concurrency, executor=executor)
    receiver.start_heartbeat()
    finisher = worker_loops.finisher(context, store, receiver)
    heartbeat = worker_loops.heartbeat(context, receiver)
    wakes = (
        context.events.listen(Topic.ENDED, finisher.wake),
        context.events.listen(Topic.CANCEL, heartbeat.wake),
    )
    tasks = [asyncio.create_task(loop.run(), name=f"trax {loop.name}") for loop in (finisher, heartbeat)]
    try:
        yield receiver
    finally:
        await receiver.drain(context.settings.shutdown_timeout.total_seconds())
        for loop in (finisher, heartbeat):
            loop.stop()
        await asyncio.gather(*tasks)
        for unsubscribe in wakes:
            unsubscribe()
        await receiver.unregister()


class OpenSubmitters:
    """The open submitters of one server, from its start to its stop."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self.receivers: list[Receiver] = []
        """Receivers that keep the records of runs executed in processes without a database."""

    @classmethod
    async def open(cls, submitters: Iterable[Submitter], context: AppContext) -> Self:
        """Open all of them; if one fails, close those already open."""
        self = cls()
        try:
            for submitter in submitters:
                opening = open_submitter(submitter, partial(run_receiver, context))
                receiver = await self._stack.enter_async_context(opening)
                self.receivers += [] if receiver is None else [receiver]
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Close all. Without a database, the rows of receivers stay until they miss their heartbeat."""
        try:
            await self._stack.aclose()
        except StoreError as error:
            logger.warning("submitters could not be closed cleanly: %s", error)


class ThreadReceiver:
    """Claims runs by id and executes them in this process. Its thread starts with the first run.

    A forked process starts its own thread, as another worker. `slots` is how many runs execute at once;
    further ones wait, and are not claimed before a slot is free.
    """

    def __init__(self, app: ReceivingApp, slots: Callable[[], int] = lambda: 1) -> None:
        self._app = app
        self._slots = slots
        self._lock = Lock()
        self._thread: _ReceiverThread | None = None

    def execute(self, metadata_id: int) -> bool:
        """Claim a run and return when it has ended; False if it was started elsewhere or has ended.

        Raises what `claim_by_id` raises: then the run was not claimed.
        """
        return self._open_thread().execute(metadata_id).result()

    def close(self) -> None:
        """Wait for active runs, as a stopping worker does, and end the thread."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None and thread.is_ours:
            thread.close()

    def _open_thread(self) -> _ReceiverThread:
        with self._lock:
            if self._thread is None or not self._thread.is_ours:
                self._thread = _ReceiverThread(self._app, self._slots())
            return self._thread


class _ReceiverThread:
    """A thread with an event loop and a receiver."""

    def __init__(self, app: ReceivingApp, slots: int) -> None:
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
