"""The clock, waiting with a timeout, and durations as text. Decisions take `now` as an argument instead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], datetime]
"""Returns the current time, aware and in UTC."""


def utc_now() -> datetime:
    return datetime.now(UTC)


async def is_set_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for the event, at most this long (None: forever); False after a timeout."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


def format_duration(duration: timedelta) -> str:
    """A duration for people: "2 s", "20 min", "1 h 30 min", "3 days"."""
    seconds = duration.total_seconds()
    if seconds < 1 or seconds % 1:
        return f"{seconds:g} s"
    days, rest = divmod(int(seconds), 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, rest = divmod(rest, 60)
    parts = ((days, "day" if days == 1 else "days"), (hours, "h"), (minutes, "min"), (rest, "s"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number)
