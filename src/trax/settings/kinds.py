"""Types of settings: their bounds, and the parsing of text from environment variables."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from trax.bounds import (
    LARGEST_COUNT,
    LARGEST_MULTIPLIER,
    LONGEST_DURATION,
    LONGEST_NAME,
    MAX_SLOTS,
    PRIORITY_MAX,
)
from trax.clock import TextDuration, format_duration

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
MOST_NAMES = 1_000


class Effective(StrEnum):
    """When running servers apply an operator's change. Most settings are read in every cycle."""

    NEXT_CYCLE = "next cycle"
    NEXT_SEEDING = "next seeding"
    NEXT_START = "next start"
    FIXED = "set in code or environment only"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The minimum and maximum of a setting; `is_above`: the minimum itself is excluded."""

    least: Any
    most: Any
    is_above: bool = False

    def __str__(self) -> str:
        least, most = _format_bound(self.least), _format_bound(self.most)
        return f"above {least}, up to {most}" if self.is_above else f"from {least} to {most}"


class SettingOrigin(StrEnum):
    """Where the value of a setting comes from; the later source wins."""

    DEFAULT = "default"
    CODE = "code"
    ENVIRONMENT = "environment"
    OPERATOR = "operator"


def _format_bound(value: Any) -> str:
    if isinstance(value, timedelta):
        return "68 years" if value == LONGEST_DURATION else format_duration(value)
    return f"{value:g}" if isinstance(value, float) else f"{value:,}"


def _split_names(value: Any) -> Any:
    """`TRAX_METADATA_CLEANUP_TRAINS=sync,load` are two names."""
    if value is None:
        return ()
    return [word.strip() for word in value.split(",") if word.strip()] if isinstance(value, str) else value


def _parse_labels(value: Any) -> Any:
    """`TRAX_HOST_LABELS=zone=b,team=etl` are two labels."""
    if not isinstance(value, str):
        return value or {}
    pairs = (word.partition("=") for word in _split_names(value))
    return {name.strip(): label.strip() for name, _, label in pairs}


def _parse_level(value: Any) -> Any:
    """Accept Python's names of log levels too."""
    if not isinstance(value, str):
        return value
    return {"info": "information", "warn": "warning"}.get(value.lower(), value.lower())


def _check_printable(value: str) -> str:
    """The value is shown in rows, log lines and pages; an environment variable may contain any bytes."""
    if not value.isprintable():
        raise ValueError("it has characters that cannot be printed")
    return value


# A value below the minimum of the first three becomes the minimum; one above their maximum is refused.
# Boost is clamped on both sides.
AtLeastOne = Annotated[int, AfterValidator(lambda value: max(1, value)), Field(ge=1, le=LARGEST_COUNT)]
NonNegative = Annotated[int, AfterValidator(lambda value: max(0, value)), Field(ge=0, le=LARGEST_COUNT)]
Slots = Annotated[int, AfterValidator(lambda value: max(1, value)), Field(ge=1, le=MAX_SLOTS)]
Boost = Annotated[
    int, AfterValidator(lambda value: min(max(0, value), PRIORITY_MAX)), Field(ge=0, le=PRIORITY_MAX)
]
LimitCount = Annotated[int, Field(ge=0, le=LARGEST_COUNT)]
Multiplier = Annotated[float, Field(ge=1.0, le=LARGEST_MULTIPLIER, allow_inf_nan=False)]
LoopInterval = Annotated[TextDuration, Field(ge=SECOND / 10, le=DAY)]
HeartbeatInterval = Annotated[TextDuration, Field(ge=SECOND / 10, le=HOUR)]
GracePeriod = Annotated[TextDuration, Field(ge=timedelta(0), le=DAY)]
Duration = Annotated[TextDuration, Field(gt=timedelta(0), le=LONGEST_DURATION)]
AuditPeriod = Annotated[TextDuration, Field(ge=30 * DAY, le=LONGEST_DURATION)]
Delay = Annotated[TextDuration, Field(ge=timedelta(0), le=LONGEST_DURATION)]
Word = Annotated[str, Field(max_length=LONGEST_NAME), AfterValidator(_check_printable)]
Names = Annotated[tuple[Word, ...], BeforeValidator(_split_names), Field(max_length=MOST_NAMES)]
Labels = Annotated[dict[Word, Word], BeforeValidator(_parse_labels), Field(max_length=MOST_NAMES)]
LogThreshold = Annotated[
    Literal["trace", "debug", "information", "warning", "error", "critical"], BeforeValidator(_parse_level)
]
