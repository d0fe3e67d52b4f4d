"""One job of another scheduler, with its schedule and options in Trax."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import PydanticSerializationError, to_jsonable_python

from trax.bounds import LONGEST_DURATION
from trax.records.when import Interval, Schedule
from trax.schedule.every import every

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST_ID: Final = 60
NO_LIMIT: Final = timedelta(days=LONGEST_DURATION.days)
"""The longest possible timeout, 68 years; without a timeout, `default_job_timeout` applies."""


@dataclass(frozen=True, slots=True)
class Command:
    """A shell command with its stdin and environment."""

    line: str
    stdin: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedJob:
    """A job of another scheduler.

    `when` is a schedule, a single moment, or None if it cannot be converted: then it becomes a manifest that
    runs on demand only, so that no job is dropped silently. `options` are schedule options, apart from the
    `timeout`. `theirs` are the next run times by the other scheduler; None if unknown.
    """

    external_id: str
    task: str
    schedule_text: str
    when: Schedule | datetime | None = None
    input: Any = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    timeout: timedelta = NO_LIMIT
    remarks: tuple[str, ...] = ()
    theirs: tuple[datetime, ...] | None = None


def with_unique_ids(jobs: Iterable[ImportedJob]) -> list[ImportedJob]:
    """The same jobs, each with a valid and unique external id."""
    taken: set[str] = set()
    unique: list[ImportedJob] = []
    for job in jobs:
        base = name = _slug(job.external_id)
        count = 1
        while name in taken:
            count += 1
            name = f"{base}-{count}"
        taken.add(name)
        unique.append(replace(job, external_id=name))
    return unique


def to_plain_data(value: Any) -> tuple[Any, tuple[str, ...]]:
    """A value as JSON data, or None and a remark if it cannot be converted."""
    try:
        return to_jsonable_python(value), ()
    except (PydanticSerializationError, ValueError):
        return None, (f"arguments {value!r} are not plain data; write them into the train",)


def task_input(args: Iterable[Any], kwargs: Mapping[str, Any]) -> tuple[Any, tuple[str, ...]]:
    """The arguments of a task as one input: None, a list, a mapping, or a mapping of both."""
    positional, named = list(args), dict(kwargs)
    if positional and named:
        return to_plain_data({"args": positional, "kwargs": named})
    return to_plain_data(positional or named or None)


def interval_schedule(interval: timedelta) -> tuple[Interval, tuple[str, ...]]:
    """The interval in whole seconds, and a remark if it was rounded."""
    exact = interval.total_seconds()
    seconds = max(1, ceil(exact))
    remarks = (
        () if seconds == exact else (f"every {exact:g} s becomes {seconds} s: Trax needs whole seconds",)
    )
    return every(seconds=seconds, anchored=True), remarks


def _slug(name: str) -> str:
    """A valid external id: words joined by dashes."""
    words = re.sub(r"[^\w.:@+-]+", "-", name).strip("-.")
    return words[:LONGEST_ID].rstrip("-.") or "job"
