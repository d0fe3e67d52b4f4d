"""The next moments of both sides, and in how far they agree."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from trax.cli.importing.foreign import Foreign
from trax.records.states import MisfirePolicy
from trax.records.when import Interval, Misfire, Timing
from trax.schedule.due import first_look
from trax.schedule.occasion import type_of
from trax.schedule.options import options_of
from trax.schedule.preview import previewed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trax.records.when import Schedule

COMPARED: Final = 10


@dataclass(frozen=True, slots=True)
class Compared:
    """One schedule, and when it runs next on our side."""

    foreign: Foreign
    ours: tuple[datetime, ...]

    @property
    def agrees(self) -> bool:
        return self.foreign.theirs == self.ours

    @property
    def verdict(self) -> str:
        """`10 of 10 agree`, or what is to be said instead."""
        theirs = self.foreign.theirs
        if self.foreign.when is None:
            return "by hand"
        if theirs is None:
            return "not compared"
        if not theirs and not self.ours:
            return "never again"
        shift = _shift(theirs, self.ours) if isinstance(self.foreign.when, Interval) else None
        if shift:
            return f"same distance, {shift} apart"
        both = {*theirs} & {*self.ours}
        return f"{len(both)} of {max(len(theirs), len(self.ours))} agree"


def compared(found: Sequence[Foreign], now: datetime) -> list[Compared]:
    return [Compared(one, our_moments(one, now)) for one in found]


def our_moments(one: Foreign, now: datetime) -> tuple[datetime, ...]:
    """The next moments here, if every run took no time and succeeded."""
    if one.when is None:
        return ()
    if isinstance(one.when, datetime):
        return (one.when,) if one.when > now else ()
    timing = _timing(one, one.when, now)
    timing = timing._replace(next_scheduled_run=first_look(timing, "next_occurrence", now))
    return tuple(run.at for run in previewed(timing, now, COMPARED))


def _timing(one: Foreign, schedule: Schedule, now: datetime) -> Timing:
    options = options_of(one.external_id, one.options)
    policy, limit = options.on_misfire
    misfire = Misfire(policy or MisfirePolicy.FIRE_ONCE_NOW, limit=limit)
    if options.misfire_threshold is not None:
        misfire = replace(misfire, threshold=options.misfire_threshold)
    return Timing(
        schedule_type=type_of(schedule),
        schedule=schedule,
        exclusions=options.exclude,
        time_zone="UTC" if isinstance(schedule, Interval) else schedule.time_zone,
        misfire=misfire,
        created_at=now,
    )


def _shift(theirs: Sequence[datetime], ours: Sequence[datetime]) -> timedelta | None:
    """How far apart the two are, where it is always the same; None when they differ otherwise."""
    apart = {mine - other for mine, other in zip(ours, theirs, strict=False)}
    return abs(apart.pop()) if len(apart) == 1 and len(theirs) == len(ours) else None
