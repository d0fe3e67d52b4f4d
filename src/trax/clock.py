"""The clock, waiting with a timeout, and durations as text. Decisions take `now` as an argument instead."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final

if TYPE_CHECKING:
    import asyncio

    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic_core.core_schema import CoreSchema

Clock = Callable[[], datetime]
"""Returns the current time, aware and in UTC."""

DURATION_FORMS: Final = "90s, 25 min, 1h30m or 2 days; a plain number is in seconds"
"""For messages and help texts; `parse_duration` also reads 0:01:30 and ISO 8601 (PT20M)."""
MICROSECOND: Final = timedelta(microseconds=1)
MICROSECONDS_BELOW_MILLISECONDS: Final = 999_500
"""From here on a duration is written in seconds: rounded to milliseconds, it would be 1000 ms."""
TENTHS_BELOW: Final = 10
LEAST: Final = 0.05
LONGEST_TEXT: Final = 60
UNITS: Final = {
    "milliseconds": "ms millisecond milliseconds",
    "seconds": "s sec secs second seconds",
    "minutes": "m min mins minute minutes",
    "hours": "h hr hrs hour hours",
    "days": "d day days",
    "weeks": "w week weeks",
}
UNIT_NAMES: Final = {word: unit for unit, words in UNITS.items() for word in words.split()}
NUMBER: Final = r"[0-9]+(?:\.[0-9]+)?"
PLAIN_NUMBER: Final = re.compile(rf"{NUMBER}|\.[0-9]+")
UNIT_TERM: Final = re.compile(rf"({NUMBER}) ?([A-Za-z]+)")
UNIT_FORM: Final = re.compile(rf"{NUMBER} ?[A-Za-z]+(?:,? ?{NUMBER} ?[A-Za-z]+)*")
CLOCK_FORM: Final = re.compile(
    r"(?:([0-9]+) days?,? )?([0-9]+):([0-5]?[0-9])(?::([0-5]?[0-9](?:\.[0-9]+)?))?"
)
ISO_FORM: Final = re.compile(
    rf"P(?:({NUMBER})W)?(?:({NUMBER})D)?(?:T(?=[0-9])(?:({NUMBER})H)?(?:({NUMBER})M)?(?:({NUMBER})S)?)?"
)


def utc_now() -> datetime:
    return datetime.now(UTC)


async def is_set_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for the event, at most this long (None: forever); False after a timeout."""
    from asyncio import timeout

    try:
        async with timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


def format_duration(duration: timedelta | float, *, units: int | None = None) -> str:
    """A duration for people: "2 s", "20 min", "1 h 30 min", "3 days", "250 ms"; `parse_duration` reads it.

    It is exact, unless `units` gives the greatest number of units to show; a float is in seconds.
    """
    microseconds = round((duration / MICROSECOND) if isinstance(duration, timedelta) else duration * 1e6)
    if microseconds < 0:
        return f"-{format_duration(timedelta(microseconds=-microseconds), units=units)}"
    if 0 < microseconds < MICROSECONDS_BELOW_MILLISECONDS:
        return f"{_shorten(microseconds / 1000, exact=units is None)} ms"
    whole, fraction = divmod(microseconds, 1_000_000)
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, seconds = divmod(rest, 60)
    last = f"{seconds}{f'.{fraction:06d}'.rstrip('0.')}"
    if units is not None:
        last = _shorten(seconds + fraction / 1e6, exact=False) if whole < TENTHS_BELOW else str(seconds)
    texts = (f"{days} day{'' if days == 1 else 's'}", f"{hours} h", f"{minutes} min", f"{last} s")
    first = next((place for place, count in enumerate((days, hours, minutes)) if count), len(texts) - 1)
    shown = texts[first:] if units is None else texts[first : first + units]
    return " ".join(text for text in shown if not text.startswith("0 ")) or texts[-1]


def format_distance(moment: datetime, now: datetime, *, units: int = 2) -> str:
    """`5 min ago`, `in 2 h 30 min`, `now`."""
    seconds = int(abs(now - moment).total_seconds())
    if not seconds:
        return "now"
    text = format_duration(seconds, units=units)
    return f"{text} ago" if moment < now else f"in {text}"


def _shorten(number: float, *, exact: bool) -> str:
    """A number below 1000 with at most one decimal, or exactly; a positive one never becomes 0."""
    if exact:
        return f"{number:.3f}".rstrip("0").rstrip(".")
    return "<0.1" if 0 < number < LEAST else f"{number:.{int(number < TENTHS_BELOW)}f}".removesuffix(".0")


def parse_duration(text: str) -> timedelta:
    """Read a duration as people, `format_duration` and ISO 8601 write it; ValueError names the forms."""
    try:
        return _parse(text.strip())
    except (KeyError, OverflowError):
        raise ValueError(f"expected a duration such as {DURATION_FORMS}") from None


def _parse(text: str) -> timedelta:
    if len(text) > LONGEST_TEXT:
        raise KeyError
    sign = -1 if text.startswith("-") else 1
    text = text.removeprefix("-")
    if match := CLOCK_FORM.fullmatch(text):
        days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
        return sign * timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    if match := ISO_FORM.fullmatch(text.upper()):
        names = ("weeks", "days", "hours", "minutes", "seconds")
        given = {name: float(part) for name, part in zip(names, match.groups(), strict=True) if part}
        return sign * _sum_of(given)
    if PLAIN_NUMBER.fullmatch(text):
        return sign * timedelta(seconds=float(text))
    if not UNIT_FORM.fullmatch(text):
        raise KeyError
    terms = [(UNIT_NAMES[unit.lower()], float(number)) for number, unit in UNIT_TERM.findall(text)]
    given = dict(terms)
    if len(given) < len(terms):
        raise KeyError
    return sign * _sum_of(given)


def _sum_of(given: dict[str, float]) -> timedelta:
    if not given:
        raise KeyError
    return timedelta(**given)


class _DurationSchema:
    """How pydantic reads and writes a duration: as `parse_duration` and `format_duration` do."""

    @staticmethod
    def __get_pydantic_core_schema__(source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        as_text = core_schema.plain_serializer_function_ser_schema(
            format_duration, return_schema=core_schema.str_schema(), when_used="json-unless-none"
        )
        return core_schema.no_info_before_validator_function(
            _parse_value, handler(source), serialization=as_text
        )

    @staticmethod
    def __get_pydantic_json_schema__(_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        text = {"type": "string", "examples": ["90 s", "25 min", "1h30m", "PT20M"]}
        if handler.mode == "serialization":
            return {"type": "string", "examples": ["1 min 30 s", "25 min", "250 ms"]}
        return {"anyOf": [text, {"type": "number", "description": "In seconds."}]}


def _parse_value(value: Any) -> Any:
    """Text in any form of `parse_duration`; pydantic takes a number as seconds."""
    from pydantic_core import PydanticCustomError

    try:
        return parse_duration(value) if isinstance(value, str) else value
    except ValueError as error:
        raise PydanticCustomError("duration", "{expected}", {"expected": str(error)}) from None


TextDuration = Annotated[timedelta, _DurationSchema]
"""A duration of a setting, a record or a request; in JSON it is text."""
