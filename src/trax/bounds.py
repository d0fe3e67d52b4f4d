"""Limits for numbers, durations, moments and JSON from outside, and the functions that check them.

A value within these limits fits its column in both databases, and the sum of two of them stays in the range
of Python's dates. A value beyond them is refused where it enters, with the limit in the message.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

LARGEST_ID: Final = 2**63 - 1
"""Ids have 64 bits."""
LARGEST_COUNT: Final = 2**31 - 1
"""Counts have 32."""
PRIORITY_MAX: Final = 31
LONGEST_NAME: Final = 200
LONGEST_PAGE: Final = 1000
"""The maximum number of rows in one page of a list."""
LONGEST_DURATION: Final = timedelta(days=68 * 365)
"""The longest wait, timeout, interval or retention: 68 years, which in seconds fits 31 bits."""
LONGEST_SECONDS: Final = 68 * 365 * 86_400
EARLIEST: Final = datetime(1900, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(2999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
LARGEST_MULTIPLIER: Final = 1_000.0
"""The largest backoff factor between two retries."""
MAX_SLOTS: Final = 10_000
"""The maximum number of runs that one process may execute at once."""
MAX_PROCESSES: Final = 1_000
MAX_JSON_DEPTH: Final = 100
"""The maximum nesting depth of lists and objects in JSON from outside."""

MOMENT_TEXT: Final = f"a datetime with a time zone, from {EARLIEST:%Y-%m-%d} to {LATEST:%Y-%m-%d}"


def is_integer(value: Any, least: int = 0, most: int = LARGEST_COUNT) -> bool:
    """Whether the value is an int between `least` and `most`; a bool is not."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_id(value: Any) -> bool:
    return is_integer(value, 0, LARGEST_ID)


def is_number(value: Any, least: float, most: float) -> bool:
    """Whether the value is a finite number between `least` and `most`; a bool is not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def is_duration(value: Any) -> bool:
    return isinstance(value, timedelta) and timedelta() <= value <= LONGEST_DURATION


def duration_within_bounds(seconds: float) -> timedelta:
    """A duration from a stored number of seconds; one beyond the limits becomes the longest or zero.

    Written values are within them. A row that was edited by hand may not be, and must not stop a loop.
    """
    if not isinstance(cast("Any", seconds), int | float) or seconds != seconds:  # noqa: PLR0124 - NaN
        return LONGEST_DURATION
    return timedelta(seconds=min(max(seconds, 0.0), LONGEST_SECONDS))


def is_moment(value: Any) -> bool:
    """Whether the value is an aware datetime between EARLIEST and LATEST, compared in UTC."""
    return isinstance(value, datetime) and value.tzinfo is not None and EARLIEST <= value <= LATEST


def load_json(text: str | bytes) -> Any:
    """Parse JSON from outside; ValueError says what is wrong with it.

    Refused are NaN and Infinity, a lone surrogate, and JSON that is nested too deeply: recursive code could
    run out of stack on it.
    """
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError(f"it is nested more than {MAX_JSON_DEPTH} levels deep") from None
    brackets = (b"[", b"{") if isinstance(text, bytes) else ("[", "{")
    is_suspect = sum(cast("Any", text).count(bracket) for bracket in brackets) > MAX_JSON_DEPTH
    if is_suspect and _depth(value) > MAX_JSON_DEPTH:
        raise ValueError(f"it is nested more than {MAX_JSON_DEPTH} levels deep")
    if (path := _path_to_half_pair(value)) is not None:
        raise ValueError(f"{path or 'the value itself'}: a lone surrogate is not valid text")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _depth(value: Any) -> int:
    """The nesting depth, found level by level to use no stack; counting stops above the limit."""
    level: list[Any] = [value]
    for depth in range(MAX_JSON_DEPTH + 1):
        inner = (each for outer in level for each in _children(outer).values())
        level = [each for each in inner if isinstance(each, dict | list)]
        if not level:
            return depth + 1
    return MAX_JSON_DEPTH + 1


def _children(value: Any) -> dict[Any, Any]:
    if isinstance(value, dict):
        return cast("dict[Any, Any]", value)
    return dict(enumerate(cast("list[Any]", value))) if isinstance(value, list) else {}


def _path_to_half_pair(value: Any) -> str | None:
    """The path to the first lone surrogate, or None. Encoding the whole value is the fast check for none."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        pass
    else:
        return None
    for key, inner in _children(value).items():
        if isinstance(key, str) and not _is_text(key):
            return key.encode(errors="backslashreplace").decode()
        if (below := _path_to_half_pair(inner)) is not None:
            return f"{key}.{below}".rstrip(".")
    return ""


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
