"""Decisions of the manager about a manifest, as tables of values."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from random import Random
from typing import Any

import pytest

from trax.records.manifest import (
    ManifestState,
    ParentState,
    RetryPolicy,
    ToDeadLetter,
    ToDefer,
    ToEnqueue,
    ToRest,
    ToWait,
)
from trax.records.schedule import Cron, DateRange, DaysOfWeek, Interval, TimeWindow, Timing
from trax.records.states import Origin, ScheduleType
from trax.schedule.decide import Rules, decide

TEN = datetime(2027, 3, 1, 10, tzinfo=UTC)  # a Monday
MINUTE = timedelta(minutes=1)
RULES = Rules(
    retry=RetryPolicy(delay=5 * MINUTE, multiplier=2.0, max_delay=60 * MINUTE), dependent_priority_boost=16
)
TIMING = Timing(
    schedule_type=ScheduleType.INTERVAL, schedule=Interval(300), created_at=TEN - timedelta(days=1)
)
STANDING = ManifestState(
    id=1,
    external_id="sync",
    enabled=True,
    group_priority=3,
    group_enabled=True,
    timing=TIMING,
    max_retries=3,
)
LUNCH = TimeWindow(time(10, 4), time(11))
DUE = ToEnqueue(origin=Origin.SCHEDULE, priority=3, scheduled_for=TEN)


class Always(Random):
    """Draws one number for ever."""

    def __init__(self, number: float) -> None:
        super().__init__()
        self.number = number

    def random(self) -> float:
        return self.number


def standing(timing: dict[str, Any] | None = None, **changes: Any) -> ManifestState:
    return STANDING._replace(timing=TIMING._replace(**timing or {}), **changes)


def dependent(success: datetime | None, *, is_open: bool = True, **changes: Any) -> ManifestState:
    parent = ParentState(is_open=is_open, last_successful_run=success)
    timing: dict[str, Any] = {"schedule_type": ScheduleType.DEPENDENT, "schedule": None}
    return standing(timing | changes.pop("timing", {}), parent=parent, **changes)


def test_a_due_manifest_is_queued_for_its_occurrence_with_the_priority_of_its_group() -> None:
    assert decide(STANDING, RULES, TEN) == DUE


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"enabled": False}, "it is disabled"),
        ({"has_awaiting_dead_letter": True}, "its dead letter awaits an operator"),
        ({"has_queued_entry": True}, "it already has a queued entry"),
        ({"active_runs": 1}, "1 of at most 1 runs are active"),
        ({"group_enabled": False}, "its group is disabled"),
        ({"has_awaiting_dead_letter": True, "failure_count": 3}, "its dead letter awaits an operator"),
        ({"has_queued_entry": True, "failure_count": 2}, "it already has a queued entry"),
        ({"active_runs": 1, "failure_count": 2}, "1 of at most 1 runs are active"),
        ({"enabled": False, "failure_count": 3}, "it is disabled"),
        ({"group_enabled": False, "failure_count": 1}, "its group is disabled"),
    ],
)
def test_a_guarded_manifest_rests(changes: dict[str, Any], reason: str) -> None:
    assert decide(standing(**changes), RULES, TEN) == ToRest(reason)


def test_a_row_with_values_that_cannot_be_used_is_checked_again_later() -> None:
    manifest = standing({"last_successful_run": datetime(9999, 12, 31, 23, 59, tzinfo=UTC)})

    decision = decide(manifest, RULES, TEN)

    assert isinstance(decision, ToDefer)
    assert "date value out of range" in decision.reason


@pytest.mark.parametrize("kind", [ScheduleType.NONE, ScheduleType.ON_DEMAND, ScheduleType.DORMANT_DEPENDENT])
@pytest.mark.parametrize("changes", [{}, {"failure_count": 2, "attempt_cancelled": True}])
def test_an_on_demand_manifest_rests(kind: ScheduleType, changes: dict[str, Any]) -> None:
    manifest = standing({"schedule_type": kind, "schedule": None}, **changes)

    assert decide(manifest, RULES, TEN) == ToRest(
        f"its type is {kind}: it runs only when triggered or activated"
    )


@pytest.mark.parametrize(
    ("kind", "priority", "start"),
    [
        (ScheduleType.NONE, 3, TEN + 60 * MINUTE),
        (ScheduleType.ON_DEMAND, 3, TEN + 60 * MINUTE),
        (ScheduleType.DORMANT_DEPENDENT, 19, TEN + 10 * MINUTE),
    ],
)
def test_a_failed_on_demand_manifest_is_retried(kind: ScheduleType, priority: int, start: datetime) -> None:
    """An exclusion concerns what starts by itself, as a retry does; what runs after another does not."""
    of_before = {"last_scheduled_for": TEN - MINUTE, "exclusions": (LUNCH,)}
    manifest = standing({"schedule_type": kind, "schedule": None} | of_before, failure_count=2)

    assert decide(manifest, RULES, TEN) == ToEnqueue(Origin.RETRY, priority, None, start)
    assert isinstance(decide(manifest._replace(failure_count=3), RULES, TEN), ToDeadLetter)


@pytest.mark.parametrize(
    ("timing", "decision"),
    [
        ({"last_successful_run": TEN - MINUTE}, ToWait(TEN + 4 * MINUTE)),
        ({"last_successful_run": TEN - 5 * MINUTE}, DUE),
        ({"next_scheduled_run": TEN + MINUTE}, ToWait(TEN + MINUTE)),
        ({"exclusions": (DaysOfWeek((0,)),)}, ToWait(datetime(2027, 3, 2, tzinfo=UTC))),
        ({"schedule_type": ScheduleType.ONCE, "scheduled_at": TEN}, DUE),
        ({"schedule_type": ScheduleType.ONCE, "scheduled_at": TEN + MINUTE}, ToWait(TEN + MINUTE)),
        (
            {"schedule_type": ScheduleType.ONCE, "scheduled_at": TEN, "last_successful_run": TEN},
            ToRest("it runs once and has already succeeded"),
        ),
    ],
)
def test_time_decides_what_runs_by_time(timing: dict[str, Any], decision: object) -> None:
    assert decide(standing(timing), RULES, TEN) == decision


@pytest.mark.parametrize(
    ("failures", "max_retries", "gives_up"),
    [
        (0, 0, False),
        (0, 1, False),
        (1, 0, True),
        (1, 1, True),
        (1, 3, False),
        (2, 3, False),
        (3, 3, True),
        (4, 3, True),
    ],
)
def test_a_manifest_gives_up_at_max_retries_but_never_without_a_failure(
    failures: int, max_retries: int, gives_up: bool
) -> None:
    manifest = standing(failure_count=failures, max_retries=max_retries)

    assert isinstance(decide(manifest, RULES, TEN), ToDeadLetter) is gives_up


@pytest.mark.parametrize(
    ("failures", "reason"),
    [
        (1, "failed once; max_retries is 1"),
        (2, "failed 2 times in a row; max_retries is 1"),
    ],
)
def test_a_dead_letter_states_both_numbers(failures: int, reason: str) -> None:
    manifest = standing(failure_count=failures, max_retries=1)

    assert decide(manifest, RULES, TEN) == ToDeadLetter(reason, failures)


def test_a_final_error_gives_up_with_the_actual_number_of_failures() -> None:
    manifest = standing(failure_count=1, max_retries=3, gave_up_reason="it is not retried")

    assert decide(manifest, RULES, TEN) == ToDeadLetter("failed once; it is not retried", 1)


@pytest.mark.parametrize(
    ("in_a_row", "since", "decision"),
    [
        (1, 2, None),
        (1, 3, ToDeadLetter("failed 3 times since the last intervention; max_retries is 3", 3)),
    ],
)
def test_failures_may_be_counted_over_the_successes_between_them(
    in_a_row: int, since: int, decision: ToDeadLetter | None
) -> None:
    manifest = standing(failure_count=in_a_row, lifetime_failures=since, max_retries=3)

    for_life = decide(manifest, replace(RULES, failure_counting="lifetime"), TEN)

    assert isinstance(for_life, ToEnqueue) if decision is None else for_life == decision
    assert isinstance(decide(manifest, RULES, TEN), ToEnqueue)


def test_waits_follow_the_failures_in_a_row_however_they_are_counted() -> None:
    manifest = standing(failure_count=1, lifetime_failures=9, max_retries=10)

    decision = decide(manifest, replace(RULES, failure_counting="lifetime"), TEN)

    assert isinstance(decision, ToEnqueue)
    assert decision.scheduled_at == TEN + 5 * MINUTE


@pytest.mark.parametrize(
    "changes", [{"group_enabled": False}, {"has_queued_entry": True}, {"active_runs": 1}], ids=str
)
def test_a_manifest_that_is_held_back_can_still_give_up(changes: dict[str, Any]) -> None:
    manifest = standing(failure_count=3, **changes)

    assert isinstance(decide(manifest, RULES, TEN), ToDeadLetter)


@pytest.mark.parametrize(("failures", "minutes"), [(1, 5), (2, 10), (3, 20), (4, 40), (5, 60), (500, 60)])
def test_a_retry_is_for_the_same_occurrence_and_waits(failures: int, minutes: int) -> None:
    manifest = standing({"last_scheduled_for": TEN - MINUTE}, failure_count=failures, max_retries=1000)

    assert decide(manifest, RULES, TEN) == ToEnqueue(
        origin=Origin.RETRY,
        priority=3,
        scheduled_for=TEN - MINUTE,
        scheduled_at=TEN + minutes * MINUTE,
    )


def test_a_retry_that_was_cancelled_is_followed_by_the_next_regular_run() -> None:
    manifest = standing({"next_scheduled_run": TEN + MINUTE}, failure_count=1, attempt_cancelled=True)

    assert decide(manifest, RULES, TEN) == ToWait(TEN + MINUTE)
    assert decide(manifest, RULES, TEN + MINUTE) == DUE._replace(scheduled_for=TEN + MINUTE)


def test_a_retry_waits_for_a_moment_set_beforehand() -> None:
    manifest = standing({"next_scheduled_run": TEN + MINUTE}, failure_count=1)

    assert decide(manifest, RULES, TEN) == ToWait(TEN + MINUTE)


@pytest.mark.parametrize("retry_at", [TEN - MINUTE, TEN, TEN + 90 * MINUTE])
def test_a_retry_time_requested_by_the_run_is_used(retry_at: datetime) -> None:
    decision = decide(standing(failure_count=1, retry_at=retry_at), RULES, TEN)

    assert isinstance(decision, ToEnqueue)
    assert (decision.origin, decision.scheduled_at) == (Origin.RETRY, retry_at)


def test_a_manifests_own_waits_come_first_and_chance_stretches_them() -> None:
    own = RetryPolicy(delay=MINUTE, multiplier=1.0, max_delay=2 * MINUTE, jitter=0.5)

    decision = decide(standing(failure_count=1, retry=own), replace(RULES, random=Always(1.0)), TEN)

    assert isinstance(decision, ToEnqueue)
    assert decision.scheduled_at == TEN + 1.5 * MINUTE


def test_each_manifest_draws_its_own_chance() -> None:
    own = RetryPolicy(delay=MINUTE, multiplier=1.0, max_delay=2 * MINUTE, jitter=0.5)
    rules = replace(RULES, random=Random(4711))  # noqa: S311 - the same in every run

    decisions = [decide(standing(failure_count=1, retry=own), rules, TEN) for _ in range(40)]

    starts = {decision.scheduled_at for decision in decisions if isinstance(decision, ToEnqueue)}
    assert len(starts) == 40


@pytest.mark.parametrize(
    ("days", "decision"),
    [
        ((0,), ToWait(datetime(2027, 3, 2, tzinfo=UTC))),
        ((0, 1, 2, 3, 4, 5, 6), ToRest("its exclusions allow no start within ten years")),
    ],
)
def test_a_retry_waits_for_the_end_of_an_exclusion(days: tuple[int, ...], decision: object) -> None:
    manifest = standing({"exclusions": (DaysOfWeek(days),)}, failure_count=1)

    assert decide(manifest, RULES, TEN) == decision


ELEVEN = TEN + 60 * MINUTE


@pytest.mark.parametrize(
    ("changes", "start"),
    [
        ({}, ELEVEN),
        ({"failure_count": 2}, ELEVEN),
        ({"retry_at": TEN + 4 * MINUTE}, ELEVEN),
        ({"retry_at": TEN + 3 * MINUTE}, TEN + 3 * MINUTE),
        ({"retry_at": ELEVEN + MINUTE}, ELEVEN + MINUTE),
    ],
)
def test_a_wait_that_ends_in_an_exclusion_lasts_until_its_end(
    changes: dict[str, Any], start: datetime
) -> None:
    manifest = standing({"exclusions": (LUNCH,)}, **{"failure_count": 1} | changes)

    decision = decide(manifest, RULES, TEN)

    assert isinstance(decision, ToEnqueue)
    assert (decision.origin, decision.scheduled_at) == (Origin.RETRY, start)


def test_a_wait_that_ends_where_all_is_excluded_for_good_is_not_queued() -> None:
    manifest = standing({"exclusions": (DateRange(date(2027, 3, 2), date(9999, 12, 31)),)}, failure_count=1)
    rules = replace(RULES, retry=replace(RULES.retry, delay=timedelta(days=1), max_delay=timedelta(days=1)))

    assert decide(manifest, RULES, TEN) == ToEnqueue(Origin.RETRY, 3, None, TEN + 5 * MINUTE)
    assert decide(manifest, rules, TEN) == ToRest("its exclusions allow no start within ten years")


def test_the_retry_of_a_dependent_waits_for_no_exclusion() -> None:
    decision = decide(dependent(TEN, timing={"exclusions": (LUNCH,)}, failure_count=1), RULES, TEN)

    assert isinstance(decision, ToEnqueue)
    assert decision.scheduled_at == TEN + 5 * MINUTE


AFTER_PARENT = ToEnqueue(
    origin=Origin.SCHEDULE, priority=19, scheduled_for=TEN, consumed_parent_success_at=TEN
)


@pytest.mark.parametrize(
    ("manifest", "decision"),
    [
        (dependent(TEN), AFTER_PARENT),
        (dependent(TEN, consumed_parent_success_at=TEN - MINUTE), AFTER_PARENT),
        (dependent(TEN, timing={"last_successful_run": TEN + MINUTE}), AFTER_PARENT),
        (
            dependent(TEN, consumed_parent_success_at=TEN),
            ToRest("its parent has not succeeded since it was last queued"),
        ),
        (dependent(None), ToRest("its parent has not succeeded yet")),
        (dependent(TEN, is_open=False), ToRest("its parent is disabled")),
        (dependent(TEN)._replace(parent=None), ToRest("its parent is missing")),
        (dependent(TEN, group_priority=20), AFTER_PARENT._replace(priority=31)),
        (dependent(TEN, timing={"exclusions": (DaysOfWeek((0,)),)}), AFTER_PARENT),
        (
            dependent(TEN, timing={"exclusions": (DaysOfWeek((0,)),)}, failure_count=1),
            ToEnqueue(origin=Origin.RETRY, priority=19, scheduled_for=None, scheduled_at=TEN + 5 * MINUTE),
        ),
        (
            dependent(TEN, consumed_parent_success_at=TEN, failure_count=1, attempt_cancelled=True),
            ToRest("its parent has not succeeded since it was last queued"),
        ),
        (
            dependent(TEN, consumed_parent_success_at=TEN - MINUTE, failure_count=1, attempt_cancelled=True),
            AFTER_PARENT,
        ),
    ],
)
def test_a_dependent_follows_the_success_of_its_parent(manifest: ManifestState, decision: object) -> None:
    assert decide(manifest, RULES, TEN) == decision


OVERLAPPING: dict[str, Any] = {"max_instances": 2, "last_scheduled_for": TEN - 5 * MINUTE}


@pytest.mark.parametrize(
    ("changes", "decision"),
    [
        ({}, DUE._replace(next_due_at=TEN + 5 * MINUTE)),
        ({"active_runs": 1}, DUE._replace(next_due_at=TEN + 5 * MINUTE)),
        ({"active_runs": 2}, ToRest("2 of at most 2 runs are active")),
        ({"has_queued_entry": True}, ToWait(TEN + 5 * MINUTE)),
        (
            {"active_runs": 1, "latest_attempt": 2, "failure_count": 1},
            DUE._replace(next_due_at=TEN + 5 * MINUTE),
        ),
    ],
)
def test_overlapping_manifests_are_evaluated_for_every_occurrence(
    changes: dict[str, Any], decision: object
) -> None:
    assert decide(standing(OVERLAPPING, **changes), RULES, TEN) == decision


@pytest.mark.parametrize(
    "timing",
    [
        {"schedule_type": ScheduleType.CRON, "schedule": Cron("every now and then")},
        {"schedule_type": ScheduleType.CRON, "schedule": Cron("0 3 * * *", "Mars/Olympus")},
        {"schedule_type": ScheduleType.CRON, "schedule": Cron("x"), "max_instances": 2},
        {"schedule": Interval(0)},
        {"schedule": None},
        {"schedule_type": ScheduleType.ONCE},
        {"exclusions": (DaysOfWeek((0,)),), "time_zone": "Mars/Olympus"},
        {"broken": "its exclusions cannot be read"},
    ],
    ids=str,
)
@pytest.mark.parametrize("changes", [{}, {"failure_count": 1}, {"has_queued_entry": True}], ids=str)
def test_an_unreadable_manifest_never_raises(timing: dict[str, Any], changes: dict[str, Any]) -> None:
    decision = decide(standing(timing, **changes), RULES, TEN)

    match decision:
        case ToDefer(until=until) | ToWait(until):  # another server may be able to
            assert until == TEN + 5 * MINUTE
        case ToRest():
            assert changes == {"has_queued_entry": True} or timing == {"schedule_type": ScheduleType.ONCE}
        case _:
            assert changes == {"failure_count": 1}


def test_a_failed_manifest_that_is_unreadable_is_not_retried() -> None:
    manifest = standing({"broken": "its exclusions cannot be read"}, failure_count=1)

    assert decide(manifest, RULES, TEN) == ToDefer("its exclusions cannot be read", TEN + 5 * MINUTE)
