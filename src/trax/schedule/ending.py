"""Compute what the end of a run changes in its manifest: failure count, retry, next run. No I/O."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from trax.records.ended import LockedManifest, ManifestChange, ResultKind
from trax.records.retry_policy import RetryPolicy, should_give_up
from trax.records.states import ScheduleType
from trax.schedule.due import REGULAR_TYPES, after_cancellation, after_success, is_pending_once

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from random import Random

    from trax.records.ended import ManifestResult


def change_after(manifest: LockedManifest, ends: Iterable[ManifestResult], random: Random) -> ManifestChange:
    """The change to a manifest's row after these runs have ended, applied in order of their end."""
    for end in sorted(ends, key=lambda end: end.ended_at):
        manifest = _apply_retirement(_apply_end(manifest, end, random), end)
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


def _apply_retirement(manifest: LockedManifest, end: ManifestResult) -> LockedManifest:
    """A retired manifest has no next run. A failure is still due for a check: it becomes a dead letter."""
    if not manifest.is_retired:
        return manifest
    return replace(manifest, next_due_at=end.ended_at if manifest.failure_count else None)


def _apply_end(manifest: LockedManifest, end: ManifestResult, random: Random) -> LockedManifest:
    match end.kind:
        case ResultKind.SUCCESS:
            return _apply_success(manifest, end, random)
        case ResultKind.FAILURE:
            return _apply_failure(manifest, end)
        case ResultKind.CANCELLED:
            return _apply_cancellation(manifest, end)
        case ResultKind.INTERRUPTED:
            return _apply_interruption(manifest, end)
        case _:
            assert_never(end.kind)


def _apply_success(manifest: LockedManifest, end: ManifestResult, random: Random) -> LockedManifest:
    """Reset the count of consecutive failures; disable a manifest that runs once."""
    timing = manifest.timing
    planned, due_at = after_success(timing, end.ended_at, random)
    return replace(
        manifest,
        enabled=manifest.enabled and timing.schedule_type is not ScheduleType.ONCE,
        failure_count=0,
        gave_up_reason=None,
        failed_metadata_id=None,
        retry_at=None,
        attempt_cancelled=False,
        next_due_at=_next_due_at(manifest, end, due_at),
        timing=timing._replace(last_successful_run=end.ended_at, next_scheduled_run=planned, plan_after=None),
    )


def _apply_interruption(manifest: LockedManifest, end: ManifestResult) -> LockedManifest:
    """The run returns to the queue as if it had not started; the manifest is due for a check at once.

    The manager may have checked the manifest while this run was active and left it until its end. The
    returned run may be an extra one, for which the schedule does not wait.
    """
    return replace(manifest, next_due_at=_earliest(manifest.next_due_at, end.ended_at))


def _apply_failure(manifest: LockedManifest, end: ManifestResult) -> LockedManifest:
    """Count one more failure. The manifest is due for a check at once: the manager retries or gives up.

    A planned next run (set by a cancelled run, for example) does not delay the retry.
    """
    reason = _give_up_reason(manifest, end)
    keeps_reason = reason is None and manifest.gave_up_reason is not None
    return replace(
        manifest,
        failure_count=manifest.failure_count + 1,
        lifetime_failures=manifest.lifetime_failures + 1,
        gave_up_reason=reason or manifest.gave_up_reason,
        failed_metadata_id=manifest.failed_metadata_id if keeps_reason else end.metadata_id,
        retry_at=None if end.delay is None else end.ended_at + end.delay,
        attempt_cancelled=False,
        next_due_at=end.ended_at,
        timing=manifest.timing._replace(next_scheduled_run=None, plan_after=None),
    )


def _give_up_reason(manifest: LockedManifest, end: ManifestResult) -> str | None:
    """Why the failure is not retried, or None. The manifest's retry policy overrides the train's."""
    policy = RetryPolicy.from_json(manifest.retry)
    is_final = should_give_up(policy, end.raised, default=end.gives_up)
    return f"trying again would not help after {end.error}" if is_final else None


def _apply_cancellation(manifest: LockedManifest, end: ManifestResult) -> LockedManifest:
    """Not a failure. The next run is the next regular occurrence; otherwise a run that times out would loop.

    A cancelled retry is not repeated for the same reason; the next regular run follows it. A dependent waits
    for its parent's next success. A manifest that runs once has no other occurrence: it is disabled, and only
    a manual trigger starts it again. If this server cannot evaluate the schedule, `plan_after` tells another
    server where to count from.
    """
    timing = manifest.timing
    planned, due_at = after_cancellation(timing, end.ended_at)
    is_planned = planned is not None or timing.max_instances > 1 or timing.schedule_type not in REGULAR_TYPES
    is_over = timing.schedule_type is ScheduleType.ONCE and not is_pending_once(timing, end.ended_at)
    return replace(
        manifest,
        enabled=manifest.enabled and not is_over,
        retry_at=None,
        attempt_cancelled=manifest.attempt_cancelled or end.attempt > manifest.failure_count,
        next_due_at=_earliest(manifest.next_due_at, _next_due_at(manifest, end, due_at)),
        timing=timing._replace(next_scheduled_run=planned, plan_after=None if is_planned else end.ended_at),
    )


def _earliest(requested: datetime | None, planned: datetime | None) -> datetime | None:
    """The earlier of both, so that a check requested by a failure in the same batch is not postponed."""
    return min((moment for moment in (requested, planned) if moment is not None), default=None)


def _next_due_at(
    manifest: LockedManifest, end: ManifestResult, regular_due_at: datetime | None
) -> datetime | None:
    """A dependent is due for a check at once: its parent may have succeeded while it ran."""
    is_dependent = manifest.timing.schedule_type is ScheduleType.DEPENDENT
    return end.ended_at if is_dependent else regular_due_at
