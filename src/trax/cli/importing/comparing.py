"""Compare the next run times of both schedulers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from trax.cli.importing.foreign import ImportedJob
from trax.cli.moments import span
from trax.records.states import MisfirePolicy
from trax.records.when import Interval, Misfire, Timing
from trax.schedule.due import first_scheduled_run
from trax.schedule.occasion import schedule_type_of
from trax.schedule.options import options_of
from trax.schedule.preview import preview_runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trax.records.when import Schedule

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
            return f"same interval, shifted by {span(shift)}"
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
    apart = {mine - other for mine, other in zip(ours, theirs, strict=False)}
    return abs(apart.pop()) if len(apart) == 1 and len(theirs) == len(ours) else None
