"""What a setting may hold, and what is said about it: values come as text from the environment, too."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from trax.bounds import LARGEST_COUNT, LARGEST_MULTIPLIER, LONGEST, LONGEST_NAME, MOST_SLOTS, PRIORITY_MAX

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
UNITS = (("years", 365 * DAY), ("day", DAY), ("h", HOUR))
MOST_NAMES = 1_000


class Effective(StrEnum):
    """When an operator's edit is seen by the servers that run. Most settings are read in every cycle."""

    NEXT_CYCLE = "next cycle"
    NEXT_SEEDING = "next seeding"
    NEXT_START = "next start"
    FIXED = "set in code or environment only"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the most that a setting may be; `is_above`: the least itself is too little."""

    least: Any
    most: Any
    is_above: bool = False

    def __str__(self) -> str:
        least, most = _plain_words(self.least), _plain_words(self.most)
        return f"above {least}, up to {most}" if self.is_above else f"from {least} to {most}"


class SettingOrigin(StrEnum):
    """Who says what a setting is; the later one wins."""

    DEFAULT = "default"
    CODE = "code"
    ENVIRONMENT = "environment"
    OPERATOR = "operator"


def _plain_words(value: Any) -> str:
    """A bound as it is said: in the largest unit that leaves no fraction."""
    if not isinstance(value, timedelta):
        return f"{value:g}" if isinstance(value, float) else f"{value:,}"
    for unit, size in UNITS:
        if value >= size and not value % size:
            return f"{value // size} {unit}"
    return f"{value.total_seconds():g} s"


def _plain_seconds(value: Any) -> Any:
    """`TRAX_DEFAULT_JOB_TIMEOUT=90` means seconds; `PT90S` and `00:01:30` work as well."""
    return float(value) if isinstance(value, str) and value.replace(".", "", 1).isdigit() else value


def _words(value: Any) -> Any:
    """`TRAX_METADATA_CLEANUP_TRAINS=sync,load` means two names."""
    if value is None:
        return ()
    return [word.strip() for word in value.split(",") if word.strip()] if isinstance(value, str) else value


def _labels(value: Any) -> Any:
    """`TRAX_HOST_LABELS=zone=b,team=etl` means two labels."""
    if not isinstance(value, str):
        return value or {}
    return {name.strip(): said.strip() for name, _, said in (word.partition("=") for word in _words(value))}


def _level(value: Any) -> Any:
    """Python's own name for a level is as good as ours."""
    if not isinstance(value, str):
        return value
    return {"info": "information", "warn": "warning"}.get(value.lower(), value.lower())


def _check_printable(value: str) -> str:
    """It stands in rows, log lines and pages; the environment may hold any bytes."""
    if not value.isprintable():
        raise ValueError("it has characters that cannot be printed")
    return value


# A number below the first three is moved to the nearest that works; one above what they allow is refused.
AtLeastOne = Annotated[int, AfterValidator(lambda value: max(1, value)), Field(ge=1, le=LARGEST_COUNT)]
NeverNegative = Annotated[int, AfterValidator(lambda value: max(0, value)), Field(ge=0, le=LARGEST_COUNT)]
Slots = Annotated[int, AfterValidator(lambda value: max(1, value)), Field(ge=1, le=MOST_SLOTS)]
Boost = Annotated[
    int, AfterValidator(lambda value: min(max(0, value), PRIORITY_MAX)), Field(ge=0, le=PRIORITY_MAX)
]
Count = Annotated[int, Field(ge=0, le=LARGEST_COUNT)]
Multiplier = Annotated[float, Field(ge=1.0, le=LARGEST_MULTIPLIER, allow_inf_nan=False)]
Time = Annotated[timedelta, BeforeValidator(_plain_seconds)]
Interval = Annotated[Time, Field(ge=SECOND / 10, le=DAY)]
Beat = Annotated[Time, Field(ge=SECOND / 10, le=HOUR)]
Patience = Annotated[Time, Field(ge=timedelta(0), le=DAY)]
Duration = Annotated[Time, Field(gt=timedelta(0), le=LONGEST)]
Delay = Annotated[Time, Field(ge=timedelta(0), le=LONGEST)]
Word = Annotated[str, Field(max_length=LONGEST_NAME), AfterValidator(_check_printable)]
Names = Annotated[tuple[Word, ...], BeforeValidator(_words), Field(max_length=MOST_NAMES)]
Labels = Annotated[dict[Word, Word], BeforeValidator(_labels), Field(max_length=MOST_NAMES)]
LogThreshold = Annotated[
    Literal["trace", "debug", "information", "warning", "error", "critical"], BeforeValidator(_level)
]
