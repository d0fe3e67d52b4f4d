"""One job of another scheduler as a manifest, and the comparison of its next run times on both sides."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import PydanticSerializationError, to_jsonable_python

from trax.bounds import LONGEST_DURATION
from trax.clock import format_duration
from trax.records.schedule import Interval, Misfire, Schedule, Timing
from trax.records.states import MisfirePolicy
from trax.schedule.declaration import options_of, schedule_type_of
from trax.schedule.due import first_scheduled_run
from trax.schedule.every import every
from trax.schedule.preview import preview_runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


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


MOMENTS_COMPARED: Final = 10


@dataclass(frozen=True, slots=True)
class Comparison:
    """One imported job, and its next run times in Trax."""

    job: ImportedJob
    ours: tuple[datetime, ...]

    @property
    def agrees(self) -> bool:
        return self.job.theirs == self.ours

    @property
    def verdict(self) -> str:
        """`10 of 10 agree`, or why they cannot be compared."""
        theirs = self.job.theirs
        if self.job.when is None:
            return "on demand only"
        if theirs is None:
            return "not compared"
        if not theirs and not self.ours:
            return "no more runs"
        shift = _shift(theirs, self.ours) if isinstance(self.job.when, Interval) else None
        if shift:
            return f"same interval, shifted by {format_duration(shift, units=2)}"
        both = {*theirs} & {*self.ours}
        return f"{len(both)} of {max(len(theirs), len(self.ours))} agree"


def compare(jobs: Sequence[ImportedJob], now: datetime) -> list[Comparison]:
    return [Comparison(one, our_moments(one, now)) for one in jobs]


def our_moments(job: ImportedJob, now: datetime) -> tuple[datetime, ...]:
    """The next run times in Trax, if every run succeeded at once."""
    if job.when is None:
        return ()
    if isinstance(job.when, datetime):
        return (job.when,) if job.when > now else ()
    timing = _build_timing(job, job.when, now)
    timing = timing._replace(next_scheduled_run=first_scheduled_run(timing, "next_occurrence", now))
    return tuple(run.at for run in preview_runs(timing, now, MOMENTS_COMPARED))


def _build_timing(job: ImportedJob, schedule: Schedule, now: datetime) -> Timing:
    options = options_of(job.external_id, job.options)
    policy, limit = options.on_misfire
    misfire = Misfire(policy or MisfirePolicy.FIRE_ONCE_NOW, limit=limit)
    if options.misfire_threshold is not None:
        misfire = replace(misfire, threshold=options.misfire_threshold)
    return Timing(
        schedule_type=schedule_type_of(schedule),
        schedule=schedule,
        exclusions=options.exclude,
        time_zone="UTC" if isinstance(schedule, Interval) else schedule.time_zone,
        misfire=misfire,
        created_at=now,
    )


def _shift(theirs: Sequence[datetime], ours: Sequence[datetime]) -> timedelta | None:
    """The constant difference of both lists; None if they differ in another way."""
    shifts = {mine - other for mine, other in zip(ours, theirs, strict=False)}
    return abs(shifts.pop()) if len(shifts) == 1 and len(theirs) == len(ours) else None
