"""Changes of a manifest at the end of its run, as tables of values."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from tests.support.results import KINDS, run_result

from trax.records.manifest import RetryPolicy
from trax.records.result import LockedManifest, ManifestChange, ResultKind, RunResult
from trax.records.schedule import Cron, DaysOfWeek, Interval, Misfire, Timing
from trax.records.states import MisfirePolicy, ScheduleType, State
from trax.schedule import Fire, Wait, check_due
from trax.schedule.decide import change_after

TEN = datetime(2027, 3, 1, 10, tzinfo=UTC)  # a Monday
RUN = 5
MINUTE = timedelta(minutes=1)
BEFORE = TEN - 10 * MINUTE
TIMING = Timing(
    schedule_type=ScheduleType.INTERVAL,
    schedule=Interval(300),
    created_at=TEN - timedelta(days=1),
    last_successful_run=BEFORE,
)
HELD = LockedManifest(
    id=1, enabled=True, failure_count=1, lifetime_failures=4, next_due_at=None, timing=TIMING
)
UNCHANGED: dict[str, Any] = {
    "id": 1,
    "enabled": True,
    "failure_count": 1,
    "lifetime_failures": 4,
    "gave_up_reason": None,
    "failed_metadata_id": None,
    "retry_at": None,
    "attempt_cancelled": False,
    "last_successful_run": BEFORE,
    "next_scheduled_run": None,
    "plan_after": None,
    "next_due_at": None,
}


def held(**timing: Any) -> LockedManifest:
    return replace(HELD, timing=TIMING._replace(**timing))


STATES = {kind: state for state, kind in KINDS.items()} | {ResultKind.INTERRUPTED: State.CANCELLED}


def end(kind: ResultKind, metadata_id: int = RUN, **more: Any) -> RunResult:
    return run_result(metadata_id, STATES[kind], kind=kind, manifest_id=1, **more)


def after(manifest: LockedManifest, *ends: RunResult) -> ManifestChange:
    return change_after(manifest, ends, TEN, Random(1))  # noqa: S311 - dice


def changes(manifest: LockedManifest, *ends: RunResult) -> dict[str, Any]:
    """What differs from how the row was."""
    return {name: value for name, value in asdict(after(manifest, *ends)).items() if value != UNCHANGED[name]}


SUCCEEDED: dict[str, Any] = {"failure_count": 0, "last_successful_run": TEN}
DORMANT = ScheduleType.DORMANT_DEPENDENT


@pytest.mark.parametrize(
    ("timing", "change"),
    [
        ({}, {"next_due_at": TEN + 5 * MINUTE}),
        (
            {"schedule_type": ScheduleType.CRON, "schedule": Cron("30 * * * *")},
            {"next_due_at": TEN + 30 * MINUTE},
        ),
        ({"next_scheduled_run": TEN - MINUTE}, {"next_due_at": TEN + 5 * MINUTE}),
        ({"schedule_type": ScheduleType.ONCE, "schedule": None, "scheduled_at": TEN}, {"enabled": False}),
        ({"schedule_type": ScheduleType.DEPENDENT, "schedule": None}, {"next_due_at": TEN}),
        ({"schedule_type": DORMANT, "schedule": None}, {}),
        ({"schedule_type": ScheduleType.ON_DEMAND, "schedule": None}, {}),
        ({"exclusions": (DaysOfWeek((0,)),)}, {"next_due_at": datetime(2027, 3, 2, tzinfo=UTC)}),
        (
            {"misfire": Misfire(MisfirePolicy.FIRE_ALL), "last_scheduled_for": TEN - 5 * MINUTE},
            {"next_due_at": TEN},
        ),
        ({"max_instances": 2, "last_scheduled_for": TEN - 4 * MINUTE}, {"next_due_at": TEN + MINUTE}),
        ({"schedule_type": ScheduleType.CRON, "schedule": Cron("broken")}, {"next_due_at": TEN}),
        ({"broken": "its exclusions cannot be read"}, {"next_due_at": TEN}),
    ],
    ids=str,
)
def test_a_success_resets_the_count_and_sets_the_next_due_time(
    timing: dict[str, Any], change: dict[str, Any]
) -> None:
    assert changes(held(**timing), end(ResultKind.SUCCESS)) == SUCCEEDED | change


def test_a_success_with_variance_throws_the_dice() -> None:
    change = after(held(schedule=Interval(300, variance_seconds=60)), end(ResultKind.SUCCESS))

    assert change.next_scheduled_run == change.next_due_at
    assert change.next_due_at is not None
    assert TEN + 5 * MINUTE <= change.next_due_at <= TEN + 6 * MINUTE


@pytest.mark.parametrize("kind", list(ScheduleType))
def test_a_failure_counts_and_is_evaluated_at_once(kind: ScheduleType) -> None:
    assert changes(held(schedule_type=kind), end(ResultKind.FAILURE)) == {
        "failure_count": 2,
        "lifetime_failures": 5,
        "failed_metadata_id": RUN,
        "next_due_at": TEN,
    }


def test_a_failure_is_not_held_up_by_a_moment_set_beforehand() -> None:
    change = after(held(next_scheduled_run=TEN + MINUTE), end(ResultKind.FAILURE))

    assert (change.next_scheduled_run, change.next_due_at) == (None, TEN)


VALUE_ERROR = ("builtins.ValueError", "builtins.Exception", "builtins.BaseException", "builtins.object")
POLICY = RetryPolicy(delay=MINUTE, multiplier=1.0, max_delay=MINUTE)


@pytest.mark.parametrize(
    ("given_up_on", "raised", "train_says", "gives_up"),
    [
        (None, VALUE_ERROR, True, True),
        (None, VALUE_ERROR, False, False),
        ((), VALUE_ERROR, True, False),
        (("builtins.ValueError",), VALUE_ERROR, False, True),
        (("builtins.Exception",), VALUE_ERROR, False, True),
        (("builtins.KeyError",), VALUE_ERROR, True, False),
        (("builtins.KeyError",), (), True, True),
    ],
)
def test_the_policy_of_the_manifest_decides_to_give_up_before_that_of_the_train(
    given_up_on: tuple[str, ...] | None, raised: tuple[str, ...], train_says: bool, gives_up: bool
) -> None:
    retry = None if given_up_on is None else replace(POLICY, give_up_on=given_up_on).to_json()
    failure = end(
        ResultKind.FAILURE,
        failure_exception="ValueError",
        failure_reason="no",
        raised=raised,
        gives_up=train_says,
    )

    change = after(replace(HELD, retry=retry), failure)

    reason = "it is not retried after ValueError: no" if gives_up else None
    assert (change.gave_up_reason, change.failure_count) == (reason, 2)


@pytest.mark.parametrize(
    ("kind", "reason"), [(ResultKind.FAILURE, "no"), (ResultKind.CANCELLED, "no"), (ResultKind.SUCCESS, None)]
)
def test_only_a_success_clears_the_reason_for_giving_up(kind: ResultKind, reason: str | None) -> None:
    assert after(replace(HELD, gave_up_reason="no"), end(kind)).gave_up_reason == reason


@pytest.mark.parametrize(
    ("kind", "delay", "retry_at"),
    [
        (ResultKind.FAILURE, 2 * MINUTE, TEN + 2 * MINUTE),
        (ResultKind.FAILURE, 0 * MINUTE, TEN),
        (ResultKind.FAILURE, None, None),
        (ResultKind.SUCCESS, None, None),
        (ResultKind.CANCELLED, None, None),
    ],
)
def test_a_requested_retry_time_is_kept_until_the_next_run_has_ended(
    kind: ResultKind, delay: timedelta | None, retry_at: datetime | None
) -> None:
    assert after(replace(HELD, retry_at=BEFORE), end(kind, delay=delay)).retry_at == retry_at


@pytest.mark.parametrize(
    ("kind", "attempt", "was_cancelled", "is_cancelled"),
    [
        (ResultKind.CANCELLED, 2, False, True),
        (ResultKind.CANCELLED, 1, False, False),  # started by hand, say: the retry is still to come
        (ResultKind.CANCELLED, 1, True, True),
        (ResultKind.FAILURE, 2, True, False),
        (ResultKind.SUCCESS, 2, True, False),
    ],
)
def test_a_retry_that_was_cancelled_is_remembered_until_the_next_end(
    kind: ResultKind, attempt: int, was_cancelled: bool, is_cancelled: bool
) -> None:
    manifest = replace(HELD, attempt_cancelled=was_cancelled)

    assert after(manifest, end(kind, attempt=attempt)).attempt_cancelled is is_cancelled


@pytest.mark.parametrize(
    ("timing", "change"),
    [
        ({}, {"next_scheduled_run": TEN + 5 * MINUTE, "next_due_at": TEN + 5 * MINUTE}),
        (
            {"schedule_type": ScheduleType.CRON, "schedule": Cron("30 * * * *")},
            {"next_scheduled_run": TEN + 30 * MINUTE, "next_due_at": TEN + 30 * MINUTE},
        ),
        (
            {"schedule_type": ScheduleType.ONCE, "schedule": None, "scheduled_at": TEN},
            {"enabled": False},
        ),
        (
            {
                "schedule_type": ScheduleType.ONCE,
                "schedule": None,
                "scheduled_at": TEN + MINUTE,
                "last_successful_run": None,
            },
            {"last_successful_run": None, "next_scheduled_run": TEN + MINUTE, "next_due_at": TEN + MINUTE},
        ),
        ({"schedule_type": ScheduleType.DEPENDENT, "schedule": None}, {"next_due_at": TEN}),
        ({"schedule_type": DORMANT, "schedule": None}, {}),
        ({"max_instances": 2, "last_scheduled_for": TEN - 4 * MINUTE}, {"next_due_at": TEN + MINUTE}),
    ],
    ids=str,
)
def test_a_cancelled_run_is_followed_by_the_next_regular_occurrence(
    timing: dict[str, Any], change: dict[str, Any]
) -> None:
    assert changes(held(**timing), end(ResultKind.CANCELLED)) == change


def test_an_interrupted_run_makes_its_manifest_due_at_once_and_changes_nothing_else() -> None:
    assert changes(HELD, end(ResultKind.INTERRUPTED)) == {"next_due_at": TEN}
    sooner = replace(HELD, next_due_at=BEFORE)
    assert changes(sooner, end(ResultKind.INTERRUPTED)) == {"next_due_at": BEFORE}


def test_a_failure_remembers_its_run_and_a_success_forgets_it() -> None:
    failed = replace(HELD, failed_metadata_id=3)

    assert after(HELD, end(ResultKind.FAILURE, 7)).failed_metadata_id == 7
    assert after(failed, end(ResultKind.CANCELLED, 7)).failed_metadata_id == 3
    assert after(failed, end(ResultKind.SUCCESS, 7)).failed_metadata_id is None


def test_the_run_that_gave_up_is_remembered_beside_one_that_merely_fails_after_it() -> None:
    gave_up = end(ResultKind.FAILURE, 7, failure_exception="No", failure_reason="way", gives_up=True)

    change = after(HELD, gave_up, end(ResultKind.FAILURE, 8))

    assert (change.gave_up_reason, change.failed_metadata_id) == (
        "it is not retried after No: way",
        7,
    )


UNKNOWN_ZONE: dict[str, Any] = {
    "schedule_type": ScheduleType.CRON,
    "schedule": Cron("0 3 * * *", "Mars/Olympus"),
}


def test_a_success_with_an_unknown_time_zone_makes_the_manifest_due_at_once() -> None:
    assert changes(held(**UNKNOWN_ZONE), end(ResultKind.SUCCESS)) == SUCCEEDED | {"next_due_at": TEN}


def test_a_cancelled_run_that_ends_where_its_zone_is_unknown_does_not_run_again_at_once() -> None:
    change = after(held(**UNKNOWN_ZONE), end(ResultKind.CANCELLED))
    assert (change.next_scheduled_run, change.next_due_at, change.plan_after) == (None, TEN, TEN)

    elsewhere = TIMING._replace(**UNKNOWN_ZONE, last_successful_run=TEN - timedelta(days=1))
    known = elsewhere._replace(schedule=Cron("0 3 * * *", "Europe/Berlin"), plan_after=change.plan_after)

    assert check_due(known, TEN) == Wait(datetime(2027, 3, 2, 2, tzinfo=UTC))
    assert check_due(known._replace(plan_after=None), TEN) == Fire(datetime(2027, 3, 1, 2, tzinfo=UTC))


@pytest.mark.parametrize(
    ("kinds", "failures"),
    [
        ([ResultKind.FAILURE, ResultKind.FAILURE], 3),
        ([ResultKind.FAILURE, ResultKind.SUCCESS], 0),
        ([ResultKind.SUCCESS, ResultKind.FAILURE], 1),
        ([ResultKind.CANCELLED, ResultKind.FAILURE], 2),
        ([], 1),
    ],
)
def test_results_count_in_the_order_given(kinds: list[ResultKind], failures: int) -> None:
    assert after(HELD, *map(end, kinds)).failure_count == failures


def test_a_disabled_manifest_stays_disabled() -> None:
    assert not after(replace(HELD, enabled=False), end(ResultKind.SUCCESS)).enabled
