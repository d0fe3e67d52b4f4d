"""Starting: recover, seed and prune, with patience for a database that is not there yet."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

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


async def start(
    store: Store,
    timetable: Timetable,
    settings: Settings,
    *,
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    on_progress: Callable[[int, int], None] | None = None,
) -> SeedPlan:
    """Bring the database in line with what is declared. A passing fault is waited out, any other stops us."""
    for pause in PAUSES:
        try:
            return await store.call(startup.start, store, timetable, settings, on_progress)
        except StoreError as error:
            if not error.transient:
                raise
            logger.warning("starting failed, trying again in %s s: %s", pause, error)
        await sleep(pause)
    return await store.call(startup.start, store, timetable, settings, on_progress)
