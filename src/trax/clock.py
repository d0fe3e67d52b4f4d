"""Where the time comes from. Decisions take it as an argument and never look here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]
"""Says what time it is, aware and in UTC."""


def utc_now() -> datetime:
    return datetime.now(UTC)


async def is_set_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for it so long, or for ever."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
