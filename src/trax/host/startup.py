"""Starting: recover, seed and prune, with patience for a database that is not there yet."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, TypeVar

from trax.admin import startup
from trax.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trax.admin.seeding import SeedPlan
    from trax.schedule.declaration import Timetable
    from trax.settings import Settings
    from trax.store import Store

logger = logging.getLogger(__name__)

PAUSES: Final = (2, 4, 8, 16)

T = TypeVar("T")


async def start(
    store: Store,
    timetable: Timetable,
    settings: Settings,
    *,
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    on_progress: Callable[[int, int], None] | None = None,
) -> SeedPlan:
    """Bring the database in line with what is declared."""
    return await patiently(
        lambda: store.call(startup.start, store, timetable, settings, on_progress), sleep=sleep
    )


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
