"""How large a number, how long a time and how far a moment may be: declared here, checked where each enters.

What is within these bounds fits its column in both databases, and no sum of two of them leaves the range of
Python's dates. What is beyond is refused with the bound, and never reaches a driver.
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
LONGEST: Final = timedelta(days=68 * 365)
"""No wait, time limit, interval or retention is longer than 68 years: in seconds it has 31 bits."""
LONGEST_SECONDS: Final = 68 * 365 * 86_400
EARLIEST: Final = datetime(1900, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(2999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
LARGEST_MULTIPLIER: Final = 1_000.0
"""By how much each wait before a retry may be longer than the one before."""
MOST_SLOTS: Final = 10_000
"""How many runs one process may execute at once."""
MOST_PROCESSES: Final = 1_000
DEEPEST_JSON: Final = 100
"""How many lists and objects may stand inside each other in JSON that comes from elsewhere."""

A_MOMENT: Final = f"a datetime with a time zone, from {EARLIEST:%Y-%m-%d} to {LATEST:%Y-%m-%d}"


def is_whole(value: Any, least: int = 0, most: int = LARGEST_COUNT) -> bool:
    """Whether it is a whole number within bounds; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_id(value: Any) -> bool:
    return is_whole(value, 0, LARGEST_ID)


def is_number(value: Any, least: float, most: float) -> bool:
    """Whether it is a number within bounds; one that is not finite is within none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def is_duration(value: Any) -> bool:
    return isinstance(value, timedelta) and timedelta() <= value <= LONGEST


def is_moment(value: Any) -> bool:
    """Whether it is an aware datetime that stays within the bounds in UTC, too."""
    return isinstance(value, datetime) and value.tzinfo is not None and EARLIEST <= value <= LATEST


def load_json(text: str | bytes) -> Any:
    """The value of JSON that comes from elsewhere; ValueError says why it is none, or not one of ours.

    NaN and Infinity are not JSON. Half of a surrogate pair is no text. What is nested too deeply is refused
    before any code that walks through it can run out of stack.
    """
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError(f"it is nested more than {DEEPEST_JSON} levels deep") from None
    brackets = (b"[", b"{") if isinstance(text, bytes) else ("[", "{")
    if sum(cast("Any", text).count(one) for one in brackets) > DEEPEST_JSON and _depth(value) > DEEPEST_JSON:
        raise ValueError(f"it is nested more than {DEEPEST_JSON} levels deep")
    if (path := _path_to_half_pair(value)) is not None:
        raise ValueError(f"{path or 'the value itself'}: half of a surrogate pair is not text")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _depth(value: Any) -> int:
    """Level by level, so that depth costs no stack; it stops beyond what is allowed."""
    level: list[Any] = [value]
    for depth in range(DEEPEST_JSON + 1):
        level = [inner for one in level for inner in _inside(one).values() if isinstance(inner, dict | list)]
        if not level:
            return depth + 1
    return DEEPEST_JSON + 1


def _inside(value: Any) -> dict[Any, Any]:
    if isinstance(value, dict):
        return cast("dict[Any, Any]", value)
    return dict(enumerate(cast("list[Any]", value))) if isinstance(value, list) else {}


def _path_to_half_pair(value: Any) -> str | None:
    """Where the first one stands, or None. Writing the value is the quick way to know that there is none."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        pass
    else:
        return None
    for key, inner in _inside(value).items():
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
