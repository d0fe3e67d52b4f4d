"""Values that no caller means well with: what breaks programs that did not think of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

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
