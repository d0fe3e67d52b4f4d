"""Time zones: convert between moments and wall-clock times, including daylight saving time.

A `wall` is a wall-clock time: a datetime without a time zone. When the clock is set back, a wall-clock time
occurs twice; when it is set forward, some never occur (a gap).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil, floor
from zoneinfo import ZoneInfo, available_timezones

from trax.errors import DefinitionError, did_you_mean, format_value


def zone_named(name: str) -> ZoneInfo:
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DefinitionError(f"unknown time zone {format_value(name)}")
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        hint = did_you_mean(name, sorted(available_timezones()))
        raise DefinitionError(f"unknown time zone {format_value(name)}{hint}") from None


def wall_at(moment: datetime, zone: ZoneInfo) -> datetime:
    """The wall-clock time at a moment; `fold` is 1 when it occurs for the second time."""
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone; give an aware datetime such as datetime.now(UTC)")
    return moment.astimezone(zone).replace(tzinfo=None)


def moments_of(wall: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
    """The moments of a wall-clock time: normally one, two when the clock is set back, none in a gap."""
    first, second = _both_readings(wall, zone)
    if first == second:
        return (first,)
    return (first, second) if first < second else ()


def end_of_gap(wall: datetime, zone: ZoneInfo) -> datetime:
    """The moment at which the clock skips this wall-clock time, which never occurs."""
    after, before = _both_readings(wall, zone)
    return _find_offset_change(before, after, zone)


@dataclass(frozen=True, slots=True)
class Repeat:
    """Wall-clock times from `start` up to `end` that occur twice; the second time from `turned_at` on."""

    turned_at: datetime
    start: datetime
    end: datetime


def repeat_around(wall: datetime, zone: ZoneInfo) -> Repeat | None:
    """The repeated period that this wall-clock time lies in, or None."""
    first, second = _both_readings(wall, zone)
    if first >= second:
        return None
    turned_at = _find_offset_change(first, second, zone)
    start = wall_at(turned_at, zone)
    return Repeat(turned_at, start, start + (second - first))


def _both_readings(wall: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """The moment with the UTC offset before and after a clock change; nearly always the same."""
    before, after = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    return before, after


def _find_offset_change(earlier: datetime, later: datetime, zone: ZoneInfo) -> datetime:
    """The moment after `earlier`, up to `later`, at which the UTC offset changes."""
    low, high = floor(earlier.timestamp()), ceil(later.timestamp())
    offset = _offset(low, zone)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _offset(middle, zone) == offset else (low, middle)
    return datetime.fromtimestamp(high, UTC)


def _offset(seconds: int, zone: ZoneInfo) -> timedelta | None:
    return datetime.fromtimestamp(seconds, zone).utcoffset()
