"""Is it due, and when to look again. No clock is read: `now` is an argument."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from trax.errors import DefinitionError
from trax.records.states import ScheduleType
from trax.schedule.answers import Answer, Fire, Never, Wait
from trax.schedule.exclusions import first_allowed
from trax.schedule.pace import pace_of
from trax.schedule.regular import counted_from, look_at_regular
from trax.schedule.variance import jittered

if TYPE_CHECKING:
    from datetime import datetime
    from random import Random

    from trax.records.when import Timing

__all__ = [
    "LEFT_TO_OTHERS",
    "Answer",
    "Fire",
    "Never",
    "Upcoming",
    "Wait",
    "after_cancellation",
    "after_success",
    "first_look",
    "is_ahead",
    "look",
    "next_overlapping",
]


LEFT_TO_OTHERS: Final = timedelta(minutes=5)
"""When a manifest is looked at again that this server cannot evaluate: another may lead by then."""
REGULAR: Final = (ScheduleType.CRON, ScheduleType.INTERVAL)
BY_TIME: Final = (*REGULAR, ScheduleType.ONCE)


class Upcoming(NamedTuple):
    """What is written to a manifest when a run of it has ended; None means unset."""

    next_scheduled_run: datetime | None
    next_due_at: datetime | None


def look(timing: Timing, now: datetime) -> Answer:
    """Whether a manifest should run now, else when to look again.

    What cannot be evaluated (an expression or a zone that this server does not know) never runs here, and
    hurts nobody else.
    """
    if timing.broken:
        return Never(timing.broken, unreadable=timing.schedule_type in BY_TIME)
    try:
        return _put_off(timing, _regardless_of_exclusions(timing, now), now)
    except DefinitionError as broken:
        return Never(str(broken), unreadable=timing.schedule_type in BY_TIME)


def after_success(timing: Timing, ended_at: datetime, random: Random) -> Upcoming:
    """A success starts the count again, and throws the dice where there is variance."""
    succeeded = timing._replace(last_successful_run=ended_at, next_scheduled_run=None)
    variance = timing.schedule.variance_seconds if timing.schedule else None
    base = _next_regular(succeeded, counted_from(succeeded) or ended_at) if variance else None
    return _upcoming(succeeded, base and jittered(base, variance, random), ended_at)


def after_cancellation(timing: Timing, ended_at: datetime) -> Upcoming:
    """The next regular occurrence after the run's end: else what timed out would be due again at once.

    One run among several that overlap holds nothing up. What was to run once and was stopped stays stopped,
    unless its moment is still to come: then it was a run started by hand.
    """
    if timing.schedule_type is ScheduleType.ONCE:
        is_over = not is_ahead(timing, ended_at)
        return Upcoming(None, None) if is_over else _upcoming(timing, timing.scheduled_at, ended_at)
    if timing.max_instances > 1:
        return _upcoming(timing, timing.next_scheduled_run, ended_at)
    return _upcoming(timing, _next_regular(timing, ended_at), ended_at)


def is_ahead(timing: Timing, now: datetime) -> bool:
    """Whether what is to run once has not succeeded yet, and its moment is still to come."""
    is_later = timing.scheduled_at is not None and timing.scheduled_at > now
    return is_later and timing.last_successful_run is None


def first_look(
    timing: Timing, start: Literal["now", "next_occurrence"] | None, now: datetime
) -> datetime | None:
    """The moment to set beforehand for a manifest that has not run: None when it may run at once.

    Where code does not say, an interval begins at once, and cron at its first occurrence.
    """
    waits = timing.schedule_type is ScheduleType.CRON if start is None else start == "next_occurrence"
    return _next_regular(timing, now) if waits else None


def next_overlapping(timing: Timing, queued_for: datetime | None, now: datetime) -> datetime | None:
    """While an entry waits in the queue: the next occurrence that gets an entry of its own.

    None where runs do not overlap: there the end of the run says what comes next.
    """
    if timing.max_instances == 1 or timing.schedule_type not in REGULAR:
        return None
    if timing.broken:
        return now + LEFT_TO_OTHERS
    try:
        return pace_of(timing, anchor=queued_for or now).next_after(now)
    except DefinitionError:
        return now + LEFT_TO_OTHERS


def _regardless_of_exclusions(timing: Timing, now: datetime) -> Answer:
    return (
        _look_at_once(timing, now)
        if timing.schedule_type is ScheduleType.ONCE
        else look_at_regular(timing, now)
    )


def _look_at_once(timing: Timing, now: datetime) -> Answer:
    if timing.scheduled_at is None:
        return Never("it is to run once, but no moment is set")
    if timing.last_successful_run is not None:
        return Never("it was to run once, and has")
    return Fire(timing.scheduled_at) if timing.scheduled_at <= now else Wait(timing.scheduled_at)


def _put_off(timing: Timing, answer: Answer, now: datetime) -> Answer:
    """The answer, moved to where no exclusion holds."""
    if isinstance(answer, Never) or not timing.exclusions:
        return answer
    wanted = now if isinstance(answer, Fire) else answer.until
    allowed = first_allowed(timing.exclusions, timing.time_zone, wanted)
    if allowed is None:
        return Never("its exclusions leave no moment free within ten years")
    return answer if allowed == wanted else Wait(allowed)


def _next_regular(timing: Timing, after: datetime) -> datetime | None:
    try:
        return pace_of(timing, anchor=after).next_after(after)
    except DefinitionError:
        return None


def _upcoming(timing: Timing, planned: datetime | None, now: datetime) -> Upcoming:
    match look(timing._replace(next_scheduled_run=planned), now):
        case Fire():
            return Upcoming(planned, now)
        case Wait(until):
            return Upcoming(planned, until)
        case Never(unreadable=True):
            return Upcoming(planned, now)  # the manager looks: its server may know more than this one
        case Never():
            return Upcoming(None, None)
