"""What a setting may hold, and what is said about it: values come as text from the environment, too."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field


class Effective(StrEnum):
    """When an operator's edit is seen by the servers that run. Most settings are read in every cycle."""

    NEXT_CYCLE = "next cycle"
    NEXT_SEEDING = "next seeding"
    NEXT_START = "next start"
    FIXED = "set in code or environment only"


class SettingOrigin(StrEnum):
    """Who says what a setting is; the later one wins."""

    DEFAULT = "default"
    CODE = "code"
    ENVIRONMENT = "environment"
    OPERATOR = "operator"


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


AtLeastOne = Annotated[int, AfterValidator(lambda value: max(1, value))]
NeverNegative = Annotated[int, AfterValidator(lambda value: max(0, value))]
Boost = Annotated[int, AfterValidator(lambda value: min(max(0, value), 31))]
Time = Annotated[timedelta, BeforeValidator(_plain_seconds)]
Interval = Annotated[Time, Field(ge=timedelta(seconds=0.1))]
Duration = Annotated[Time, Field(gt=timedelta(0))]
Delay = Annotated[Time, Field(ge=timedelta(0))]
Count = Annotated[int, Field(ge=0)]
Names = Annotated[tuple[str, ...], BeforeValidator(_words)]
Labels = Annotated[dict[str, str], BeforeValidator(_labels)]
LogThreshold = Annotated[
    Literal["trace", "debug", "information", "warning", "error", "critical"], BeforeValidator(_level)
]
