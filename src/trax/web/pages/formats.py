"""Format values for people, parse what they type, and colour JSON."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from trax.bounds import is_duration, is_moment
from trax.clock import format_duration, parse_duration
from trax.errors import DefinitionError, TraxError, format_value
from trax.records.schedule import Calendar, DateRange, Dates, DaysOfWeek, Exclusion, TimeWindow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trax.records import Metadata
    from trax.records.audit import AuditEntry


NO_VALUE: Final = "\N{EN DASH}"
BRIEF: Final = 120
HEAD: Final = 500
TAIL: Final = 3_000


def span(length: timedelta | float | None) -> str:
    """A measured duration, short enough for a table: `2 h 5 min`, `1.4 s`, `12 ms`."""
    return NO_VALUE if length is None else format_duration(length, units=2)


def exact(moment: datetime | None) -> str:
    return NO_VALUE if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def short(moment: datetime) -> str:
    """`Mon 16 Nov 05:30`, with seconds only if not zero."""
    return f"{moment:%a %d %b %H:%M:%S}" if moment.second else f"{moment:%a %d %b %H:%M}"


def iso(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def plain(word: object) -> str:
    """`awaiting_intervention` as `awaiting intervention`."""
    return str(word).replace("_", " ")


def share(part: float | None) -> str:
    """0.984 as `98.4 %`; never rounded up to 100 %."""
    if part is None:
        return NO_VALUE
    percent = min(part * 100, 99.9) if part < 1 else 100.0
    return f"{percent:.1f} %".replace(".0 %", " %")


def failure_limit(max_retries: int) -> str:
    """After how many failures a job becomes a dead letter."""
    return "the first failure" if max_retries <= 1 else f"{max_retries:,} failures in a row"


def sentence(text: str) -> str:
    """Capitalise a problem's text and end it with a full stop."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "…")) else ".")


def excerpt(text: str) -> str:
    """The beginning and end of a long text, where a traceback is informative."""
    more = len(text) - HEAD - TAIL
    if more <= 0:
        return text
    return f"{text[:HEAD]}\n… {more:,} characters more …\n{text[-TAIL:]}"


def run_duration(run: Metadata, now: datetime) -> str:
    """The duration of a run, so far if it has not ended."""
    if run.started_at is None:
        return NO_VALUE
    return span(max((run.ended_at or now) - run.started_at, timedelta()))


def changes(entry: AuditEntry) -> Iterator[tuple[str, str, str]]:
    """The names an action changed, with their values before and after."""
    before, after = _as_dict(entry.before), _as_dict(entry.after)
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name), after.get(name)
        if old != new:
            yield str(name), _brief(old), _brief(new)


def _as_dict(side: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", side) if isinstance(side, dict) else {"": side}


def _brief(value: Any) -> str:
    text = value if isinstance(value, str) else "none" if value is None else json.dumps(value, default=str)
    return text if len(text) <= BRIEF else f"{text[: BRIEF - 1]}…"


DAYS: Final = ("Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sundays")
SHOWN_DATES: Final = 8
LONGEST_NUMBER: Final = 18


def duration(name: str, text: str) -> timedelta | None:
    """Parse a duration; None for an empty text."""
    if not text:
        return None
    try:
        found = parse_duration(text)
    except ValueError as error:
        raise DefinitionError(f"{name}: {error} (got {format_value(text)})") from None
    if not is_duration(found):
        raise DefinitionError(f"{name}: it must be from 0 s to 68 years (got {format_value(text)})")
    return found


def whole_number(name: str, text: str) -> int | None:
    """Parse a whole number, 0 or more; None for an empty text."""
    number = parse_whole(text)
    if text and number is None:
        raise TraxError(f"{name}: {format_value(text)} is not a whole number of 0 or more")
    return number


def parse_moment(text: str) -> datetime | None:
    """Parse a time such as 2027-03-01T12:00, in UTC if it names no zone; None if it is not one."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return moment if is_moment(moment) else None


def parse_whole(text: str) -> int | None:
    """Parse a whole number; None if it is not one, or has too many digits for an id."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= LONGEST_NUMBER
    return int(text) if is_number else None


def describe_exclusion(exclusion: Exclusion) -> str:
    """Describe an exclusion in one line."""
    match exclusion:
        case DaysOfWeek(days):
            return "on " + _join_words([DAYS[day] for day in sorted(days)])
        case Dates(dates):
            texts = [f"{date:%Y-%m-%d}" for date in sorted(dates)]
            more = len(texts) - SHOWN_DATES
            return "on " + _join_words([*texts[:SHOWN_DATES], *([f"{more} more dates"] if more > 0 else [])])
        case DateRange(start, end):
            return f"from {start:%Y-%m-%d} to {end:%Y-%m-%d}"
        case TimeWindow(start, end):
            return f"from {start:%H:%M} to {end:%H:%M}"
        case Calendar(name, windows, only):
            inside = "; ".join(map(describe_exclusion, windows))
            return f"{'outside' if only else 'within'} the calendar {name} ({inside})"


def _join_words(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


PIECES: Final = re.compile(
    r'(?P<k>"(?:[^"\\]|\\.)*"(?=\s*:))|(?P<s>"(?:[^"\\]|\\.)*")|(?P<n>-?\d[\d.eE+-]*)|(?P<w>true|false|null)'
)
SHOWN_CHARACTERS: Final = 4_000
SHOWN_PIECES: Final = 250
"""Longer values are cut, so that the page loads fast; the full JSON is one link away."""


class Piece(NamedTuple):
    """A piece of text and its kind: `k`ey, `s`tring, `n`umber, `w`ord, or empty."""

    kind: str
    text: str


def json_pieces(value: Any) -> list[Piece]:
    """Format a value as indented JSON in pieces; long values are cut."""
    whole = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    text = whole[:SHOWN_CHARACTERS]
    pieces: list[Piece] = []
    end = 0
    matches = list(islice(PIECES.finditer(text), SHOWN_PIECES + 1))
    for match in matches[:SHOWN_PIECES]:
        if match.start() > end:
            pieces.append(Piece("", text[end : match.start()]))
        pieces.append(Piece(match.lastgroup or "", match.group()))
        end = match.end()
    if len(matches) <= SHOWN_PIECES:
        pieces.append(Piece("", text[end:]))
        end = len(text)
    if end < len(whole):
        pieces.append(Piece("", f"\n… {len(whole) - end:,} characters more"))
    return [piece for piece in pieces if piece.text]
