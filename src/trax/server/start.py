"""Start a server: recover lost runs, retire and seed manifests. One transaction, one server at a time."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, TypeVar

from trax.engine.schedule import start_up
from trax.engine.seed import declaration_digest
from trax.errors import StoreError
from trax.records.worker import HeartbeatStreak
from trax.schedule.validate import CALLABLE_OR_NONE, SLOTS_OR_NONE
from trax.server.loops import RetirementPlan, RowRepair
from trax.server.roles import ProcessDuties, ProcessRole
from trax.worker.parts import WorkFilter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from trax.engine.seed import RetirementResult, SeedPlan
    from trax.schedule.declaration import Timetable
    from trax.settings import Settings
    from trax.store import Store
    from trax.worker.parts import Parts, WorkFilterKeywords

logger = logging.getLogger(__name__)


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
    CALLABLE_OR_NONE("on_progress", on_progress)
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

    async def write() -> SeedPlan:
        return await store.call(start_up, store, timetable, settings, on_progress, app, watch)

    try:
        plan = await retry_transient(write, sleep=sleep)
    except Exception as error:
        if not await RowRepair(store).repair_after(error):
            raise
        plan = await retry_transient(write, sleep=sleep)
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
            logger.warning("server: start failed, trying again in %s s: %s", pause, error)
        await sleep(pause)
    return await work()


def _report(app: str, retired: RetirementResult) -> None:
    """Log which manifests were retired, and which were not because other servers may declare them."""
    if retired.retired:
        logger.info(
            "manifests: retired %s that are no longer declared: %s", *_count_and_names(retired.retired)
        )
    if retired.servers:
        servers = ", ".join(f"{server.host} (process {server.pid})" for server in retired.servers)
        logger.warning(
            "app %r: other servers declare different manifests: %s; %s manifests not declared here "
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
