"""The duties of a server: what one turn does, and when the next is due. Their drivers call the turns."""

from __future__ import annotations

import logging
import math
from datetime import timedelta
from functools import partial
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trax.engine.dead_letters import clean_dead_letters
from trax.engine.manifest_manager import ManagerInput, run_manager_cycle
from trax.engine.metadata_cleanup import DisposableTrains, clean_metadata
from trax.engine.rescue import repair_silent_manifests
from trax.engine.routing import FleetCache
from trax.engine.seed import retire_undeclared
from trax.events import Topic
from trax.remote.hand_over import hand_over_duty
from trax.store import groups, stats
from trax.store.announce import announce
from trax.store.dialect import take_leader_lock
from trax.store.faults import Fault, fault_of
from trax.store.manifests import manifest_due
from trax.store.repair import repair_rows
from trax.store.runs.rescue import end_suspended
from trax.worker import duties as worker_duties
from trax.worker.dispatcher import Dispatcher, seconds_until
from trax.worker.duties import Duty, DutyKind, Turn, interval_seconds, is_enabled
from trax.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping
    from datetime import datetime

    from trax.engine.manifest_manager import ManagerResult
    from trax.engine.metadata_cleanup import MetadataCleanupResult
    from trax.engine.seed import RetirementResult
    from trax.remote.hand_over import HandOver
    from trax.schedule.declaration import Timetable
    from trax.store import Connection, Store
    from trax.worker.app_context import AppContext
    from trax.worker.dispatcher import Turns
    from trax.worker.heartbeat import SchedulerRow

logger = logging.getLogger(__name__)
CLEAN_UP_SECONDS: Final = 3600
RETIRE_SECONDS: Final = 60
MANAGER_DELAY_SECONDS: Final = 0.05
"""The manager starts this late, so that the dispatcher begins with jobs that are already queued."""
HOUSEKEEPING_DELAY_SECONDS: Final = 2
"""Housekeeping starts this late, so that queued jobs come first when a server starts."""
TOTALS_SECONDS: Final = 20
WATCHDOG_SECONDS: Final = 300
REPAIR_SECONDS: Final = 60
"""How often all rows are checked while turns fail, at most."""
NO_SCHEDULER_AFTER: Final = timedelta(minutes=3)
"""If ended runs are not in the totals after this long, no scheduler is running."""
LOST_RACE_SECONDS: Final = 0.05
"""When to try again after another server held the lock: it may have read before a change."""


def build_duties(
    context: AppContext,
    store: Store,
    turns: Callable[[str], Turns],
    *,
    schedules: bool = True,
    row: Worker | SchedulerRow | None = None,
    hand_overs: Collection[HandOver] = (),
    retiring: RetirementPlan | None = None,
    fleets: FleetCache | None = None,
) -> list[Duty]:
    """The duties of a process: those of a scheduler, and those of its row, which may be that of a worker.

    `turns` are the turns of a duty as its driver calls them. Manager and dispatcher share `fleets` if given.
    """
    duties: list[Duty] = []
    worker, dispatcher = row if isinstance(row, Worker) else None, None
    if schedules:
        dispatcher = Dispatcher(context, store, turns("job_dispatcher"), worker, fleets=fleets)
        duties = [
            manager(context, store, fleets),
            job_dispatcher(context, dispatcher, claims=worker is not None),
            metadata_cleaner(context, store),
            dead_letter_cleaner(context, store),
            session_reaper(context, store),
            totals_updater(store),
            watchdog(context, store),
        ]
    duties += [hand_over_duty(context, hand_over) for hand_over in hand_overs]
    if retiring is not None:
        duties.append(retirer(context, store, retiring))
    if worker is not None:
        duties += [worker_duties.claimer(context, worker)] if dispatcher is None else []
        duties.append(worker_duties.finisher(context, store, worker, dispatcher))
    if row is not None:
        duties.append(worker_duties.heartbeat(context, row))
    return duties


def manager(context: AppContext, store: Store, fleets: FleetCache | None = None) -> Duty:
    turns, fleets = 0, fleets or FleetCache(context.own_routes)

    async def turn() -> Turn:
        nonlocal turns
        turn, turns = ManagerInput(turns, context.heartbeat.streak, fleets), turns + 1
        managed = await store.call(manage_now, store, context, turn)
        if not is_enabled(context, "manifest_manager"):
            return Turn(managed)
        if managed is not None and managed.stale_priorities:
            await store.call(_apply_priorities, store)
        if managed is not None and managed.run_again:
            return Turn(managed, 0)
        seconds = await store.ask(seconds_to_next_due, store)
        if managed is None and seconds is not None:
            seconds = max(seconds, LOST_RACE_SECONDS)
        return Turn(managed, seconds)

    return Duty(
        name="manifest_manager",
        turn=turn,
        poll_seconds=partial(interval_seconds, context, "manifest_manager_polling"),
        first_after=MANAGER_DELAY_SECONDS,
    )


def job_dispatcher(context: AppContext, dispatcher: Dispatcher, *, claims: bool = False) -> Duty:
    """`claims`: the process has a worker, for which the dispatcher claims."""
    return Duty(
        name="job_dispatcher",
        turn=dispatcher.turn,
        poll_seconds=partial(interval_seconds, context, "job_dispatcher_polling"),
        stands_for=("job_dispatcher", "claimer") if claims else (),
        needs_wake=dispatcher.needs_wake,
    )


def session_reaper(context: AppContext, store: Store) -> Duty:
    """Ends database sessions of suspended processes. It takes no lock, so it never waits for one."""

    async def turn() -> Turn:
        ended = await store.ask(end_suspended, idle_for=context.settings.worker_lost_after)
        if ended:
            text = "loop session_reaper: ended %s database sessions that were idle in a transaction"
            logger.warning(text, ended, extra={"sessions": ended})
        return Turn(ended)

    return _housekeeping("session_reaper", turn, lambda: interval_seconds(context, "heartbeat"))


def watchdog(context: AppContext, store: Store) -> Duty:
    """Repairs manifests that have lost their next due time: after the start, and every few minutes."""

    async def turn() -> Turn:
        return Turn(await store.call(repair_now, store, context))

    return _housekeeping("watchdog", turn, lambda: WATCHDOG_SECONDS)


class RowRepair:
    """Resets values that no cycle can read, after a cycle has failed because of a row's content."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._not_before = -math.inf

    async def repair_after(self, error: Exception) -> bool:
        """Repair rows if this error may come from one; true if some were repaired."""
        if fault_of(error) is not Fault.CONTENT or monotonic() < self._not_before:
            return False
        self._not_before = monotonic() + REPAIR_SECONDS
        repaired = await self._store.call(repair_rows)
        for column in repaired:
            logger.warning(
                "table %s: column %s had values that cannot be read in %s rows (%s); %s",
                column.table,
                column.column,
                column.rows,
                ", ".join(map(str, column.ids)) + (", …" if column.rows > len(column.ids) else ""),
                "they were reset" if column.is_reset else "correct them: they cannot be reset",
                extra=column._asdict(),
            )
        return any(column.is_reset for column in repaired)


class RetirementPlan(NamedTuple):
    """The timetable of a server, and the undeclared manifests whose retirement it postponed at start."""

    timetable: Timetable
    postponed: Collection[str]


def retirer(context: AppContext, store: Store, plan: RetirementPlan) -> Duty:
    """Retires undeclared manifests, once the servers that may still declare them have stopped."""
    waiting = set(plan.postponed)

    async def turn() -> Turn:
        if not waiting:
            return Turn()
        result = await store.call(retire_now, store, context, RetirementPlan(plan.timetable, waiting))
        waiting.intersection_update(result.postponed)
        if result.retired:
            text = "manifests: retired %s that no server declares any more: %s"
            logger.info(text, len(result.retired), ", ".join(sorted(result.retired)))
        return Turn(result)

    return _housekeeping("retirer", turn, lambda: RETIRE_SECONDS)


def retire_now(
    connection: Connection, store: Store, context: AppContext, plan: RetirementPlan
) -> RetirementResult:
    take_leader_lock(connection)
    timetable, only = plan
    now = store.now(connection)
    return retire_undeclared(connection, timetable, context.settings, app=context.name, now=now, only=only)


def dead_letter_cleaner(context: AppContext, store: Store) -> Duty:
    async def turn() -> Turn:
        return Turn(await store.call(clean_dead_letters_now, store, context))

    return _housekeeping("dead_letter_cleanup", turn, lambda: CLEAN_UP_SECONDS)


def clean_dead_letters_now(connection: Connection, store: Store, context: AppContext) -> int:
    return clean_dead_letters(connection, store, context.live.refresh(connection))


def metadata_cleaner(context: AppContext, store: Store) -> Duty:
    resume_at: Mapping[str, datetime] = {}

    async def turn() -> Turn:
        nonlocal resume_at
        cleaned = await store.call(clean_metadata_now, store, context, resume_at)
        resume_at = cleaned.resume_at
        return Turn(cleaned, 0 if cleaned.run_again else None)

    return _housekeeping("metadata_cleanup", turn, lambda: interval_seconds(context, "metadata_cleanup"))


def totals_updater(store: Store, *, min_age: timedelta = stats.SETTLE_TIME) -> Duty:
    async def turn() -> Turn:
        return Turn(next_in=0 if await update_totals(store, min_age=min_age) else None)

    return _housekeeping("totals", turn, lambda: TOTALS_SECONDS)


async def update_totals(store: Store, *, min_age: timedelta = stats.SETTLE_TIME) -> bool:
    """Add the next ended runs to the per-minute totals, at most one hour of them; True when there are more.

    A slow read first, then a short write transaction, so that no lock is held while reading.
    """
    step = await store.ask(_next_totals_step, store, min_age)
    return step is not None and await store.call(stats.add, step) and step.more


def _housekeeping(
    name: str, turn: Callable[[], Coroutine[Any, Any, Turn]], poll_seconds: Callable[[], float]
) -> Duty:
    return Duty(
        name=name,
        turn=turn,
        poll_seconds=poll_seconds,
        kind=DutyKind.HOUSEKEEPING,
        first_after=HOUSEKEEPING_DELAY_SECONDS,
    )


def manage_now(
    connection: Connection, store: Store, context: AppContext, turn: ManagerInput
) -> ManagerResult | None:
    """One manager cycle with the current settings, read in its own transaction; None when disabled."""
    began_ns = time_ns()
    managed = run_manager_cycle(
        connection, store, context.settings, turn, settings_from_rows=context.live.accept
    )
    if context.telemetry.now is not None:
        context.telemetry.now.record_manager_cycle(began_ns, managed, connection)
    if managed is not None:
        context.counters.dead_letters += len(managed.dead_letters)
        context.counters.lost_workers += managed.lost_workers
        _warn_of_deferred(context, managed)
    if managed is not None and managed.dead_letters:
        ids = managed.dead_letters
        text = "dead letters: %s new: %s; requeue or acknowledge"
        logger.warning(text, len(ids), ids, extra={"dead_letters": ids})
    if managed is not None and managed.reaped:
        text = "runs %s were ended: their workers missed the heartbeat, or no worker claimed them in time"
        logger.warning(text, managed.reaped, extra={"lost_workers": managed.lost_workers})
        announce(connection, Topic.WORK_QUEUE)  # the capacity of those runs is free
    return managed


def repair_now(connection: Connection, store: Store, context: AppContext) -> list[str]:
    """Make manifests without a next due time due again, and count them; return which."""
    repaired = repair_silent_manifests(connection, context.settings, now=store.now(connection))
    context.counters.repaired_manifests += len(repaired)
    return repaired


def _apply_priorities(connection: Connection, store: Store) -> None:
    groups.apply_priorities(connection, now=store.now(connection))


def _warn_of_deferred(context: AppContext, managed: ManagerResult) -> None:
    """Warn once for each manifest and reason: it is evaluated again every few minutes."""
    for name, reason in managed.deferred:
        if context.counters.count_deferred(name, reason):
            text = "manifest %r: this server cannot evaluate its schedule and leaves it to others: %s"
            logger.warning(text, name, reason, extra={"manifest": name})


def clean_metadata_now(
    connection: Connection, store: Store, context: AppContext, resume_at: Mapping[str, datetime]
) -> MetadataCleanupResult:
    """Delete one batch; `resume_at` is from the batch before it, if that was full."""
    settings = context.live.refresh(connection)
    names = context.trains.synonyms(settings.metadata_cleanup_trains)
    return clean_metadata(connection, store, settings, DisposableTrains(names, resume_at))


def _next_totals_step(connection: Connection, store: Store, min_age: timedelta) -> stats.TotalsStep | None:
    return stats.next_step(connection, now=store.now(connection), min_age=min_age)


def seconds_to_next_due(connection: Connection, store: Store) -> float | None:
    return seconds_until(manifest_due.load_next_due(connection), store, connection)
