"""The next due time after the end of a run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from trax.records.schedule import Cron, Schedule, Timing
from trax.records.states import ScheduleType
from trax.schedule import (
    Fire,
    NextRun,
    Wait,
    after_cancellation,
    after_success,
    check_due,
    cron,
    every,
    exclude,
    fire_all,
    first_scheduled_run,
)

MINUTE = timedelta(minutes=1)
EVERY_5, NIGHTLY = every(minutes=5), cron("0 3 * * *")


def at(text: str) -> datetime:
    full = text if "-" in text else f"2027-03-01 {text}"
    return datetime.fromisoformat(full).replace(tzinfo=UTC)


def of(schedule: Schedule | None, **known: Any) -> Timing:
    kind = ScheduleType.CRON if isinstance(schedule, Cron) else ScheduleType.INTERVAL
    usual: dict[str, Any] = {"schedule_type": kind, "created_at": at("00:00")}
    return Timing(schedule=schedule, **usual | known)


@pytest.fixture
def random() -> Random:
    return Random(7)  # noqa: S311


@pytest.mark.parametrize(
    ("schedule", "due"),
    [
        (EVERY_5, "10:07:30"),
        (every(minutes=5, anchored=True), "10:05"),
        (NIGHTLY, "2027-03-02 03:00"),
        (cron("*/15 * * * * *"), "10:02:45"),
    ],
)
def test_a_success_plans_the_next_occurrence(schedule: Schedule, due: str, random: Random) -> None:
    assert after_success(of(schedule), at("10:02:30"), random) == (None, at(due))


def test_a_success_forgets_what_was_set_beforehand(random: Random) -> None:
    timing = of(EVERY_5, next_scheduled_run=at("10:01"))

    assert after_success(timing, at("10:02:00"), random) == (None, at("10:07"))


def test_variance_is_thrown_after_each_success(random: Random) -> None:
    timing = of(every(minutes=5, variance=MINUTE))

    thrown = {after_success(timing, at("10:00"), random) for _ in range(500)}

    assert thrown == {NextRun(due, due) for due in (at("10:05") + n * MINUTE / 60 for n in range(61))}


def test_variance_counts_from_the_next_cron_occurrence(random: Random) -> None:
    timing = of(cron("0 3 * * *", variance=MINUTE))

    planned, due = after_success(timing, at("03:00:40"), random)

    assert planned == due
    assert due is not None
    assert at("2027-03-02 03:00") <= due <= at("2027-03-02 03:01")


def test_a_success_plans_no_evaluation_during_an_exclusion(random: Random) -> None:
    timing = of(NIGHTLY, exclusions=(exclude.days_of_week("sat", "sun"),))

    assert after_success(timing, at("2027-03-05 03:01"), random) == (None, at("2027-03-08 00:00"))


def test_a_missed_occurrence_is_evaluated_at_once(random: Random) -> None:
    timing = of(EVERY_5, last_scheduled_for=at("10:00"), misfire=fire_all(10))

    assert after_success(timing, at("10:12"), random) == (None, at("10:12"))


@pytest.mark.parametrize(
    "timing",
    [
        of(None, schedule_type=ScheduleType.ONCE, scheduled_at=at("10:00")),
        of(None, schedule_type=ScheduleType.DEPENDENT),
        of(None, schedule_type=ScheduleType.DORMANT_DEPENDENT),
    ],
)
def test_a_manifest_not_started_by_time_has_no_planned_evaluation(timing: Timing, random: Random) -> None:
    assert after_success(timing, at("10:02"), random) == (None, None)
    assert after_cancellation(timing, at("10:02")) == (None, None)


def test_an_unreadable_timing_is_left_to_the_manager_of_any_server(random: Random) -> None:
    timing = of(Cron("broken", variance_seconds=60))

    assert after_success(timing, at("10:02"), random) == (None, at("10:02"))
    assert after_cancellation(timing, at("10:02")) == (None, at("10:02"))


@pytest.mark.parametrize(
    ("schedule", "due"),
    [
        (EVERY_5, "10:25"),
        (every(minutes=5, anchored=True), "10:25"),
        (cron("*/15 * * * *"), "10:30"),
    ],
)
@pytest.mark.parametrize("last", [None, "09:55"])
def test_a_cancelled_run_is_followed_by_the_next_regular_one(
    schedule: Schedule, due: str, last: str | None
) -> None:
    timing = of(schedule, last_successful_run=at(last) if last else None, last_scheduled_for=at("10:00"))

    planned, next_due_at = after_cancellation(timing, at("10:20"))

    assert (planned, next_due_at) == (at(due), at(due))
    postponed = of(schedule, last_successful_run=timing.last_successful_run, next_scheduled_run=planned)
    assert check_due(postponed, at("10:20:01")) == Wait(at(due))
    assert check_due(postponed, at(due)) == Fire(at(due))


def test_a_cancelled_run_holds_up_none_that_overlap_it() -> None:
    timing = of(EVERY_5, last_scheduled_for=at("10:20"), max_instances=3)

    assert after_cancellation(timing, at("10:22")) == (None, at("10:25"))


def test_a_first_run_may_have_to_wait_for_its_occurrence() -> None:
    now = at("10:00")

    assert first_scheduled_run(of(EVERY_5), "now", now) is None
    assert first_scheduled_run(of(EVERY_5), "next_occurrence", now) == at("10:05")
    assert first_scheduled_run(of(NIGHTLY), "next_occurrence", now) == at("2027-03-02 03:00")
    assert first_scheduled_run(of(Cron("broken")), "next_occurrence", now) is None


def test_by_default_an_interval_starts_at_once_and_cron_at_its_first_occurrence() -> None:
    now = at("10:00")

    assert first_scheduled_run(of(EVERY_5), None, now) is None
    assert first_scheduled_run(of(NIGHTLY), None, now) == at("2027-03-02 03:00")
    assert first_scheduled_run(of(NIGHTLY), "now", now) is None
