"""The occurrences of a cron expression in its time zone, with daylight saving time.

A wall-clock time that the clock skips runs once, right after the change; one that occurs twice runs once, the
first time. An expression with a wildcard minute or hour runs at every match, so in both passes of a repeated
hour.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

from trax.errors import DefinitionError
from trax.schedule.expression import Expression, parse_expression
from trax.schedule.zones import end_of_gap, moments_of, repeat_around, wall_at, zone_named

if TYPE_CHECKING:
    from collections.abc import Iterator
    from zoneinfo import ZoneInfo

    from trax.records.when import Cron

ONE_SECOND = timedelta(seconds=1)


@lru_cache(maxsize=1024)
def next_occurrence(cron: Cron, after: datetime) -> datetime:
    """The first occurrence strictly after this moment. Cached, as many manifests may share a schedule."""
    expression, zone = parse_expression(cron.expression), zone_named(cron.time_zone)
    starts = _starts_forward(expression, wall_at(after, zone), zone)
    moments = [_first_after(expression, zone, start, after) for start in starts]
    candidates = [moment for moment in moments if moment is not None]
    if not candidates:
        raise DefinitionError(f"cron expression {cron.expression!r}: no occurrence after {after:%Y-%m-%d}")
    return min(candidates)


def latest_occurrence(cron: Cron, at_or_before: datetime, after: datetime) -> datetime | None:
    """The last occurrence up to this moment, if later than `after`. Searches backwards from the end."""
    expression, zone = parse_expression(cron.expression), zone_named(cron.time_zone)
    starts = _starts_backward(wall_at(at_or_before, zone), zone)
    moments = [_last_up_to(expression, zone, start, at_or_before) for start in starts]
    return max((moment for moment in moments if moment is not None and moment > after), default=None)


def occurrences(cron: Cron, after: datetime, until: datetime) -> Iterator[datetime]:
    """Iterate over the occurrences after `after`, up to and including `until`."""
    while (after := next_occurrence(cron, after)) <= until:
        yield after


def _starts_forward(expression: Expression, wall: datetime, zone: ZoneInfo) -> list[datetime]:
    """Where to start the forward search: here, or more places in an hour that occurs twice."""
    repeat = repeat_around(wall, zone)
    if repeat is None:
        return [wall]
    if expression.is_wall_clock:
        return [repeat.end - ONE_SECOND] if wall.fold else [wall]
    return [wall] if wall.fold else [wall, repeat.start - ONE_SECOND]


def _starts_backward(wall: datetime, zone: ZoneInfo) -> list[datetime]:
    """Where to start the backward search. In the second pass of a repeated hour, the first is past too."""
    repeat = repeat_around(wall, zone)
    return [wall, repeat.end - ONE_SECOND] if repeat and wall.fold else [wall]


def _first_after(expression: Expression, zone: ZoneInfo, start: datetime, after: datetime) -> datetime | None:
    wall = expression.wall_after(start)
    while wall is not None:
        for moment in _run_moments(expression, wall, zone):
            if moment > after:
                return moment
        wall = expression.wall_after(wall)
    return None


def _last_up_to(expression: Expression, zone: ZoneInfo, start: datetime, up_to: datetime) -> datetime | None:
    wall = expression.wall_up_to(start)
    while wall is not None:
        for moment in reversed(_run_moments(expression, wall, zone)):
            if moment <= up_to:
                return moment
        wall = expression.wall_up_to(wall - ONE_SECOND)
    return None


def _run_moments(expression: Expression, wall: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
    """The moments at which a matching wall-clock time runs."""
    moments = moments_of(wall, zone)
    if not moments:
        return _run_moments_after_gap(expression, end_of_gap(wall, zone), zone)
    return moments[:1] if expression.is_wall_clock else moments


def _run_moments_after_gap(expression: Expression, end: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
    """Once at the end of the gap; an hourly expression only if it matches there: it runs soon anyway."""
    if expression.runs_every_hour and not expression.matches(wall_at(end, zone)):
        return ()
    return (end,)
