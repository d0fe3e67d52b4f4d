"""Roles of a process (all, scheduler, worker): start, run and stop its loops."""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, cast

from trax.errors import DefinitionError, StoreError, format_value
from trax.events import Topic
from trax.records.worker import WorkerKind
from trax.remote.hand_over import HandOver, build_hand_over
from trax.remote.receiver import OpenSubmitters
from trax.server import loops
from trax.server.listen import Listener
from trax.store import workers
from trax.train.secrets import load_keyring
from trax.worker import loop as worker_loops
from trax.worker.app_context import ANY_WORK
from trax.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractAsyncContextManager

    from trax.server.loops import RetirementPlan
    from trax.store import Store
    from trax.worker.app_context import AppContext, WorkFilter
    from trax.worker.loop import Loop

logger = logging.getLogger(__name__)
LISTENER_SECONDS: Final = 0.5
"""How long the start of the loops waits for the listener to connect."""
RESTART_SECONDS: Final = 1.0
"""When a loop starts again that has ended although nobody stopped it."""


class ProcessRole(StrEnum):
    """The role of this process."""

    ALL = "all"
    SCHEDULER = "scheduler"
    WORKER = "worker"

    @classmethod
    def parse(cls, name: str) -> Self:
        if isinstance(cast("Any", name), str) and name in set(cls):
            return cls(name)
        raise DefinitionError(f"invalid role {format_value(name)}; expected one of {', '.join(cls)}")

    @property
    def schedules(self) -> bool:
        return self is not ProcessRole.WORKER

    @property
    def works(self) -> bool:
        return self is not ProcessRole.SCHEDULER


class ServerObserver:
    """Callbacks of `Trax.serve` for each step, for output; these do nothing."""

    def on_progress(self, done: int, total: int) -> None:
        """Called while manifests are written, from another thread."""

    def while_running(self, stop: asyncio.Event, /) -> AbstractAsyncContextManager[None]:  # noqa: ARG002
        """A block from the start until a stop is requested; setting `stop` requests it."""
        return nullcontext()

    def while_stopping(self, interrupt: asyncio.Event, /) -> AbstractAsyncContextManager[None]:  # noqa: ARG002
        """A block around the drain; `interrupt` is set when the runs are interrupted instead."""
        return nullcontext()


class ProcessDuties:
    """The loops of one process, from start to stop."""

    def __init__(
        self,
        context: AppContext,
        store: Store,
        role: ProcessRole,
        worker: Worker | None,
        submitters: OpenSubmitters,
        listener: Listener | None,
        *,
        scheduler_id: int | None = None,
        retiring: RetirementPlan | None = None,
    ) -> None:
        self._context = context
        self._store = store
        self._worker = worker
        self._scheduler_id = scheduler_id
        """The worker row of a process without a worker."""
        self._submitters = submitters
        self._undo: list[Callable[[], None]] = []
        self._stop_answering: list[Callable[[], None]] = []
        """Callbacks that stop this process from answering announcements."""
        self._intake_loops: list[Loop] = []
        """Loops that bring new work: they stop first."""
        self._result_loops: list[Loop] = []
        """Loops that active runs need until they have drained: results and heartbeat."""
        self._hand_overs: list[HandOver] = []
        self._dispatcher: loops.DispatchLoop | None = None
        if role.schedules:
            self._add_scheduler_loops(store)
        if retiring is not None:
            self._intake_loops.append(loops.retirer(context, store, retiring))
        if worker is not None:
            self._add_worker_loops(store, worker)
        self.event_loop = asyncio.get_running_loop()
        """The event loop of this process's loops and runs."""
        self._tasks: dict[Loop, asyncio.Task[None]] = {}
        self._listener = listener

    @classmethod
    async def start(
        cls,
        context: AppContext,
        store: Store,
        role: ProcessRole,
        *,
        slots: int | None = None,
        work_filter: WorkFilter = ANY_WORK,
        retiring: RetirementPlan | None = None,
    ) -> Self:
        """Register this process and start its loops; `retiring` is what the startup postponed."""
        load_keyring()  # an invalid key fails the start, not each run
        address = context.store.listen_address
        # It connects in its own thread, while this one registers.
        listener = Listener(address, store.announcer, timeouts=store.timeouts) if address else None
        try:
            return await cls._start(context, store, role, slots, work_filter, retiring, listener)
        except BaseException:
            if listener:
                listener.close()
            raise

    @classmethod
    async def _start(
        cls,
        context: AppContext,
        store: Store,
        role: ProcessRole,
        slots: int | None,
        work_filter: WorkFilter,
        retiring: RetirementPlan | None,
        listener: Listener | None,
    ) -> Self:
        is_needed = role is ProcessRole.WORKER or context.submitters.has_local_work(context.trains)
        worker = None
        if role.works and is_needed:
            await store.ask(work_filter.warn_about_missing_groups)
            worker = await Worker.start(
                context, store, slots, dispatches=role.schedules, work_filter=work_filter
            )
            worker.start_heartbeat()
        scheduler_id = None if worker else await _register_scheduler(context, store)
        try:
            opened = await OpenSubmitters.open(context.submitters if role.schedules else (), context)
        except BaseException:
            await _leave(context, store, worker, scheduler_id)
            raise
        arguments = (context, store, role, worker, opened, listener)
        duties = cls(*arguments, scheduler_id=scheduler_id, retiring=retiring)
        await duties._start_loops()
        return duties

    @property
    def loops(self) -> list[Loop]:
        """The loops of this process."""
        return [*self._loops]

    @property
    def active_trains(self) -> list[str]:
        return [train for worker in self._workers for train in worker.active_trains]

    async def stop(self, interrupt: asyncio.Event | None = None) -> None:
        """Start nothing new and drain active runs; `interrupt` returns them to the queue at once."""
        if self._listener is not None:
            await asyncio.to_thread(self._listener.close)
        try:
            await self._stop_loops(self._intake_loops)
            for stop_answering in self._stop_answering:
                stop_answering()
            await self._drain_all(interrupt or asyncio.Event())
        finally:
            await self._submitters.close()
            await self._stop_loops(self._loops)
            self._context.heartbeat.find_failing_loops = dict[str, str]
            for undo in self._undo:
                undo()
        await _leave(self._context, self._store, self._worker, self._scheduler_id)

    @property
    def _workers(self) -> list[Worker]:
        """The worker and the receivers: all that record runs here."""
        return [*([self._worker] if self._worker else []), *self._submitters.receivers]

    @property
    def _loops(self) -> list[Loop]:
        return [*self._intake_loops, *self._result_loops]

    def _add_scheduler_loops(self, store: Store) -> None:
        context = self._context
        self._dispatcher = loops.DispatchLoop(context, store, self._worker)
        manager, dispatcher = loops.manager(context, store), self._dispatcher.loop
        cleaner = loops.metadata_cleaner(context, store)
        self._intake_loops += [manager, dispatcher, cleaner, loops.dead_letter_cleaner(context, store)]
        self._intake_loops += [loops.session_reaper(context, store), loops.totals_updater(store)]
        self._intake_loops.append(loops.watchdog(context, store))
        self._wake_on(Topic.MANIFEST, manager)
        self._wake_on(Topic.WORK_QUEUE, dispatcher)
        self._wake_on(Topic.SETTING, manager, dispatcher, cleaner)
        for submitter in context.submitters:
            handing, hand_over = build_hand_over(context, store, submitter)
            self._hand_overs.append(handing)
            self._intake_loops.append(hand_over)
            self._wake_on(Topic.PENDING, hand_over)
            self._wake_on(Topic.SETTING, hand_over)
        answer = store.announcer.handle_locally
        self._stop_answering += [
            answer(Topic.MANIFEST, lambda: context.settings.manifest_manager_enabled),
            answer(Topic.WORK_QUEUE, lambda: context.settings.job_dispatcher_enabled),
        ]

    def _add_worker_loops(self, store: Store, worker: Worker) -> None:
        context = self._context
        heartbeat = worker_loops.heartbeat(context, worker)
        intake = self._dispatcher.loop if self._dispatcher else worker_loops.claimer(context, worker)
        finisher = worker_loops.finisher(context, store, worker)
        if self._dispatcher is not None:
            finisher = worker_loops.finisher(
                context,
                store,
                worker,
                leave_to_dispatcher=self._dispatcher.takes_results,
                wake_dispatcher=self._dispatcher.on_runs_ended,
            )
        if self._dispatcher is None:
            self._intake_loops.append(intake)
        self._result_loops += [finisher, heartbeat]
        self._wake_on(Topic.PENDING, intake)
        if self._dispatcher is None:
            self._wake_on(Topic.ENDED, finisher)
        else:
            self._wake_for_results(self._dispatcher, finisher)
        self._wake_on(Topic.CANCEL, heartbeat)
        self._wake_on(Topic.SETTING, intake, heartbeat)

    def _wake_for_results(self, dispatcher: loops.DispatchLoop, finisher: Loop) -> None:
        """Let the dispatcher write results, or else the finisher; the dispatcher fills free slots, too."""

        def on_ended() -> None:
            if not dispatcher.takes_results():
                finisher.wake()
            dispatcher.on_slots_free()

        self._undo.append(self._context.events.listen(Topic.ENDED, on_ended))
        self._undo.append(self._context.events.listen(Topic.SLOTS_FREE, dispatcher.on_slots_free))

    def _wake_on(self, topic: Topic, *loops: Loop) -> None:
        self._undo += [self._context.events.listen(topic, loop.wake) for loop in loops]

    async def _start_loops(self) -> None:
        """Start the loops, when the listener is connected: connecting wakes all, which would repeat turns."""
        if self._listener is not None:
            await asyncio.to_thread(self._listener.wait_for_first_try, LISTENER_SECONDS)
        repair = loops.RowRepair(self._store).repair_after
        for loop in self._loops:
            loop.repair = repair
            self._start_loop(loop)
        self._context.heartbeat.find_failing_loops = self._find_failing_loops

    def _start_loop(self, loop: Loop) -> None:
        if not loop.is_stopping:
            task = self._tasks[loop] = asyncio.create_task(loop.run(), name=f"trax {loop.name}")
            task.add_done_callback(partial(self._restart_if_needed, loop))

    def _restart_if_needed(self, loop: Loop, task: asyncio.Task[None]) -> None:
        """Start a loop again that ended although nobody stopped it: a job may cancel every task it finds."""
        if not loop.is_stopping:
            error = "its task was cancelled" if task.cancelled() else repr(task.exception())
            text = "loop %s ended unexpectedly (%s); it starts again in %g s"
            logger.error(text, loop.name, error, RESTART_SECONDS, extra={"loop": loop.name})
            task.get_loop().call_later(RESTART_SECONDS, self._start_loop, loop)

    def _find_failing_loops(self) -> dict[str, str]:
        return {loop.name: loop.failure for loop in self._loops if loop.failure is not None}

    async def _stop_loops(self, loops: Iterable[Loop]) -> None:
        loops = list(loops)
        for loop in loops:
            loop.stop()
        await asyncio.gather(*(self._tasks[loop] for loop in loops), return_exceptions=True)

    async def _drain_all(self, interrupt: asyncio.Event) -> None:
        """Drain calls to submitters first: they may bring runs to a receiver. One timeout for all."""
        until = asyncio.get_running_loop().time() + self._context.settings.shutdown_timeout.total_seconds()
        working = [self._worker] if self._worker else []
        await asyncio.gather(*(self._drain(one, interrupt, until) for one in (*self._hand_overs, *working)))
        await asyncio.gather(*(self._drain(one, interrupt, until) for one in self._submitters.receivers))

    async def _drain(self, worker: Worker | HandOver, interrupt: asyncio.Event, until: float) -> None:
        seconds = max(0.0, until - asyncio.get_running_loop().time())
        draining = asyncio.create_task(worker.drain(seconds))
        interrupted = asyncio.create_task(interrupt.wait())
        try:
            await asyncio.wait({draining, interrupted}, return_when=asyncio.FIRST_COMPLETED)
            if not draining.done():
                await worker.drain(0)
        finally:
            interrupted.cancel()
            await draining


async def _register_scheduler(context: AppContext, store: Store) -> int:
    """Insert the row of a process without a worker: it needs a heartbeat to declare workers lost."""
    row = {
        "kind": WorkerKind.SCHEDULER,
        "dispatches": True,
        "routes": context.routes_json,
        "plain_fields": context.plain_fields_json,
    }
    scheduler_id = await store.call(context.heartbeat.register, store, row)
    context.heartbeat.add(scheduler_id)
    return scheduler_id


async def _leave(context: AppContext, store: Store, worker: Worker | None, scheduler_id: int | None) -> None:
    """Remove the worker row. Without a database it expires when heartbeats are missing."""
    row_id = scheduler_id if worker is None else worker.id
    try:
        if worker is not None:
            await store.call(worker_loops.announce_capacity)
            await worker.unregister()
        elif scheduler_id is not None:
            context.heartbeat.remove(scheduler_id)
            await store.call(workers.remove, scheduler_id)
    except StoreError as error:
        text = "worker %s could not remove its row: %s"
        logger.warning(text, row_id, error, extra={"worker": row_id})
