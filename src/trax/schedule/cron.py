"""`cron(…)`: write and parse cron expressions, and find their occurrences in a time zone."""

from __future__ import annotations

import re
from copy import copy
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from cronsim import CronSim, CronSimError

from trax.bounds import is_integer
from trax.errors import DefinitionError, InvalidArgument, count_noun, did_you_mean, explain_call, format_value
from trax.records.schedule import Cron
from trax.schedule.every import variance_seconds
from trax.schedule.zones import end_of_gap, moments_of, repeat_around, wall_at, zone_named

if TYPE_CHECKING:
    from collections.abc import Iterator
    from zoneinfo import ZoneInfo


DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def day_number(name: str) -> int:
    """`mon` or `Monday` as Python counts: Monday is 0."""
    for number, day in enumerate(DAYS):
        if name.lower() in (day, day[:3]):
            return number
    raise DefinitionError(f"{format_value(name)} is not a day of the week{did_you_mean(name.lower(), DAYS)}")


class CronWriter:
    """Builds cron schedules: `cron("0 7 * * mon-fri")`, or without an expression `cron.daily(hour=7)`."""

    @explain_call('cron("0 7 * * *", tz=…, variance=…)')
    def __call__(self, text: str, tz: str = "UTC", variance: timedelta | None = None) -> Cron:
        """Run at the times of a cron expression with five fields, or six with seconds first."""
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DefinitionError(
                f"cron needs an expression such as '0 7 * * mon-fri' (got {format_value(text)})"
            )
        parse_expression(text)
        zone_named(tz)
        return Cron(normalize_expression(text), time_zone=tz, variance_seconds=variance_seconds(variance))

    @explain_call("cron.secondly(tz=…)")
    def secondly(self, *, tz: str = "UTC", variance: timedelta | None = None) -> Cron:
        """Run every second."""
        return self("* * * * * *", tz, variance)

    @explain_call("cron.minutely(second=…, tz=…)")
    def minutely(self, second: int = 0, *, tz: str = "UTC", variance: timedelta | None = None) -> Cron:
        """Run once a minute, at `second`."""
        return self(_expression("*", second=second), tz, variance)

    @explain_call("cron.hourly(minute=…, second=…, tz=…)")
    def hourly(
        self, minute: int = 0, second: int = 0, *, tz: str = "UTC", variance: timedelta | None = None
    ) -> Cron:
        """Run once an hour, at `minute` and `second`."""
        return self(_expression("*", minute=minute, second=second), tz, variance)

    @explain_call("cron.daily(hour=…, minute=…, second=…, tz=…)")
    def daily(
        self,
        hour: int = 0,
        minute: int = 0,
        second: int = 0,
        *,
        tz: str = "UTC",
        variance: timedelta | None = None,
    ) -> Cron:
        """Run once a day, at the given time."""
        return self(_expression("*", hour=hour, minute=minute, second=second), tz, variance)

    @explain_call("cron.weekly(day, hour=…, minute=…, second=…, tz=…)")
    def weekly(
        self,
        day: int | str,
        hour: int = 0,
        minute: int = 0,
        second: int = 0,
        *,
        tz: str = "UTC",
        variance: timedelta | None = None,
    ) -> Cron:
        """Run once a week, on `day`: a name such as `mon`, or a cron number where Sunday is 0."""
        weekday = _weekday(day)
        return self(_expression(weekday, hour=hour, minute=minute, second=second), tz, variance)

    @explain_call("cron.monthly(day=…, hour=…, minute=…, second=…, tz=…)")
    def monthly(
        self,
        day: int = 1,
        hour: int = 0,
        minute: int = 0,
        second: int = 0,
        *,
        tz: str = "UTC",
        variance: timedelta | None = None,
    ) -> Cron:
        """Run once a month, on this day of the month."""
        return self(_expression("*", day=day, hour=hour, minute=minute, second=second), tz, variance)


cron: Final = CronWriter()


def _expression(weekday: int | str, *, second: int, **given: int) -> str:
    """The expression with these fields; the others are any."""
    for name, value in {"day": weekday, "second": second, **given}.items():
        if value != "*" and not is_integer(value, 0, 59):
            raise InvalidArgument(f"cron: {name}", "a whole number", value)
    minute, hour, day = (given.get(name, "*") for name in ("minute", "hour", "day"))
    fields = f"{minute} {hour} {day} * {weekday}"
    return fields if second == 0 else f"{second} {fields}"


def _weekday(day: int | str) -> int:
    """The cron number of a day: cron counts from Sunday, Python from Monday."""
    return (day_number(day) + 1) % len(DAYS) if isinstance(day, str) else day


ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")

WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")

LONGEST: Final = 1000

REFERENCE_TIME: Final = datetime(2024, 1, 1)  # noqa: DTZ001

SECOND: Final = timedelta(seconds=1)

RANGE: Final = re.compile(r"(\w+)-(\w+)(?:/(\d+))?", re.ASCII)

NEAREST_WEEKDAY: Final = re.compile(r"\d+W", re.IGNORECASE)


class CronField(NamedTuple):
    """One field of a cron expression: its name, its range, and the names of its values such as MON."""

    name: str
    first: int
    last: int
    words: tuple[str, ...] = ()
    also: str = ""

    def number(self, text: str) -> int | None:
        if text.upper() in self.words:
            return self.words.index(text.upper()) + self.first
        return int(text) if text.isdecimal() and text.isascii() else None


FIELDS: Final = (
    CronField("second", 0, 59),
    CronField("minute", 0, 59),
    CronField("hour", 0, 23),
    CronField("day-of-month", 1, 31, also=", L, LW; the day must exist in one of the months"),
    CronField("month", 1, 12, MONTHS, ", JAN-DEC"),
    CronField("day-of-week", 0, 6, WEEKDAYS, ", SUN-SAT, 5L, MON#2"),
)


class Expression:
    """A parsed cron expression that finds matching wall-clock times in both directions.

    `is_wall_clock` as in Debian's cron: an expression with fixed minutes and hours means times of the day,
    one with wildcards means a rate. The two differ when the clock changes.
    """

    def __init__(self, text: str, sim: CronSim) -> None:
        minute, hour = text.split()[-5:-3]
        self.text = text
        self.runs_every_hour = len(sim.hours) == FIELDS[2].last + 1
        runs_every_minute = len(sim.minutes) == FIELDS[1].last + 1
        self.is_wall_clock = not (
            minute.startswith("*") or hour.startswith("*") or self.runs_every_hour or runs_every_minute
        )
        self._sim = sim

    def wall_after(self, wall: datetime) -> datetime | None:
        return next(self._simulate_from(wall, direction=1), None)

    def wall_up_to(self, wall: datetime) -> datetime | None:
        """The last matching wall-clock time up to this one, inclusive."""
        return next(self._simulate_from(wall + SECOND, direction=-1), None)

    def matches(self, wall: datetime) -> bool:
        return self.wall_up_to(wall) == wall

    def _simulate_from(self, wall: datetime, direction: int) -> CronSim:
        """A copy: parsing is slower than iterating. Without a time zone cronsim ignores daylight saving."""
        sim = copy(self._sim)
        sim.dt = wall.replace(microsecond=0, fold=0)
        sim.tick_direction = direction
        return sim


def normalize_expression(text: str) -> str:
    """The expression as it is stored: aliases expanded, single spaces."""
    plain = " ".join(text.split())
    return ALIASES.get(plain.lower(), plain)


@lru_cache(maxsize=4096)
def parse_expression(text: str) -> Expression:
    """Parse a cron expression. Raises DefinitionError naming the invalid field."""
    if len(text) > LONGEST:
        raise _expression_error(text, f"it has {len(text)} characters, at most {LONGEST} are allowed")
    parts = normalize_expression(text).split()
    if len(parts) not in (5, 6):
        raise _expression_error(text, _field_count_message(len(parts)))
    fields = FIELDS[-len(parts) :]
    plain = " ".join(_expand_field(text, field, part) for field, part in zip(fields, parts, strict=True))
    try:
        expression = Expression(plain, CronSim(plain, REFERENCE_TIME))
    except CronSimError as error:
        raise _expression_error(
            text, _field_message(str(error), dict(zip(fields, parts, strict=True)))
        ) from None
    if expression.wall_after(REFERENCE_TIME) is None:
        raise _expression_error(text, "no date matches it")
    return expression


def _field_count_message(count: int) -> str:
    fields = "minute hour day-of-month month day-of-week"
    found = f"{count_noun(count, 'field')} found"
    return f"{found}; expected 5 ({fields}), 6 (second first), or one of {', '.join(ALIASES)}"


def _field_message(refusal: str, parts: dict[CronField, str]) -> str:
    """Replace cronsim's `Bad hour` by the value of the field and what is allowed."""
    for field, part in parts.items():
        if refusal == f"Bad {field.name}":
            allowed = f"{field.first}-{field.last}, *, lists, ranges, steps{field.also}"
            return f"{field.name} {part!r} is invalid (allowed: {allowed})"
    return refusal


def _expand_field(text: str, field: CronField, part: str) -> str:
    return ",".join(_expand_range(text, field, term) for term in part.split(","))


def _expand_range(text: str, field: CronField, term: str) -> str:
    """Expand a range that wraps around, such as FRI-MON or 22-2, into a list."""
    if NEAREST_WEEKDAY.fullmatch(term):
        raise _expression_error(
            text, f"{term!r} (the weekday nearest to a date) is not supported; LW, the last weekday, is"
        )
    match = RANGE.fullmatch(term)
    if match is None:
        return term
    start, end, step = field.number(match[1]), field.number(match[2]), int(match[3] or 1)
    if start is not None and start == end and step:
        return match[1]  # cronsim reads 5-5/2 as 5/2, which continues to the end of the range
    if start is None or end is None or start <= end or start > field.last or end < field.first or not step:
        return term
    numbers = [*range(start, field.last + 1), *range(field.first, end + 1)]
    return ",".join(str(number) for number in numbers[::step])


def _expression_error(text: str, reason: str) -> DefinitionError:
    return DefinitionError(f"cron expression {format_value(text)}: {reason}")


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
