"""The moments of a cron expression in its time zone.

A wall-clock time that the clocks jump over runs once, right after the jump; one that they show twice runs
once, the first time. An expression with a wildcard minute or hour runs whenever the clocks show a match, so
in both passes of a repeated hour.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

from trax.errors import DefinitionError
from trax.schedule.expression import Expression, parsed
from trax.schedule.zones import end_of_gap, moments_of, repeat_around, wall_at, zone_named

if TYPE_CHECKING:
    from collections.abc import Iterator
    from zoneinfo import ZoneInfo

    from trax.records.when import Cron

SECOND = timedelta(seconds=1)


@lru_cache(maxsize=1024)
def next_occurrence(cron: Cron, after: datetime) -> datetime:
    """The first moment strictly after this one. Kept, since thousands of manifests may share a schedule."""
    expression, zone = parsed(cron.expression), zone_named(cron.time_zone)
    starts = _starts_forward(expression, wall_at(after, zone), zone)
    found = [_first(expression, zone, start, after) for start in starts]
    ahead = [moment for moment in found if moment is not None]
    if not ahead:
        raise DefinitionError(f"cron expression {cron.expression!r}: nothing comes after {after:%Y-%m-%d}")
    return min(ahead)


def latest_occurrence(cron: Cron, at_or_before: datetime, after: datetime) -> datetime | None:
    """The last moment up to this one, if later than `after`. Looks back, so a long pause costs nothing."""
    expression, zone = parsed(cron.expression), zone_named(cron.time_zone)
    starts = _starts_backward(wall_at(at_or_before, zone), zone)
    found = [_last(expression, zone, start, at_or_before) for start in starts]
    return max((moment for moment in found if moment is not None and moment > after), default=None)


def occurrences(cron: Cron, after: datetime, until: datetime) -> Iterator[datetime]:
    """Every moment after the one and up to the other, found as they are asked for."""
    while (after := next_occurrence(cron, after)) <= until:
        yield after


def _starts_forward(expression: Expression, wall: datetime, zone: ZoneInfo) -> list[datetime]:
    """Where to start looking ahead: here, unless the clocks are showing this stretch twice."""
    repeat = repeat_around(wall, zone)
    if repeat is None:
        return [wall]
    if expression.is_wall_clock:
        return [repeat.end - SECOND] if wall.fold else [wall]
    return [wall] if wall.fold else [wall, repeat.start - SECOND]


def _starts_backward(wall: datetime, zone: ZoneInfo) -> list[datetime]:
    """In the second pass all of the first lies behind us too, walls later than this one included."""
    repeat = repeat_around(wall, zone)
    return [wall, repeat.end - SECOND] if repeat and wall.fold else [wall]


def _first(expression: Expression, zone: ZoneInfo, start: datetime, after: datetime) -> datetime | None:
    wall = expression.wall_after(start)
    while wall is not None:
        for moment in _runs(expression, wall, zone):
            if moment > after:
                return moment
        wall = expression.wall_after(wall)
    return None


def _last(expression: Expression, zone: ZoneInfo, start: datetime, up_to: datetime) -> datetime | None:
    wall = expression.wall_up_to(start)
    while wall is not None:
        for moment in reversed(_runs(expression, wall, zone)):
            if moment <= up_to:
                return moment
        wall = expression.wall_up_to(wall - SECOND)
    return None


def _runs(expression: Expression, wall: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
    """When a wall that matches is run."""
    moments = moments_of(wall, zone)
    if not moments:
        return _runs_after_gap(expression, end_of_gap(wall, zone), zone)
    return moments[:1] if expression.is_wall_clock else moments


def _runs_after_gap(expression: Expression, end: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
    """Once at its end, except for what runs every hour: that has missed nothing worth an odd minute."""
    if expression.runs_every_hour and not expression.matches(wall_at(end, zone)):
        return ()
    return (end,)
