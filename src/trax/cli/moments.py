"""Format moments and durations for people: exact and relative."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

UNITS: Final = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def moment(value: datetime, now: datetime) -> str:
    """`2027-03-01 12:00:00Z (5 min ago)`."""
    exact = f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
    return f"{exact} ({relative(value, now)})"


def relative(value: datetime, now: datetime) -> str:
    apart = abs(now - value)
    if apart < timedelta(seconds=1):
        return "now"
    return f"{span(apart)} ago" if value < now else f"in {span(apart)}"


def span(length: timedelta) -> str:
    """The largest unit that fits and the one below it: `2 h 5 min`, `40 s`, `0.3 s`."""
    seconds = length.total_seconds()
    if seconds < 1:
        return f"{seconds:.3g} s"
    whole = int(seconds)
    for position, (name, size) in enumerate(UNITS):
        if whole >= size:
            below = UNITS[position + 1 : position + 2]
            rest = [(whole % size // smaller, unit) for unit, smaller in below]
            return " ".join([f"{whole // size} {name}", *(f"{many} {unit}" for many, unit in rest if many)])
    return f"{whole} s"
