"""Decide what the manager does with a manifest, and what the end of a run changes in it. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Literal, NamedTuple, assert_never

from trax.bounds import LARGEST_COUNT, PRIORITY_MAX
from trax.errors import DefinitionError, count_times
from trax.records.manifest import (
    Decision,
    ManifestState,
    RetryPolicy,
    ToDeadLetter,
    ToDefer,
    ToEnqueue,
    ToRest,
    ToWait,
    should_give_up,
)
from trax.records.result import LockedManifest, ManifestChange, ResultKind
from trax.records.states import Origin, ScheduleType
from trax.schedule.due import (
    REGULAR_TYPES,
    UNREADABLE_RECHECK_DELAY,
    Fire,
    Never,
    Wait,
    after_cancellation,
    after_success,
    check_due,
    is_pending_once,
    next_overlapping_occurrence,
)
from trax.schedule.exclusions import first_allowed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from trax.records.result import RunResult
    from trax.records.schedule import Timing


MANUAL_TYPES = (ScheduleType.NONE, ScheduleType.ON_DEMAND, ScheduleType.DORMANT_DEPENDENT)
DEPENDENT_TYPES = (ScheduleType.DEPENDENT, ScheduleType.DORMANT_DEPENDENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Settings that a decision depends on, and `random`, the source of the retry jitter.

    Each retry draws its own jitter, so that runs that failed together are not retried together. None: off.
    """

    retry: RetryPolicy
    dependent_priority_boost: int
    failure_counting: Literal["consecutive", "lifetime"] = "consecutive"
    random: Random | None = None

    def failures(self, manifest: ManifestState) -> int:
        """The number of failures that counts towards a dead letter."""
        counts_lifetime = self.failure_counting == "lifetime"
        return manifest.lifetime_failures if counts_lifetime else manifest.failure_count


def decide(manifest: ManifestState, rules: Rules, now: datetime) -> Decision:
    """Queue a run, create a dead letter, check again later, or rest until an event."""
    try:
        return _choose(manifest, rules, now)
    except DefinitionError as broken:  # e.g. an unknown time zone; it must not stop the others
        return ToDefer(str(broken), now + UNREADABLE_RECHECK_DELAY)
    except (ArithmeticError, TypeError, ValueError) as broken:  # a row edited by hand, e.g. a run in 9999
        reason = f"its row has values that cannot be used: {broken}"
        return ToDefer(reason, now + UNREADABLE_RECHECK_DELAY)


def _choose(manifest: ManifestState, rules: Rules, now: datetime) -> Decision:
    if rest := _check_operator_hold(manifest):
        return rest
    if manifest.gave_up_reason or rules.failures(manifest) >= max(1, manifest.max_retries):
        return ToDeadLetter(_dead_letter_reason(manifest, rules), rules.failures(manifest))
    if manifest.is_retired:
        return _after_retirement(manifest, rules)
    if decision := _check_active_runs(manifest, now):
        return decision
    if decision := _check_blockers(manifest, now):
        return decision
    return _next_run(manifest, rules, now)


def _next_run(manifest: ManifestState, rules: Rules, now: datetime) -> Decision:
    if manifest.failure_count and not (manifest.is_being_retried or manifest.attempt_cancelled):
        return _retry(manifest, rules, now)
    kind = manifest.timing.schedule_type
    if kind in MANUAL_TYPES:
        return ToRest(f"its type is {kind}: it runs only when triggered or activated", "by_hand")
    if kind is ScheduleType.DEPENDENT:
        return _check_parent(manifest, rules, now)
    return _check_schedule(manifest, rules, now)


def _after_retirement(manifest: ManifestState, rules: Rules) -> Decision:
    """A retired manifest has no next run. A failed run is not retried: it becomes a dead letter."""
    is_under_way = manifest.active_runs or manifest.has_queued_entry
    if manifest.failure_count and not (is_under_way or manifest.attempt_cancelled):
        return ToDeadLetter(_dead_letter_reason(manifest, rules), rules.failures(manifest))
    return ToRest("it is retired", "retired")


def _check_operator_hold(manifest: ManifestState) -> ToRest | None:
    if not manifest.enabled and not manifest.is_retired:
        return ToRest("it is disabled", "disabled")
    if manifest.has_awaiting_dead_letter:
        return ToRest("its dead letter awaits an operator", "dead_letter")
    return None


def _dead_letter_reason(manifest: ManifestState, rules: Rules) -> str:
    failures = rules.failures(manifest)
    if manifest.gave_up_reason and not failures:
        return manifest.gave_up_reason  # it never ran: no worker claimed it
    period = "in a row" if rules.failure_counting == "consecutive" else "since the last intervention"
    times = count_times(failures) + (f" {period}" if failures != 1 else "")
    limit = "it is retired" if manifest.is_retired else f"max_attempts is {manifest.max_retries}"
    return f"failed {times}; {manifest.gave_up_reason or limit}"


def _check_blockers(manifest: ManifestState, now: datetime) -> ToRest | ToDefer | None:
    kind = manifest.timing.schedule_type
    if manifest.timing.broken and kind not in MANUAL_TYPES:
        return ToDefer(manifest.timing.broken, now + UNREADABLE_RECHECK_DELAY)
    if not manifest.group_enabled:
        return ToRest("its group is disabled", "group_disabled")
    if kind is ScheduleType.DEPENDENT and not (manifest.parent and manifest.parent.is_open):
        is_retired = manifest.parent is not None and manifest.parent.is_retired
        state = "retired" if is_retired else "disabled" if manifest.parent else "missing"
        return ToRest(f"its parent is {state}", "parent_closed")
    return None


def _check_active_runs(manifest: ManifestState, now: datetime) -> Decision | None:
    """Allow one queued entry at a time, and at most `max_instances` active runs."""
    if manifest.active_runs >= manifest.timing.max_instances:
        most = manifest.timing.max_instances
        return ToRest(f"{manifest.active_runs} of at most {most} runs are active", "active")
    if not manifest.has_queued_entry:
        return None
    upcoming = next_overlapping_occurrence(manifest.timing, manifest.timing.last_scheduled_for, now)
    return ToRest("it already has a queued entry", "queued") if upcoming is None else ToWait(upcoming)


def _retry(manifest: ManifestState, rules: Rules, now: datetime) -> Decision:
    """Retry the same occurrence after a failure, when the retry delay is over and no exclusion applies.

    Exclusions are checked now and at the end of the delay: the retry starts at the first allowed time then.
    """
    timing = manifest.timing
    earliest = max(timing.next_scheduled_run or now, now)  # a cancelled attempt postpones the next one
    allowed = _first_allowed(timing, earliest)
    if allowed is not None and allowed > now:
        return ToWait(allowed)
    chance = rules.random.random() if rules.random else 0.0
    wait = (manifest.retry or rules.retry).wait_after(manifest.failure_count, random=chance)
    start = None if allowed is None else _first_allowed(timing, manifest.retry_at or now + wait)
    if start is None:
        return ToRest("its exclusions allow no start within ten years", "excluded")
    occurrence = None if timing.schedule_type in MANUAL_TYPES else timing.last_scheduled_for
    return _queue_decision(manifest, rules, now, Origin.RETRY, occurrence, start=start)


def _first_allowed(timing: Timing, moment: datetime) -> datetime | None:
    """The first time from this moment on that no exclusion covers. Exclusions do not apply to dependents."""
    if timing.schedule_type in DEPENDENT_TYPES:
        return moment
    return first_allowed(timing.exclusions, timing.time_zone, moment)


def _check_parent(manifest: ManifestState, rules: Rules, now: datetime) -> Decision:
    """Run once after each success of the parent, including one that happened during a run of its own."""
    success = manifest.parent.last_successful_run if manifest.parent else None
    consumed = manifest.consumed_parent_success_at
    if success is None:
        return ToRest("its parent has not succeeded yet", "parent")
    if consumed is not None and success <= consumed:
        return ToRest("its parent has not succeeded since it was last queued", "parent")
    return _queue_decision(manifest, rules, now, Origin.SCHEDULE, success, consumed_parent_success=success)


def _check_schedule(manifest: ManifestState, rules: Rules, now: datetime) -> Decision:
    match check_due(manifest.timing, now):
        case Fire(scheduled_for):
            return _queue_decision(manifest, rules, now, Origin.SCHEDULE, scheduled_for)
        case Wait(until):
            return ToWait(until)
        case Never(reason, unreadable=True):
            return ToDefer(reason, now + UNREADABLE_RECHECK_DELAY)
        case Never(reason):
            return ToRest(reason)


def _queue_decision(
    manifest: ManifestState,
    rules: Rules,
    now: datetime,
    origin: Origin,
    scheduled_for: datetime | None,
    *,
    start: datetime | None = None,
    consumed_parent_success: datetime | None = None,
) -> ToEnqueue:
    timing, priority = manifest.timing, manifest.group_priority
    if timing.schedule_type in DEPENDENT_TYPES:
        priority = min(priority + rules.dependent_priority_boost, PRIORITY_MAX)
    next_due_at = next_overlapping_occurrence(timing, scheduled_for, now)
    return ToEnqueue(origin, priority, scheduled_for, start, consumed_parent_success, next_due_at)


def change_after(
    manifest: LockedManifest, results: Iterable[RunResult], ended_at: datetime, random: Random
) -> ManifestChange:
    """The change to a manifest's row after these results, applied in the order given."""
    for result in results:
        manifest = _apply_retirement(_apply_result(manifest, result, ended_at, random), ended_at)
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


def _apply_retirement(manifest: LockedManifest, ended_at: datetime) -> LockedManifest:
    """A retired manifest has no next run. A failure is still due for a check: it becomes a dead letter."""
    if not manifest.is_retired:
        return manifest
    return replace(manifest, next_due_at=ended_at if manifest.failure_count else None)


def _apply_result(
    manifest: LockedManifest, result: RunResult, ended_at: datetime, random: Random
) -> LockedManifest:
    match result.kind:
        case ResultKind.SUCCESS:
            return _apply_success(manifest, ended_at, random)
        case ResultKind.FAILURE:
            return _apply_failure(manifest, result, ended_at)
        case ResultKind.CANCELLED:
            return _apply_cancellation(manifest, result, ended_at)
        case ResultKind.INTERRUPTED:
            return _apply_interruption(manifest, ended_at)
        case _:
            assert_never(result.kind)


def _apply_success(manifest: LockedManifest, ended_at: datetime, random: Random) -> LockedManifest:
    """Reset the count of consecutive failures; disable a manifest that runs once."""
    timing = manifest.timing
    planned, due_at = after_success(timing, ended_at, random)
    return replace(
        manifest,
        enabled=manifest.enabled and timing.schedule_type is not ScheduleType.ONCE,
        failure_count=0,
        gave_up_reason=None,
        failed_metadata_id=None,
        retry_at=None,
        attempt_cancelled=False,
        next_due_at=_next_due_at(manifest, ended_at, due_at),
        timing=timing._replace(last_successful_run=ended_at, next_scheduled_run=planned, plan_after=None),
    )


def _apply_interruption(manifest: LockedManifest, ended_at: datetime) -> LockedManifest:
    """The run returns to the queue as if it had not started; the manifest is due for a check at once.

    The manager may have checked the manifest while this run was active and left it until its end. The
    returned run may be an extra one, for which the schedule does not wait.
    """
    return replace(manifest, next_due_at=_earliest(manifest.next_due_at, ended_at))


def _apply_failure(manifest: LockedManifest, result: RunResult, ended_at: datetime) -> LockedManifest:
    """Count one more failure. The manifest is due for a check at once: the manager retries or gives up.

    A planned next run (set by a cancelled run, for example) does not delay the retry.
    """
    reason = _give_up_reason(manifest, result)
    keeps_reason = reason is None and manifest.gave_up_reason is not None
    return replace(
        manifest,
        failure_count=min(manifest.failure_count + 1, LARGEST_COUNT),
        lifetime_failures=min(manifest.lifetime_failures + 1, LARGEST_COUNT),
        gave_up_reason=reason or manifest.gave_up_reason,
        failed_metadata_id=manifest.failed_metadata_id if keeps_reason else result.metadata_id,
        retry_at=None if result.delay is None else ended_at + result.delay,
        attempt_cancelled=False,
        next_due_at=ended_at,
        timing=manifest.timing._replace(next_scheduled_run=None, plan_after=None),
    )


def _give_up_reason(manifest: LockedManifest, result: RunResult) -> str | None:
    """Why the failure is not retried, or None. The manifest's retry policy overrides the train's."""
    policy = RetryPolicy.from_json(manifest.retry)
    is_final = should_give_up(policy, result.raised, default=result.gives_up)
    return f"it is not retried after {result.error}" if is_final else None


def _apply_cancellation(manifest: LockedManifest, result: RunResult, ended_at: datetime) -> LockedManifest:
    """Not a failure. The next run is the next regular occurrence; otherwise a run that times out would loop.

    A cancelled retry is not repeated for the same reason; the next regular run follows it. A dependent waits
    for its parent's next success. A manifest that runs once has no other occurrence: it is disabled, and only
    a manual trigger starts it again. If this server cannot evaluate the schedule, `plan_after` tells another
    server where to count from.
    """
    timing = manifest.timing
    planned, due_at = after_cancellation(timing, ended_at)
    is_planned = planned is not None or timing.max_instances > 1 or timing.schedule_type not in REGULAR_TYPES
    is_over = timing.schedule_type is ScheduleType.ONCE and not is_pending_once(timing, ended_at)
    return replace(
        manifest,
        enabled=manifest.enabled and not is_over,
        retry_at=None,
        attempt_cancelled=manifest.attempt_cancelled or result.attempt > manifest.failure_count,
        next_due_at=_earliest(manifest.next_due_at, _next_due_at(manifest, ended_at, due_at)),
        timing=timing._replace(next_scheduled_run=planned, plan_after=None if is_planned else ended_at),
    )


def _earliest(requested: datetime | None, planned: datetime | None) -> datetime | None:
    """The earlier of both, so that a check requested by a failure in the same batch is not postponed."""
    return min((moment for moment in (requested, planned) if moment is not None), default=None)


def _next_due_at(
    manifest: LockedManifest, ended_at: datetime, regular_due_at: datetime | None
) -> datetime | None:
    """A dependent is due for a check at once: its parent may have succeeded while it ran."""
    is_dependent = manifest.timing.schedule_type is ScheduleType.DEPENDENT
    return ended_at if is_dependent else regular_due_at


class DueCandidate(NamedTuple):
    """A manifest that is probably due, and its group."""

    manifest_id: int
    group_id: int
    group_priority: int


def select_fairly(
    candidates: Sequence[DueCandidate], limit: int | None, *, turn: int = 0
) -> list[DueCandidate]:
    """Select at most `limit` manifests, so that a large group does not starve the others.

    Each group gets an equal share first; the rest goes to the highest priority. If `limit` is less than the
    number of groups, groups take turns: `turn` decides which group comes first.
    """
    if limit is None or len(candidates) <= limit:
        return list(candidates)
    groups = _group_by_priority(candidates)
    if limit < len(groups):
        first = turn * limit % len(groups)
        return [members[0] for members in (groups[first:] + groups[:first])[:limit]]
    return _share_equally(groups, limit)


def _group_by_priority(candidates: Sequence[DueCandidate]) -> list[list[DueCandidate]]:
    """The members of each group, highest priority first; stable among equals."""
    groups: dict[int, list[DueCandidate]] = {}
    for candidate in candidates:
        groups.setdefault(candidate.group_id, []).append(candidate)
    return sorted(groups.values(), key=lambda members: -members[0].group_priority)


def _share_equally(groups: list[list[DueCandidate]], limit: int) -> list[DueCandidate]:
    share = limit // len(groups)
    selected = [candidate for members in groups for candidate in members[:share]]
    rest = (candidate for members in groups for candidate in members[share:])
    return selected + [candidate for _, candidate in zip(range(limit - len(selected)), rest, strict=False)]
