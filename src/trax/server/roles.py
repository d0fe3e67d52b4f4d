"""Roles of a process (all, scheduler, worker): start, run and stop its loops."""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, cast

from trax.errors import DefinitionError, StoreError, format_value
from trax.remote.hand_over import HandOver
from trax.remote.receiver import OpenSubmitters
from trax.server.duties import RowRepair, build_duties
from trax.server.listen import Listener
from trax.train.secrets import load_keyring
from trax.worker.app_context import ANY_WORK
from trax.worker.duties import HANDLED_BY, DutyKind, announce_capacity, is_enabled
from trax.worker.heartbeat import SchedulerRow
from trax.worker.loop import DutyLoops
from trax.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from trax.server.duties import RetirementPlan
    from trax.store import Store
    from trax.worker.app_context import AppContext, WorkFilter
    from trax.worker.loop import Loop

logger = logging.getLogger(__name__)
LISTENER_SECONDS: Final = 0.5
"""How long the start of the loops waits for the listener to connect."""


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
    """The duties of one process as loops, from start to stop."""

    def __init__(
        self,
        context: AppContext,
        store: Store,
        role: ProcessRole,
        row: Worker | SchedulerRow,
        submitters: OpenSubmitters,
        listener: Listener | None,
        *,
        retiring: RetirementPlan | None = None,
    ) -> None:
        self._context = context
        self._store = store
        self._row = row
        self._worker = row if isinstance(row, Worker) else None
        self._submitters = submitters
        self._listener = listener
        self.event_loop = asyncio.get_running_loop()
        """The event loop of this process's loops and runs."""
        self._stop_answering: list[Callable[[], None]] = []
        """Callbacks that stop this process from answering announcements."""
        self._loops = DutyLoops(context.events, repair=RowRepair(store).repair_after)
        turns = self._loops.turns_of
        own = context.submitters if role.schedules else ()
        self._hand_overs = [HandOver(context, store, submitter, turns) for submitter in own]
        self._loops.add(
            build_duties(
                context,
                store,
                turns,
                schedules=role.schedules,
                row=row,
                hand_overs=self._hand_overs,
                retiring=retiring,
            )
        )
        if role.schedules:
            answer = store.announcer.handle_locally
            for topic, duty in HANDLED_BY.items():
                self._stop_answering.append(answer(topic, partial(is_enabled, context, duty)))

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
        row = None
        try:
            row = await _register(context, store, role, slots, work_filter)
            opened = await OpenSubmitters.open(context.submitters if role.schedules else (), context)
        except BaseException:
            if row is not None:
                await _leave(store, row)
            if listener is not None:
                listener.close()
            raise
        duties = cls(context, store, role, row, opened, listener, retiring=retiring)
        await duties._start_loops()
        return duties

    @property
    def loops(self) -> list[Loop]:
        """The loops of this process."""
        return self._loops.loops

    @property
    def active_trains(self) -> list[str]:
        return [train for worker in self._workers for train in worker.active_trains]

    async def stop(self, interrupt: asyncio.Event | None = None) -> None:
        """Start nothing new and drain active runs; `interrupt` returns them to the queue at once."""
        if self._listener is not None:
            await asyncio.to_thread(self._listener.close)
        try:
            await self._loops.stop(DutyKind.INTAKE, DutyKind.HOUSEKEEPING)
            for stop_answering in self._stop_answering:
                stop_answering()
            await self._drain_all(interrupt or asyncio.Event())
        finally:
            await self._submitters.close()
            await self._loops.stop()
            self._context.heartbeat.find_failing_loops = dict[str, str]
        await _leave(self._store, self._row)

    @property
    def _workers(self) -> list[Worker]:
        """The worker and the receivers: all that record runs here."""
        return [*([self._worker] if self._worker else []), *self._submitters.receivers]

    async def _start_loops(self) -> None:
        """Start the loops, when the listener is connected: connecting wakes all, which would repeat turns."""
        if self._listener is not None:
            await asyncio.to_thread(self._listener.wait_for_first_try, LISTENER_SECONDS)
        self._loops.start()
        self._context.heartbeat.find_failing_loops = self._loops.load_failures

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


async def _register(
    context: AppContext, store: Store, role: ProcessRole, slots: int | None, work_filter: WorkFilter
) -> Worker | SchedulerRow:
    """Insert the row of this process. Without local work it needs one to declare workers lost."""
    if role.works and (role is ProcessRole.WORKER or context.submitters.has_local_work(context.trains)):
        await store.ask(work_filter.warn_about_missing_groups)
        row = await Worker.start(context, store, slots, dispatches=role.schedules, work_filter=work_filter)
    else:
        row = await SchedulerRow(context, store).register()
    row.start_heartbeat()
    return row


async def _leave(store: Store, row: Worker | SchedulerRow) -> None:
    """Remove the worker row. Without a database it expires when heartbeats are missing."""
    try:
        if isinstance(row, Worker):
            await store.call(announce_capacity)
        await row.unregister()
    except StoreError as error:
        text = "worker %s could not remove its row: %s"
        logger.warning(text, row.id, error, extra={"worker": row.id})
