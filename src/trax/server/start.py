"""Start a server: recover lost runs, retire and seed manifests. One transaction, one server at a time."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from trax.engine.rescue import WORKER_LOST, can_declare_lost, count_as_failures
from trax.engine.schedule import check_stored_graph
from trax.engine.seed import (
    RetirementResult,
    SeedPlan,
    declaration_digest,
    prune_groups,
    rename,
    retire_undeclared,
    seed,
)
from trax.errors import StoreError
from trax.records.worker import HeartbeatStreak
from trax.schedule.validate import SLOTS_OR_NONE
from trax.server.loops import RetirementPlan
from trax.server.roles import ProcessDuties, ProcessRole
from trax.store import dialect, workers
from trax.store.runs import rescue
from trax.worker.work_filter import WorkFilter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import datetime

    from trax.schedule.declaration import Timetable
    from trax.settings import Settings
    from trax.store import Connection, Store
    from trax.worker.parts import Parts
    from trax.worker.work_filter import WorkFilterKeywords


async def start_process(
    parts: Parts,
    roles: str,
    only: WorkFilterKeywords,
    *,
    concurrency: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> ProcessDuties:
    """Open the store, write the declared manifests if this process schedules, and start its loops.

    An invalid argument or declaration is refused before the store is opened.
    """
    SLOTS_OR_NONE("concurrency", concurrency)
    role = ProcessRole.parse(roles)
    parts.telemetry.reset()
    timetable = parts.declarations.timetable()
    parts.submitters.check(parts.trains)
    options: dict[str, Any] = {"slots": concurrency, "work_filter": WorkFilter.parse(parts.trains, only)}
    try:
        store = (await retry_transient(parts.store.open)).engine_lane
        if role.schedules:
            options["retiring"] = await _seed(parts, store, timetable, on_progress)
        return await retry_transient(lambda: ProcessDuties.start(parts, store, role, **options))
    except BaseException:
        parts.close()
        raise


async def _seed(
    parts: Parts, store: Store, timetable: Timetable, on_progress: Callable[[int, int], None] | None
) -> RetirementPlan | None:
    """Write the manifests; returns which retirements are postponed."""
    parts.heartbeat.declares = declaration_digest(timetable)
    watch = parts.heartbeat.watch or HeartbeatStreak.empty()
    plan = await start(store, timetable, parts.settings, app=parts.name, on_progress=on_progress, watch=watch)
    return RetirementPlan(timetable, plan.retired.postponed) if plan.retired.postponed else None


logger = logging.getLogger(__name__)

PAUSES: Final = (2, 4, 8, 16)

MAX_NAMES: Final = 10

"""Maximum number of names in a log line."""

T = TypeVar("T")


async def start(
    store: Store,
    timetable: Timetable,
    settings: Settings,
    *,
    app: str = "default",
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    on_progress: Callable[[int, int], None] | None = None,
    watch: HeartbeatStreak | None = None,
) -> SeedPlan:
    """Write the declared manifests to the database and retire those no longer declared."""
    plan = await retry_transient(
        lambda: store.call(start_up, store, timetable, settings, on_progress, app, watch), sleep=sleep
    )
    _report(app, plan.retired)
    return plan


async def retry_transient(
    work: Callable[[], Awaitable[T]], *, sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep
) -> T:
    """Retry a transient database error a few times; raise any other."""
    for pause in PAUSES:
        try:
            return await work()
        except StoreError as error:
            if not error.transient:
                raise
            logger.warning("start failed, trying again in %s s: %s", pause, error)
        await sleep(pause)
    return await work()


def _report(app: str, retired: RetirementResult) -> None:
    """Log which manifests were retired, and which were not because other servers may declare them."""
    if retired.retired:
        logger.info(
            "retired %s manifests that are no longer declared: %s", *_count_and_names(retired.retired)
        )
    if retired.servers:
        servers = ", ".join(f"{server.host} (process {server.pid})" for server in retired.servers)
        logger.warning(
            "other servers of app %r declare different manifests: %s; %s manifests not declared here "
            "are kept until those servers stop%s; if it is a different app, name it: Trax(name=…)",
            app,
            servers,
            len(retired.postponed),
            f" ({_count_and_names(retired.postponed)[1]})" if retired.postponed else "",
        )


def _count_and_names(names: Sequence[str]) -> tuple[int, str]:
    """The number of names, and the first of them as text."""
    more = ", …" if len(names) > MAX_NAMES else ""
    return len(names), ", ".join(names[:MAX_NAMES]) + more


def start_up(
    connection: Connection,
    store: Store,
    timetable: Timetable,
    settings: Settings,
    on_progress: Callable[[int, int], None] | None = None,
    app: str = "default",
    heartbeat_streak: HeartbeatStreak | None = None,
) -> SeedPlan:
    """Recover, rename, retire and seed under the leader lock: servers that start together take turns.

    `retired.postponed` has the undeclared manifests that `retire_undeclared` must retire later.
    """
    dialect.lift_limits(connection)
    dialect.take_leader_lock(connection)
    now = store.now(connection)
    if settings.recover_stuck_jobs_on_startup and can_declare_lost(heartbeat_streak, settings, now):
        recover(connection, settings, now=now)
    rename(connection, timetable, now=now)
    retired = RetirementResult()
    if settings.prune_orphaned_manifests:  # before seeding, so that no manifest can depend on a retired one
        retired = retire_undeclared(connection, timetable, settings, app=app, now=now)
    check_stored_graph(connection, timetable)
    plan = seed(connection, timetable, settings, now=now, app=app, on_progress=on_progress)
    if settings.prune_orphaned_manifests:
        prune_groups(connection, timetable)
    return replace(plan, retired=retired)


def recover(connection: Connection, settings: Settings, *, now: datetime) -> int:
    """Fail the runs of workers that missed their heartbeat; returns how many. Others are untouched."""
    alive_since = now - settings.worker_lost_after
    workers.delete_lost(connection, silent_since=alive_since)  # first, as in the manager's cycle
    swept = rescue.fail_runs_of_lost_workers(connection, WORKER_LOST, alive_since=alive_since, now=now)
    count_as_failures(connection, swept, settings, now=now)
    return len(swept)
