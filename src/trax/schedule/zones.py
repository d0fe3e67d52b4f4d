"""Clocks on a wall: what they show at a moment, and at which moments they show something.

A wall is a datetime without a zone. Where clocks are turned back a wall is shown twice, where they are turned
forward it is never shown; everything the other modules know of daylight saving time is asked here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil, floor
from zoneinfo import ZoneInfo, available_timezones

from trax.errors import DefinitionError, did_you_mean, shown


def zone_named(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError, AttributeError):
        hint = did_you_mean(str(name), sorted(available_timezones()))
        raise DefinitionError(f"no time zone is called {shown(name)}{hint}") from None


def wall_at(moment: datetime, zone: ZoneInfo) -> datetime:
    """What the clocks show; `fold` is 1 when they show it for the second time."""
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone; give an aware datetime such as datetime.now(UTC)")
    return moment.astimezone(zone).replace(tzinfo=None)


def moments_of(wall: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
    """When the clocks show this: one moment as a rule, two when they are turned back, none in a gap."""
    first, second = _both(wall, zone)
    if first == second:
        return (first,)
    return (first, second) if first < second else ()


def end_of_gap(wall: datetime, zone: ZoneInfo) -> datetime:
    """The moment at which the clocks jump over a wall that they never show."""
    after, before = _both(wall, zone)
    return _turned(before, after, zone)


@dataclass(frozen=True, slots=True)
class Repeat:
    """A stretch of the wall, from `start` up to `end`, that is shown again from `turned_at` on."""

    turned_at: datetime
    start: datetime
    end: datetime


def repeat_around(wall: datetime, zone: ZoneInfo) -> Repeat | None:
    """The repeated stretch this wall lies in, if it does."""
    first, second = _both(wall, zone)
    if first >= second:
        return None
    turned_at = _turned(first, second, zone)
    start = wall_at(turned_at, zone)
    return Repeat(turned_at, start, start + (second - first))


def _both(wall: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """The wall read with the offset before and with the offset after a turn; nearly always the same."""
    before, after = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    return before, after


def _turned(earlier: datetime, later: datetime, zone: ZoneInfo) -> datetime:
    """The moment after `earlier`, up to `later`, at which the offset changes."""
    low, high = floor(earlier.timestamp()), ceil(later.timestamp())
    offset = _offset(low, zone)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _offset(middle, zone) == offset else (low, middle)
    return datetime.fromtimestamp(high, UTC)


def _offset(seconds: int, zone: ZoneInfo) -> timedelta | None:
    return datetime.fromtimestamp(seconds, zone).utcoffset()
