"""What the end of a run means for its manifest. No I/O: give it the manifest and the ends, get the change."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from trax.records.ended import EndKind, Held, ManifestChange
from trax.records.retry_policy import RetryPolicy, gives_up
from trax.records.states import ScheduleType
from trax.schedule.due import REGULAR, after_cancellation, after_success, is_ahead

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from random import Random

    from trax.records.ended import ManifestEnd


def change_after(manifest: Held, ends: Iterable[ManifestEnd], random: Random) -> ManifestChange:
    """What the manifest's row says once all these runs have ended, in the order they did."""
    for end in sorted(ends, key=lambda end: end.ended_at):
        manifest = _unless_retired(_after(manifest, end, random), end)
    return ManifestChange(
        id=manifest.id,
        enabled=manifest.enabled,
        failure_count=manifest.failure_count,
        lifetime_failures=manifest.lifetime_failures,
        gave_up_reason=manifest.gave_up_reason,
        failed_metadata_id=manifest.failed_metadata_id,
        retry_at=manifest.retry_at,
        attempt_cancelled=manifest.attempt_cancelled,
        last_successful_run=manifest.timing.last_successful_run,
        next_scheduled_run=manifest.timing.next_scheduled_run,
        plan_after=manifest.timing.plan_after,
        next_due_at=manifest.next_due_at,
    )


def _unless_retired(manifest: Held, end: ManifestEnd) -> Held:
    """What is retired has no next run. A failure is looked at: it is not tried again, but reported."""
    if not manifest.is_retired:
        return manifest
    return replace(manifest, next_due_at=end.ended_at if manifest.failure_count else None)


def _after(manifest: Held, end: ManifestEnd, random: Random) -> Held:
    match end.kind:
        case EndKind.SUCCESS:
            return _succeeded(manifest, end, random)
        case EndKind.FAILURE:
            return _failed(manifest, end)
        case EndKind.CANCELLED:
            return _cancelled(manifest, end)
        case EndKind.INTERRUPTED:
            return _interrupted(manifest, end)
        case _:
            assert_never(end.kind)


def _succeeded(manifest: Held, end: ManifestEnd, random: Random) -> Held:
    """The count of failures in a row begins anew; what was to run once is switched off."""
    timing = manifest.timing
    planned, look_at = after_success(timing, end.ended_at, random)
    return replace(
        manifest,
        enabled=manifest.enabled and timing.schedule_type is not ScheduleType.ONCE,
        failure_count=0,
        gave_up_reason=None,
        failed_metadata_id=None,
        retry_at=None,
        attempt_cancelled=False,
        next_due_at=_unless_dependent(manifest, end, look_at),
        timing=timing._replace(last_successful_run=end.ended_at, next_scheduled_run=planned, plan_after=None),
    )


def _interrupted(manifest: Held, end: ManifestEnd) -> Held:
    """It goes back to the queue, as if it had never begun. The manager looks at once.

    It may have looked while this run was active, and left the manifest until the end of it. What goes back
    may be an extra run, for which the schedule does not wait.
    """
    return replace(manifest, next_due_at=_earliest(manifest.next_due_at, end.ended_at))


def _failed(manifest: Held, end: ManifestEnd) -> Held:
    """One more failure in a row. The manager looks at once: it tries again or gives up.

    A moment set beforehand, by a run that was cancelled say, does not hold up what has to be tried again.
    """
    why = _why_it_gives_up(manifest, end)
    is_known_reason = why is None and manifest.gave_up_reason is not None
    return replace(
        manifest,
        failure_count=manifest.failure_count + 1,
        lifetime_failures=manifest.lifetime_failures + 1,
        gave_up_reason=why or manifest.gave_up_reason,
        failed_metadata_id=manifest.failed_metadata_id if is_known_reason else end.metadata_id,
        retry_at=None if end.delay is None else end.ended_at + end.delay,
        attempt_cancelled=False,
        next_due_at=end.ended_at,
        timing=manifest.timing._replace(next_scheduled_run=None, plan_after=None),
    )


def _why_it_gives_up(manifest: Held, end: ManifestEnd) -> str | None:
    """Whether trying again would help is the manifest's to say, and its train's when it says nothing."""
    policy = RetryPolicy.from_json(manifest.retry)
    is_over = gives_up(policy, end.raised, otherwise=end.gives_up)
    return f"trying again would not help after {end.error}" if is_over else None


def _cancelled(manifest: Held, end: ManifestEnd) -> Held:
    """Not a failure. The next run is at the next regular occurrence, or a run that timed out would loop.

    So would a retry that is cancelled each time: it is not repeated, but the next regular run follows it. A
    dependent waits for its parent's next success. What was to run once has no other occurrence: it is
    switched off, so that nothing but a person starts it again. Where this server cannot tell the next
    occurrence, `plan_after` has the one that can count from here.
    """
    timing = manifest.timing
    planned, look_at = after_cancellation(timing, end.ended_at)
    is_planned = planned is not None or timing.max_instances > 1 or timing.schedule_type not in REGULAR
    is_over = timing.schedule_type is ScheduleType.ONCE and not is_ahead(timing, end.ended_at)
    return replace(
        manifest,
        enabled=manifest.enabled and not is_over,
        retry_at=None,
        attempt_cancelled=manifest.attempt_cancelled or end.attempt > manifest.failure_count,
        next_due_at=_earliest(manifest.next_due_at, _unless_dependent(manifest, end, look_at)),
        timing=timing._replace(next_scheduled_run=planned, plan_after=None if is_planned else end.ended_at),
    )


def _earliest(asked_for: datetime | None, wanted: datetime | None) -> datetime | None:
    """A look that was asked for, by a failure in the same batch say, is not put off."""
    return min((moment for moment in (asked_for, wanted) if moment is not None), default=None)


def _unless_dependent(manifest: Held, end: ManifestEnd, look_at: datetime | None) -> datetime | None:
    """A dependent is looked at once: its parent may have succeeded while it ran."""
    is_dependent = manifest.timing.schedule_type is ScheduleType.DEPENDENT
    return end.ended_at if is_dependent else look_at
