"""Hostile values: those that break careless programs."""

from __future__ import annotations

import json
import os
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any, Final

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

WANTED: Final = os.environ.get("TRAX_HOSTILE_EXAMPLES")
"""`TRAX_HOSTILE_EXAMPLES=2000 pytest -k hostile` tries every value everywhere, and draws that many more."""
SAMPLE: Final = 10_000 if WANTED else 2
"""How many of the known values each place is tried with; which ones differs from place to place."""
IN_THE_WEB: Final = 10_000 if WANTED else 6
"""The same for an address or a body, on each dialect: a quarter of the known values."""
DRAWN: Final = settings(
    max_examples=int(WANTED or 15),
    derandomize=not (WANTED or os.environ.get("CI")),
    deadline=None,
    database=None,
    print_blob=True,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)

IDS: Final[tuple[Any, ...]] = (-1, 2**63, 2**70, -(2**70), 10**5000, True, 1.5, float("nan"), "1")
MOMENTS: Final[tuple[Any, ...]] = (
    datetime.min.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
    datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=12))),
    datetime(2027, 1, 1),  # noqa: DTZ001
    "now",
    1e300,
)
NAMES: Final[tuple[Any, ...]] = ("x" * 201, "x" * 100_000, 7, b"ada", ["ada"])
DURATIONS: Final[tuple[Any, ...]] = (
    timedelta.max,
    timedelta.min,
    timedelta(days=40_000),
    -timedelta(seconds=1),
    float("inf"),
    float("nan"),
    60,
    "60",
)
NUMBERS: Final[tuple[Any, ...]] = (-1, 2**31, 2**63, 10**400, 10**5000, float("nan"), float("inf"), True, "1")

MARKUP: Final = "\"'><img/src=x/onerror=alert(1)><script>alert(2)</script>{{7*7}}"
"""Shown as it is, it would be a picture and a script."""

IN_ADDRESSES: Final = (
    "%00",
    "a%00b",
    "%ED%A0%80",
    "%FF",
    "%C0%AF",
    "",
    "x" * 300,
    "-1",
    "9223372036854775808",
    "-9223372036854775809",
    "9" * 30,
    "9" * 5000,
    "1e400",
    "NaN",
    "Infinity",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00%2B14:00",
    "9999-12-31T23:59:59-12:00",
    "9999-12-31T23:59:59.999999Z",
    "%E2%80%AE",
    "..",
    "a%2Fb",
    "%D9%A1",
    "%27%3B%20DROP%20TABLE%20trax_metadata%3B%20--",
    "%27%20OR%20%271%27%3D%271",
    "%22%27%3E%3Csvg%20onload%3Dalert%281%29%3E",
    "%7B%7B7*7%7D%7D",
)
"""Written as they stand in an address."""

IN_BODIES: Final[tuple[Any, ...]] = (
    -1,
    2**31,
    2**63,
    2**70,
    10**400,
    1e308,
    True,
    None,
    "",
    "a\x00b",
    "x" * 5000,
    [],
    {},
    {"self": 1},
    {"": 1},
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-12:00",
    "P99999999999D",
    "\u202e",
    "'; DROP TABLE trax_metadata; --",
    MARKUP,
)
"""In the place of any field."""

DEEP: Final = b"[" * 100_000 + b"]" * 100_000
BODIES: Final = (
    b"",
    b"nul",
    b"\xff\xfe",
    b"null",
    b"[]",
    DEEP,
    b"[" * 100_000,
    b'{"input": ' + b"[" * 500 + b"]" * 500 + b"}",
    b'{"input": ' + DEEP + b"}",
    b'{"input": "\\ud800"}',
    b'{"input": {"customer": ["\\udfff"]}}',
    b'{"\\ud800": 1}',
    b'{"input": "\xed\xa0\x80"}',
    b'{"input": NaN}',
    b'{"input": -Infinity}',
    b'{"input": 1e999}',
    b'{"input": ' + b"9" * 10_000 + b"}",
    b'{"self": 1}',
    b'{"ids": [' + b"9" * 5000 + b"]}",
    b'{"ids": [1], "note": "\\ud800"}',
    b'{"names": ["\\ud800"]}',
    b'{"capture_logs_except": ["\\ud800"]}',
    b'{"capture_logs_except": ["\\u0000"]}',
    b'{"default_job_timeout": 1e300}',
    json.dumps({"max_active_jobs": 10**400}).encode(),
)
"""Whole bodies, as bytes."""


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def endless() -> list[Any]:
    """A list that contains itself, twice."""
    value: list[Any] = []
    value += [value, value]
    return value


class Mute:
    """Cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


TEXTS: Final = (
    "",
    " ",
    "a\x00b",
    "\ud800",
    "\u202e",
    "\x1b[31m",
    "a\nb",
    "\u0661",
    "x" * 201,
    "x" * 100_000,
    "'; DROP TABLE trax_metadata; --",
    "<script>alert(1)</script>",
    "{{7*7}}%s%n{0}",
    "../../etc/passwd",
    "nonsense",
)
ANYTHING: Final[tuple[Any, ...]] = (
    *(None, True, 0, 1, 1.5, 1e308, 1j, Decimal("NaN"), ..., object(), Mute(), int, len),
    *(*IDS, *MOMENTS, *DURATIONS, *TEXTS, date(2027, 1, 1), ValueError("x"), b"ada"),
    *([], {}, {1}, (1, 2), [None], ["a\x00b"], ["\ud800"], [""], [2**70], [object()], ["x" * 201]),
    *({"self": 1}, {1: 2}, {"a\x00": "\ud800"}, {"a": "b"}, list(range(10_001)), nested(5_000), endless()),
)
"""In the place of any argument in Python."""
WORDS: Final = (
    *(text for text in TEXTS if "\x00" not in text),  # no command line has a NUL
    *("-", "--", "-1", "9" * 19, "9" * 5000, "1e400", "nan", "inf", "=", "a=b", "=1", "/", ".", "/nowhere"),
    *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "P99999999999D", "9" * 20 + "d"),
    *(
        "{}",
        "[]",
        "null",
        "[" * 100_000,
        '{"a":' * 3_000,
        '"\\ud800"',
        '{"name": "\\u0000"}',
        '{"name": NaN}',
    ),
    *("max_active_jobs=", "max_active_jobs=" + "9" * 5000, "polling_interval=1e400", "capture_logs_except=["),
    *("a:b", "os:path", "nowhere.py:app", "run:", "run:" + "9" * 30, "entry:9"),
    *("sqlite:///", "sqlite:////nowhere/trax.db", "mysql://x", "postgresql://", "://", "http://["),
)
"""On a command line."""

texts: Final = st.text(st.characters(exclude_categories=()), max_size=50)
"""Any characters: also control characters, and half of a surrogate pair."""
json_values: Final[st.SearchStrategy[Any]] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)
"""What Python's JSON module writes, which is more than JSON."""
anything: Final[st.SearchStrategy[Any]] = st.one_of(
    st.sampled_from(ANYTHING),
    json_values,
    st.binary(max_size=20),
    st.datetimes(timezones=st.none() | st.just(UTC)),
    st.timedeltas(),
    st.decimals(),
    st.complex_numbers(),
    st.tuples(texts, st.integers()),
    st.frozensets(st.integers() | texts, max_size=4),
)
words: Final = st.sampled_from(WORDS) | texts.map(lambda text: text.replace("\x00", ""))


def sample(place: str, values: Sequence[Any], size: int = SAMPLE) -> list[Any]:
    """Some of these values, always the same ones for the same place."""
    return Random(place).sample(values, min(size, len(values)))  # noqa: S311 - it must be the same each time
