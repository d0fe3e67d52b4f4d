"""Start a server: recover lost runs, retire and seed manifests. One transaction, one server at a time."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from trax.engine.schedule import start_up
from trax.engine.seed import declaration_digest
from trax.engine.seed_groups import sweep_groups
from trax.errors import StoreError
from trax.records.worker import HeartbeatStreak, WorkerKind
from trax.schedule.validate import CALLABLE_OR_NONE, SLOTS_OR_NONE
from trax.server.loops import RetirementPlan, RowRepair
from trax.server.roles import ProcessDuties, ProcessRole
from trax.store import workers
from trax.worker.app_context import WorkFilter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from trax.engine.seed import SeedPlan
    from trax.engine.seed_groups import KeptValue
    from trax.schedule.declaration import Timetable
    from trax.settings import Settings
    from trax.store import Connection, Store
    from trax.worker.app_context import AppContext, WorkFilterKeywords

logger = logging.getLogger(__name__)


async def start_process(
    context: AppContext,
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
    context.telemetry.reset()
    timetable = context.declarations.timetable()
    context.submitters.check(context.trains)
    options: dict[str, Any] = {"slots": concurrency, "work_filter": WorkFilter.parse(context.trains, only)}
    starting = _StartingRow(context)
    try:
        store = (await retry_transient(context.store.open)).engine_lane
        if role.schedules:
            options["retiring"] = await _seed(context, store, timetable, on_progress, starting)
        return await retry_transient(lambda: ProcessDuties.start(context, store, role, **options))
    except BaseException:
        context.close()
        raise
    finally:
        await starting.remove()


class _StartingRow:
    """A row that says which manifests this process declares, until its worker or scheduler has its own.

    It is written together with the manifests. Without it, a server that starts at the same moment would find
    manifests of an app of which no server lives.
    """

    def __init__(self, context: AppContext) -> None:
        self._context = context
        self._store: Store | None = None
        self._id = 0

    def register_in(self, store: Store) -> Callable[[Connection], None]:
        self._store = store
        return self._register

    def _register(self, connection: Connection) -> None:
        assert self._store is not None  # noqa: S101 - set with this function
        heartbeat = self._context.heartbeat
        row = {"kind": WorkerKind.CALLER, "declares": heartbeat.declares}
        self._id = heartbeat.register(connection, self._store, row)

    async def remove(self) -> None:
        """Remove the row. If that fails, it expires."""
        if self._store is not None and self._id:
            with suppress(StoreError):
                await self._store.call(workers.remove, self._id, has_run=False)


async def _seed(
    context: AppContext,
    store: Store,
    timetable: Timetable,
    on_progress: Callable[[int, int], None] | None,
    starting: _StartingRow,
) -> RetirementPlan | None:
    """Write the manifests; returns which retirements are postponed."""
    context.heartbeat.declares = declaration_digest(timetable)
    watch = context.heartbeat.watch or HeartbeatStreak.empty()
    options: dict[str, Any] = {"on_progress": on_progress, "watch": watch}
    register = starting.register_in(store)
    plan = await start(store, timetable, context.settings, app=context.name, register=register, **options)
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
    register: Callable[[Connection], object] | None = None,
) -> SeedPlan:
    """Write the declared manifests to the database and retire those no longer declared."""

    async def write() -> SeedPlan:
        return await store.call(start_up, store, timetable, settings, on_progress, app, watch, register)

    try:
        plan = await retry_transient(write, sleep=sleep)
    except Exception as error:
        if not await RowRepair(store).repair_after(error):
            raise
        plan = await retry_transient(write, sleep=sleep)
    _report(app, plan)
    if settings.prune_orphaned_manifests:
        await _sweep_groups(store)
    return plan


async def _sweep_groups(store: Store) -> None:
    """Retire the groups that nothing declares or needs, in short transactions and without the leader lock."""
    after_id: int | None = 0
    while after_id is not None:
        after_id = await _sweep_next(store, after_id)


async def _sweep_next(store: Store, after_id: int) -> int | None:
    return await retry_transient(lambda: store.call(_sweep_batch, store, after_id))


def _sweep_batch(connection: Connection, store: Store, after_id: int) -> int | None:
    return sweep_groups(connection, after_id, now=store.now(connection))


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


def _report(app: str, plan: SeedPlan) -> None:
    """Log which operators' values stay, which manifests were retired, and which wait for other servers."""
    retired = plan.retired
    if plan.kept:
        more = ", …" if len(plan.kept) > MAX_NAMES else ""
        logger.info(
            "app %r: %s values set by operators stay until code changes them: %s%s",
            app,
            len(plan.kept),
            ", ".join(map(_format_kept, plan.kept[:MAX_NAMES])),
            more,
        )
    if retired.retired:
        logger.info(
            "manifests: retired %s that are no longer declared: %s", *_count_and_names(retired.retired)
        )
    if retired.servers:
        servers = ", ".join(f"{server.host} (process {server.pid})" for server in retired.servers)
        logger.warning(
            "app %r: other servers declare different manifests or groups: %s; %s manifests not declared here "
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


def _format_kept(kept: KeptValue) -> str:
    return f"{kept.field}={kept.value} of {kept.kind} {kept.name!r} (code says {kept.declared})"
