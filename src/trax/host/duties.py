"""The duties of a server, each a loop: what one turn does, whom it wakes, and when it wants the next.

manager ──queued──► dispatcher ──admitted──► claimer ──ended──► finisher ──► the three before it

Where dispatcher and worker share a process there is no claimer: the worker comes along to the gate.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial
from time import time_ns
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trax.admin.cycle import manage, repair_silent_manifests
from trax.admin.dead_letter_cleanup import clean_dead_letters
from trax.admin.job_dispatcher import dispatch
from trax.admin.manifest_manager import Turn
from trax.admin.metadata_cleanup import Disposable, clean_metadata
from trax.admin.parking import Fleets
from trax.admin.seeding import retire_undeclared
from trax.events import Topic
from trax.host.loop import Loop
from trax.records.worker import Watch
from trax.store import claim, manifest_groups, manifest_looks, tallies, work_queue
from trax.store.announcing import announce
from trax.store.dialect import take_leader_lock
from trax.store.suspended import end_suspended

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection
    from datetime import datetime

    from trax.admin.job_dispatcher import Dispatched
    from trax.admin.manifest_manager import Managed
    from trax.admin.metadata_cleanup import Cleaned
    from trax.admin.seeding import Retired
    from trax.host.parts import Parts
    from trax.host.worker import Worker
    from trax.schedule.declaration import Timetable
    from trax.store import Connection, Store
    from trax.store.claim import Taker

logger = logging.getLogger(__name__)

CLEAN_UP_SECONDS: Final = 3600
RETIRE_SECONDS: Final = 60
TIDY_AFTER_SECONDS: Final = 2
"""What only tidies up leaves the first seconds of a server to the jobs that wait for it."""
ADD_UP_SECONDS: Final = 20
WATCH_SECONDS: Final = 300
LEFT_BY_SCHEDULERS: Final = timedelta(minutes=3)
"""What has ended and is not added up for so long: no scheduler runs."""
OTHERS_SECONDS: Final = 0.05
"""When to look again after another server was managing: it may have read before something changed."""


def manager(parts: Parts, store: Store) -> Loop:
    turns, fleets = 0, Fleets(parts.own_routes)

    async def turn() -> float | None:
        nonlocal turns
        turns += 1
        turn = Turn(turns, parts.presence.watch or Watch.never(), fleets)
        managed = await store.call(manage_now, store, parts, turn)
        if not parts.settings.manifest_manager_enabled:
            return None
        if managed is not None and managed.stale_priorities:
            await store.call(_apply_priorities, store)
        if managed is not None and managed.more:
            return 0
        wanted = await store.ask(_seconds_to_next_look, store)
        return wanted if managed is not None or wanted is None else max(wanted, OTHERS_SECONDS)

    return Loop("manifest_manager", turn, poll_seconds=lambda: _seconds(parts, "manifest_manager_polling"))


class Dispatching:
    """The dispatcher's loop. It remembers whether anybody was refused: only then does a freed slot matter."""

    def __init__(self, parts: Parts, store: Store, worker: Worker | None = None) -> None:
        self._parts = parts
        self._store = store
        self._worker = worker
        self._frees = 0
        self._has_refused = False
        self._leaves_some = False
        self._awaits_slots = False
        self._fleets = Fleets(parts.own_routes)
        self.loop = Loop(
            "job_dispatcher", self._turn, poll_seconds=lambda: _seconds(parts, "job_dispatcher_polling")
        )

    def free(self) -> None:
        """Runs have ended, and that is committed."""
        self._frees += 1
        if self._has_refused:
            self.loop.wake()

    def vacate(self) -> None:
        """The worker can use more runs, though the places of its last ones may not be free yet."""
        if self._awaits_slots:
            self.loop.wake()

    async def _turn(self) -> float | None:
        if self._worker is not None and self._worker.is_stocked:
            self._awaits_slots = True
            return None
        if not self.loop.is_asked:
            wanted = await self._store.ask(_seconds_to_next_entry, self._store, self._worker is not None)
            if wanted != 0:
                return wanted  # nobody waits: leave the gate to others
        frees = self._frees
        dispatched = await (self._worker.visit_gate(self._visit) if self._worker else self._visit())
        self._has_refused, self._awaits_slots = dispatched.refused, dispatched.awaits_slots
        await self._tell_others(dispatched)
        is_outdated = dispatched.refused and frees != self._frees  # it may have counted before the end
        if dispatched.more or is_outdated:
            return 0
        return dispatched.next_in

    async def _tell_others(self, dispatched: Dispatched) -> None:
        """Let other servers look for themselves, once: they may have a slot, or be the next to free a place.

        What is queued in this process is told to nobody else, since it comes to the gate itself.
        """
        is_news = dispatched.leaves_some and not self._leaves_some
        self._leaves_some = dispatched.leaves_some
        if is_news:
            await self._store.call(self._store.announcer.pass_on, Topic.WORK_QUEUE)

    async def _visit(self, taker: Taker | None = None) -> Dispatched:
        return await self._store.call(dispatch_now, self._store, self._parts, taker, self._fleets)


def claimer(parts: Parts, worker: Worker) -> Loop:
    async def turn() -> None:
        await worker.claim()

    return Loop("claimer", turn, poll_seconds=lambda: _seconds(parts, "local_polling"))


def finisher(parts: Parts, store: Store, worker: Worker, dispatching: Dispatching | None) -> Loop:
    async def turn() -> None:
        if not await worker.flush():
            return
        parts.events.emit(Topic.FINISHED)
        if dispatching is not None and not dispatching.loop.is_stopping:
            dispatching.free()
        else:
            parts.events.emit(Topic.PENDING)
            await store.call(wake_the_refused)

    return Loop("finisher", turn, poll_seconds=lambda: _seconds(parts, "local_polling"))


def heartbeat(parts: Parts, worker: Worker) -> Loop:
    poll = partial(_seconds, parts, "heartbeat")
    return Loop("heartbeat", worker.beat, poll_seconds=poll, first_after=poll())  # its row is new


def rescuer(parts: Parts, store: Store) -> Loop:
    """Frees what a suspended process holds: it takes no lock, so it never waits for one itself."""

    async def turn() -> None:
        ended = await store.ask(end_suspended, idle_for=parts.settings.worker_lost_after)
        if ended:
            text = "%s sessions stood still inside a transaction and were ended"
            logger.warning(text, ended, extra={"sessions": ended})

    return _tidying("rescuer", turn, lambda: _seconds(parts, "heartbeat"))


def watchdog(parts: Parts, store: Store) -> Loop:
    """Finds manifests that would never be looked at again: right at the start, and every few minutes."""

    async def turn() -> None:
        await store.call(repair_now, store, parts)

    return Loop("watchdog", turn, poll_seconds=lambda: WATCH_SECONDS)


class Retiring(NamedTuple):
    """What a server declares, and what it found at its start that it does not and others may still want."""

    timetable: Timetable
    postponed: Collection[str]


def retirer(parts: Parts, store: Store, retiring: Retiring) -> Loop:
    """Retires what this code no longer declares, once the servers that may still want it have stopped."""
    waiting = set(retiring.postponed)

    async def turn() -> None:
        if waiting:
            found = await store.call(retire_now, store, parts, Retiring(retiring.timetable, waiting))
            waiting.intersection_update(found.postponed)
            if found.retired:
                text = "retired %s manifests that no server declares any more: %s"
                logger.info(text, len(found.retired), ", ".join(sorted(found.retired)))

    return _tidying("retirer", turn, lambda: RETIRE_SECONDS)


def retire_now(connection: Connection, store: Store, parts: Parts, retiring: Retiring) -> Retired:
    take_leader_lock(connection)
    timetable, only = retiring
    now = store.now(connection)
    return retire_undeclared(connection, timetable, parts.settings, app=parts.name, now=now, only=only)


def dead_letter_cleaner(parts: Parts, store: Store) -> Loop:
    async def turn() -> None:
        await store.call(clean_dead_letters, store, parts.settings)

    return _tidying("dead_letter_cleanup", turn, lambda: CLEAN_UP_SECONDS)


def metadata_cleaner(parts: Parts, store: Store) -> Loop:
    async def turn() -> float | None:
        cleaned = await store.call(clean_metadata_now, store, parts)
        return 0 if cleaned.more else None

    return _tidying("metadata_cleanup", turn, lambda: _seconds(parts, "metadata_cleanup"))


def tallier(store: Store, *, left_for: timedelta = tallies.OVER_AFTER) -> Loop:
    async def turn() -> float | None:
        return 0 if await add_up(store, left_for=left_for) else None

    return _tidying("tally", turn, lambda: ADD_UP_SECONDS)


async def add_up(store: Store, *, left_for: timedelta = tallies.OVER_AFTER) -> bool:
    """Add up the next of what has ended, an hour of it at most; True when there is more.

    It is read first, which may take a moment, and written then, which does not: nobody waits for the reading.
    """
    step = await store.ask(_next_tally, store, left_for)
    return step is not None and await store.call(tallies.add, step) and step.more


def _tidying(
    name: str, turn: Callable[[], Awaitable[float | None]], poll_seconds: Callable[[], float]
) -> Loop:
    return Loop(name, turn, poll_seconds=poll_seconds, first_after=TIDY_AFTER_SECONDS)


def _seconds(parts: Parts, which: str) -> float:
    """An interval of this moment: an operator may edit it while the loop runs."""
    interval: Any = getattr(parts.settings, f"{which}_interval")
    return interval.total_seconds()


def manage_now(connection: Connection, store: Store, parts: Parts, turn: Turn) -> Managed | None:
    """One cycle with the settings of this moment, read in its own transaction; None when switched off."""
    began_ns = time_ns()
    managed = manage(connection, store, parts.settings, turn, accept=parts.live.accept)
    if parts.telemetry.now is not None:
        parts.telemetry.now.managed(began_ns, managed, connection)
    if managed is not None:
        parts.odometer.dead_letters += len(managed.dead_letters)
        parts.odometer.lost_workers += managed.lost_workers
        _warn_of_deferred(parts, managed)
    if managed is not None and managed.dead_letters:
        ids = managed.dead_letters
        logger.warning("manifests gave up: dead letters %s await a person", ids, extra={"dead_letters": ids})
    if managed is not None and managed.reaped:
        text = "runs %s have failed from outside: their workers fell silent, or nobody took them up"
        logger.warning(text, managed.reaped, extra={"lost_workers": managed.lost_workers})
        announce(connection, Topic.WORK_QUEUE)  # the places of those runs are free
    return managed


def repair_now(connection: Connection, store: Store, parts: Parts) -> list[str]:
    """Have silent manifests looked at, and count them; returns which."""
    repaired = repair_silent_manifests(connection, parts.settings, now=store.now(connection))
    parts.odometer.repaired_manifests += len(repaired)
    return repaired


def _apply_priorities(connection: Connection, store: Store) -> None:
    manifest_groups.apply_priorities(connection, now=store.now(connection))


def _warn_of_deferred(parts: Parts, managed: Managed) -> None:
    """Once for each manifest and reason: it is looked at every few minutes."""
    for name, reason in managed.deferred:
        if parts.odometer.defer(name, reason):
            text = "manifest %s is left to other servers, this one cannot evaluate its schedule: %s"
            logger.warning(text, name, reason, extra={"manifest": name})


def dispatch_now(
    connection: Connection,
    store: Store,
    parts: Parts,
    taker: Taker | None = None,
    fleets: Fleets | None = None,
) -> Dispatched:
    """One cycle; it reads the settings of this moment along with everything else."""
    began_ns, accept = time_ns(), parts.live.accept
    dispatched = dispatch(
        connection, store, parts.settings, parts.routing, accept=accept, taker=taker, fleets=fleets
    )
    parts.odometer.admitted += len(dispatched.metadata_ids)
    if parts.telemetry.now is not None:
        parts.telemetry.now.dispatched(began_ns, dispatched)
    return dispatched


def clean_metadata_now(connection: Connection, store: Store, parts: Parts) -> Cleaned:
    settings = parts.live.refresh(connection)
    names = parts.trains.synonyms(settings.metadata_cleanup_trains)
    return clean_metadata(connection, store, settings, Disposable(names))


def wake_the_refused(connection: Connection) -> None:
    """A slot is free again, and whoever was refused one is in another process.

    This is asked after the finish is committed: an entry that is written later than this question finds the
    slot free by itself.
    """
    if work_queue.is_any_ready(connection):
        announce(connection, Topic.WORK_QUEUE)


def _next_tally(connection: Connection, store: Store, left_for: timedelta) -> tallies.Step | None:
    return tallies.next_step(connection, now=store.now(connection), left_for=left_for)


def _seconds_to_next_look(connection: Connection, store: Store) -> float | None:
    return _seconds_until(manifest_looks.next_look(connection), store, connection)


def _seconds_to_next_moment(connection: Connection, store: Store) -> float | None:
    return _seconds_until(work_queue.next_moment(connection), store, connection)


def _seconds_to_next_entry(connection: Connection, store: Store, works: bool) -> float | None:  # noqa: FBT001
    """0 when one waits now, else how long until the first delayed one does."""
    if work_queue.is_any_waiting(connection) or (works and claim.is_any_pending(connection)):
        return 0
    return _seconds_to_next_moment(connection, store)


def _seconds_until(moment: datetime | None, store: Store, connection: Connection) -> float | None:
    return None if moment is None else max(0.0, (moment - store.now(connection)).total_seconds())
