"""Where the time comes from. Decisions take it as an argument and never look here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]
"""Says what time it is, aware and in UTC."""


def utc_now() -> datetime:
    return datetime.now(UTC)
