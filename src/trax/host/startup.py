"""Starting: recover, retire and seed, with patience for a database that is not there yet."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, TypeVar

from trax.admin import startup
from trax.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from trax.admin.seeding import Retired, SeedPlan
    from trax.records.worker import Watch
    from trax.schedule.declaration import Timetable
    from trax.settings import Settings
    from trax.store import Store

logger = logging.getLogger(__name__)

PAUSES: Final = (2, 4, 8, 16)
SHOWN: Final = 10
"""How many names a log line has at most."""

T = TypeVar("T")


async def start(
    store: Store,
    timetable: Timetable,
    settings: Settings,
    *,
    app: str = "default",
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    on_progress: Callable[[int, int], None] | None = None,
    watch: Watch | None = None,
) -> SeedPlan:
    """Bring the database in line with what is declared."""
    plan = await patiently(
        lambda: store.call(startup.start, store, timetable, settings, on_progress, app, watch), sleep=sleep
    )
    _report(app, plan.retired)
    return plan


async def patiently(
    work: Callable[[], Awaitable[T]], *, sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep
) -> T:
    """Wait out a passing fault of the database, a few times; any other stops us."""
    for pause in PAUSES:
        try:
            return await work()
        except StoreError as error:
            if not error.transient:
                raise
            logger.warning("starting failed, trying again in %s s: %s", pause, error)
        await sleep(pause)
    return await work()


def _report(app: str, found: Retired) -> None:
    """Say what was retired, and what was not because other servers may still want it."""
    if found.retired:
        logger.info("retired %s manifests that are no longer declared: %s", *_some(found.retired))
    if found.servers:
        servers = ", ".join(f"{one.host} (process {one.pid})" for one in found.servers)
        logger.warning(
            "other servers of app %r declare other manifests: %s; %s manifests not declared here stay "
            "until those have stopped%s; give another app a name of its own: Trax(name=…)",
            app,
            servers,
            len(found.postponed),
            f" ({_some(found.postponed)[1]})" if found.postponed else "",
        )


def _some(names: Sequence[str]) -> tuple[int, str]:
    """How many there are, and the first of them."""
    more = ", …" if len(names) > SHOWN else ""
    return len(names), ", ".join(names[:SHOWN]) + more
