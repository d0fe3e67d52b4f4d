"""What a process does while it runs: all duties, those of a scheduler, or those of a worker."""

from __future__ import annotations

import asyncio
import logging
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from trax.errors import DefinitionError, StoreError
from trax.events import Topic
from trax.host import duties
from trax.host.handing_over import HandingOver, handing_over
from trax.host.listen import Ear
from trax.host.open_submitters import OpenSubmitters
from trax.host.takes import ANYTHING
from trax.host.worker import Worker
from trax.records.worker import WorkerKind
from trax.store import workers
from trax.train.keyring import load_keyring

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trax.host.duties import Retiring
    from trax.host.loop import Loop
    from trax.host.parts import Parts
    from trax.host.takes import Takes
    from trax.store import Store

logger = logging.getLogger(__name__)


class Role(StrEnum):
    """What this process is for."""

    ALL = "all"
    SCHEDULER = "scheduler"
    WORKER = "worker"

    @classmethod
    def named(cls, name: str) -> Self:
        try:
            return cls(name)
        except ValueError:
            raise DefinitionError(f"there is no role {name!r}; the roles are {', '.join(cls)}") from None

    @property
    def schedules(self) -> bool:
        return self is not Role.WORKER

    @property
    def works(self) -> bool:
        return self is not Role.SCHEDULER


class Running:
    """The duties of one process, from start to stop."""

    def __init__(
        self,
        parts: Parts,
        store: Store,
        role: Role,
        worker: Worker | None,
        opened: OpenSubmitters,
        listen_address: str | None,
        *,
        scheduler_id: int | None = None,
        retiring: Retiring | None = None,
    ) -> None:
        self._parts = parts
        self._store = store
        self._worker = worker
        self._scheduler_id = scheduler_id
        """The row of a process that has no worker."""
        self._opened = opened
        self._undo: list[Callable[[], None]] = []
        self._answers: list[Callable[[], None]] = []
        """How to stop answering for what others would do otherwise."""
        self._before: list[Loop] = []
        """Those that bring new work: they stop first."""
        self._after: list[Loop] = []
        """Those that what runs still needs: it is beaten for and written down while it drains."""
        self._handing: list[HandingOver] = []
        self._dispatching: duties.Dispatching | None = None
        if role.schedules:
            self._schedule(store)
        if retiring is not None:
            self._before.append(duties.retirer(parts, store, retiring))
        if worker is not None:
            self._work(store, worker)
        self.home = asyncio.get_running_loop()
        """Where the duties of this process live, and the runs of its worker."""
        self._tasks = {
            loop: asyncio.create_task(loop.run(), name=f"trax {loop.name}") for loop in self._loops
        }
        self._ear = None
        if listen_address is not None:
            self._ear = Ear(listen_address, store.announcer, timeouts=store.timeouts)

    @classmethod
    async def started(
        cls,
        parts: Parts,
        store: Store,
        role: Role,
        *,
        slots: int | None = None,
        takes: Takes = ANYTHING,
        retiring: Retiring | None = None,
    ) -> Self:
        """Register this process and begin its duties; `retiring` is left to it by its start."""
        load_keyring()  # a key that cannot be one is said now, and not run by run
        listen_address = parts.store.listen_address
        is_needed = role is Role.WORKER or parts.submitters.leave_work_here(parts.trains)
        worker = None
        if role.works and is_needed:
            await store.ask(takes.warn_of_absent)
            worker = await Worker.started(parts, store, slots, dispatches=role.schedules, takes=takes)
            worker.stay()
        scheduler_id = None if worker else await _register_scheduler(parts, store)
        try:
            opened = await OpenSubmitters.of(parts.submitters if role.schedules else (), parts)
        except BaseException:
            await _leave(parts, store, worker, scheduler_id)
            raise
        given = (parts, store, role, worker, opened, listen_address)
        return cls(*given, scheduler_id=scheduler_id, retiring=retiring)

    @property
    def loops(self) -> list[Loop]:
        """The duties of this process."""
        return [*self._loops]

    @property
    def under_way(self) -> list[str]:
        return [train for worker in self._workers for train in worker.under_way]

    async def stop(self, hurry: asyncio.Event | None = None) -> None:
        """Begin nothing new and let what is under way end; `hurry` puts it back to the queue at once."""
        if self._ear is not None:
            await asyncio.to_thread(self._ear.close)
        try:
            await self._stopped(self._before)
            for forget in self._answers:
                forget()
            await self._drained(hurry or asyncio.Event())
        finally:
            await self._opened.close()
            await self._stopped(self._loops)
            for undo in self._undo:
                undo()
        await _leave(self._parts, self._store, self._worker, self._scheduler_id)

    @property
    def _workers(self) -> list[Worker]:
        """Whoever keeps the records of runs here, wherever they are executed."""
        return [*([self._worker] if self._worker else []), *self._opened.receivers]

    @property
    def _loops(self) -> list[Loop]:
        return [*self._before, *self._after]

    def _schedule(self, store: Store) -> None:
        parts = self._parts
        self._dispatching = duties.Dispatching(parts, store, self._worker)
        manager, dispatcher = duties.manager(parts, store), self._dispatching.loop
        cleaner = duties.metadata_cleaner(parts, store)
        self._before += [manager, dispatcher, cleaner, duties.dead_letter_cleaner(parts, store)]
        self._before += [duties.rescuer(parts, store), duties.tallier(store)]
        self._before.append(duties.watchdog(parts, store))
        self._wake(Topic.MANIFEST, manager)
        self._wake(Topic.WORK_QUEUE, dispatcher)
        self._wake(Topic.SETTING, manager, dispatcher, cleaner)
        for submitter in parts.submitters:
            handing, hand_over = handing_over(parts, store, submitter)
            self._handing.append(handing)
            self._before.append(hand_over)
            self._wake(Topic.PENDING, hand_over)
            self._wake(Topic.SETTING, hand_over)
        answer = store.announcer.answer
        self._answers += [
            answer(Topic.MANIFEST, lambda: parts.settings.manifest_manager_enabled),
            answer(Topic.WORK_QUEUE, lambda: parts.settings.job_dispatcher_enabled),
        ]

    def _work(self, store: Store, worker: Worker) -> None:
        parts = self._parts
        heartbeat = duties.heartbeat(parts, worker)
        intake = self._dispatching.loop if self._dispatching else duties.claimer(parts, worker)
        finisher = duties.finisher(parts, store, worker, self._dispatching)
        if self._dispatching is None:
            self._before.append(intake)
        self._after += [finisher, heartbeat]
        self._wake(Topic.PENDING, intake)
        self._wake(Topic.ENDED, finisher)
        if self._dispatching is not None:
            vacate = self._dispatching.vacate
            self._undo += [parts.events.listen(topic, vacate) for topic in (Topic.ENDED, Topic.VACANT)]
        self._wake(Topic.CANCEL, heartbeat)
        self._wake(Topic.SETTING, intake, heartbeat)

    def _wake(self, topic: Topic, *loops: Loop) -> None:
        self._undo += [self._parts.events.listen(topic, loop.wake) for loop in loops]

    async def _stopped(self, loops: Iterable[Loop]) -> None:
        loops = list(loops)
        for loop in loops:
            loop.stop()
        await asyncio.gather(*(self._tasks[loop] for loop in loops))

    async def _drained(self, hurry: asyncio.Event) -> None:
        """Let calls under way end first: they may still bring runs to a receiver. All within one patience."""
        until = asyncio.get_running_loop().time() + self._parts.settings.shutdown_timeout.total_seconds()
        working = [self._worker] if self._worker else []
        await asyncio.gather(*(self._drain(one, hurry, until) for one in (*self._handing, *working)))
        await asyncio.gather(*(self._drain(one, hurry, until) for one in self._opened.receivers))

    async def _drain(self, under_way: Worker | HandingOver, hurry: asyncio.Event, until: float) -> None:
        patience = max(0.0, until - asyncio.get_running_loop().time())
        draining = asyncio.create_task(under_way.drain(patience))
        hurrying = asyncio.create_task(hurry.wait())
        try:
            await asyncio.wait({draining, hurrying}, return_when=asyncio.FIRST_COMPLETED)
            if not draining.done():
                await under_way.drain(0)
        finally:
            hurrying.cancel()
            await draining


async def _register_scheduler(parts: Parts, store: Store) -> int:
    """The row of a process without a worker: it judges who is silent, so it must beat itself."""
    row = {"kind": WorkerKind.SCHEDULER, "dispatches": True, "routes": parts.published_routes}
    scheduler_id = await store.call(parts.presence.register, store, row)
    parts.presence.join(scheduler_id)
    return scheduler_id


async def _leave(parts: Parts, store: Store, worker: Worker | None, scheduler_id: int | None) -> None:
    """Without a database nobody can be told; the row is then found silent, and forgotten."""
    row_id = scheduler_id if worker is None else worker.id
    try:
        if worker is not None:
            await store.call(duties.wake_the_refused)
            await worker.leave()
        elif scheduler_id is not None:
            parts.presence.leave(scheduler_id)
            await store.call(workers.remove, scheduler_id)
    except StoreError as error:
        text = "worker %s could not remove its row: %s"
        logger.warning(text, row_id, error, extra={"worker": row_id})
