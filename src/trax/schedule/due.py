"""Decide whether a manifest is due, and when to check it again. No clock is read: `now` is an argument."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from trax.errors import DefinitionError
from trax.records.states import ScheduleType
from trax.schedule.every import add_jitter
from trax.schedule.exclusions import first_allowed
from trax.schedule.misfire import DueStatus, Fire, Never, Wait, base_time, check_regular, schedule_moments

if TYPE_CHECKING:
    from datetime import datetime
    from random import Random

    from trax.records.schedule import Timing

__all__ = [
    "UNREADABLE_RECHECK_DELAY",
    "DueStatus",
    "Fire",
    "Never",
    "NextRun",
    "Wait",
    "after_cancellation",
    "after_success",
    "check_due",
    "first_scheduled_run",
    "is_pending_once",
    "next_overlapping_occurrence",
]


UNREADABLE_RECHECK_DELAY: Final = timedelta(minutes=5)
"""When to check again a manifest that this server cannot evaluate: another may be the leader by then."""
REGULAR_TYPES: Final = (ScheduleType.CRON, ScheduleType.INTERVAL)
TIMED_TYPES: Final = (*REGULAR_TYPES, ScheduleType.ONCE)


class NextRun(NamedTuple):
    """The next run to store in a manifest when one of its runs has ended; None clears the column."""

    next_scheduled_run: datetime | None
    next_due_at: datetime | None


def check_due(timing: Timing, now: datetime) -> DueStatus:
    """Whether a manifest should run now, else when to check again.

    A schedule that cannot be evaluated (invalid expression, unknown time zone) never runs on this server and
    does not affect other manifests.
    """
    if timing.broken:
        return Never(timing.broken, unreadable=timing.schedule_type in TIMED_TYPES)
    try:
        return _apply_exclusions(timing, _check_without_exclusions(timing, now), now)
    except DefinitionError as broken:
        return Never(str(broken), unreadable=timing.schedule_type in TIMED_TYPES)


def after_success(timing: Timing, ended_at: datetime, random: Random) -> NextRun:
    """The next run after a success: counted from the success, with variance applied."""
    succeeded = timing._replace(last_successful_run=ended_at, next_scheduled_run=None)
    variance = timing.schedule.variance_seconds if timing.schedule else None
    base = _next_regular(succeeded, base_time(succeeded) or ended_at) if variance else None
    return _next_run(succeeded, base and add_jitter(base, variance, random), ended_at)


def after_cancellation(timing: Timing, ended_at: datetime) -> NextRun:
    """The next regular occurrence after the end of a cancelled run; otherwise a timeout would be due at once.

    With overlapping runs, one cancellation does not postpone the next run. A manifest that runs once is not
    run again, unless its time is still to come: then the cancelled run was a manual one.
    """
    if timing.schedule_type is ScheduleType.ONCE:
        is_over = not is_pending_once(timing, ended_at)
        return NextRun(None, None) if is_over else _next_run(timing, timing.scheduled_at, ended_at)
    if timing.max_instances > 1:
        return _next_run(timing, timing.next_scheduled_run, ended_at)
    return _next_run(timing, _next_regular(timing, ended_at), ended_at)


def is_pending_once(timing: Timing, now: datetime) -> bool:
    """Whether a manifest that runs once has not succeeded yet, and its time is still to come."""
    is_later = timing.scheduled_at is not None and timing.scheduled_at > now
    return is_later and timing.last_successful_run is None


def first_scheduled_run(
    timing: Timing, start: Literal["now", "next_occurrence"] | None, now: datetime
) -> datetime | None:
    """The scheduled time of the first run of a new manifest; None when it may run at once.

    Without a `start` option an interval runs at once, and cron at its first occurrence.
    """
    waits = timing.schedule_type is ScheduleType.CRON if start is None else start == "next_occurrence"
    return _next_regular(timing, now) if waits else None


def next_overlapping_occurrence(
    timing: Timing, queued_for: datetime | None, now: datetime
) -> datetime | None:
    """The next occurrence that gets its own entry while another entry is queued.

    None without overlapping runs: there the end of the run decides the next one.
    """
    if timing.max_instances == 1 or timing.schedule_type not in REGULAR_TYPES:
        return None
    if timing.broken:
        return now + UNREADABLE_RECHECK_DELAY
    try:
        return schedule_moments(timing, anchor=queued_for or now).next_after(now)
    except DefinitionError:
        return now + UNREADABLE_RECHECK_DELAY


def _check_without_exclusions(timing: Timing, now: datetime) -> DueStatus:
    return (
        _check_once(timing, now) if timing.schedule_type is ScheduleType.ONCE else check_regular(timing, now)
    )


def _check_once(timing: Timing, now: datetime) -> DueStatus:
    if timing.scheduled_at is None:
        return Never("it runs once, but no time is set")
    if timing.last_successful_run is not None:
        return Never("it runs once and has already succeeded")
    return Fire(timing.scheduled_at) if timing.scheduled_at <= now else Wait(timing.scheduled_at)


def _apply_exclusions(timing: Timing, status: DueStatus, now: datetime) -> DueStatus:
    """Postpone the start to the first time that no exclusion covers."""
    if isinstance(status, Never) or not timing.exclusions:
        return status
    start = now if isinstance(status, Fire) else status.until
    allowed = first_allowed(timing.exclusions, timing.time_zone, start)
    if allowed is None:
        return Never("its exclusions allow no start within ten years")
    return status if allowed == start else Wait(allowed)


def _next_regular(timing: Timing, after: datetime) -> datetime | None:
    try:
        return schedule_moments(timing, anchor=after).next_after(after)
    except DefinitionError:
        return None


def _next_run(timing: Timing, planned: datetime | None, now: datetime) -> NextRun:
    match check_due(timing._replace(next_scheduled_run=planned), now):
        case Fire():
            return NextRun(planned, now)
        case Wait(until):
            return NextRun(planned, until)
        case Never(unreadable=True):
            return NextRun(planned, now)  # checked by the manager, whose server may be able to evaluate it
        case Never():
            return NextRun(None, None)
