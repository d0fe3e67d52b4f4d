from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trax.records.schedule import Cron, Interval, Misfire, Schedule, Timing
from trax.records.states import MisfirePolicy, ScheduleType
from trax.schedule import (
    DueStatus,
    Fire,
    Never,
    Wait,
    check_due,
    cron,
    every,
    exclude,
    fire_all,
    is_excluded,
    occurrences,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

ONCE_NOW, NOTHING = Misfire(), Misfire(MisfirePolicy.DO_NOTHING)
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
EVERY_5 = every(minutes=5)


def at(text: str) -> datetime:
    """A time on Monday the first of March, unless a date is given."""
    full = text if "-" in text else f"2027-03-01 {text}"
    return datetime.fromisoformat(full).replace(tzinfo=UTC)


def of(schedule: Schedule | None, **known: Any) -> Timing:
    kind = ScheduleType.CRON if isinstance(schedule, Cron) else ScheduleType.INTERVAL
    usual: dict[str, Any] = {"schedule_type": kind, "created_at": at("2027-01-01")}
    return Timing(schedule=schedule, **usual | known)


@pytest.mark.parametrize("schedule", [EVERY_5, cron("0 3 * * *"), every(hours=1, anchored=True)])
@pytest.mark.parametrize("misfire", [ONCE_NOW, NOTHING, fire_all(10)])
def test_a_manifest_that_never_succeeded_is_due_at_once(schedule: Schedule, misfire: Misfire) -> None:
    assert check_due(of(schedule, misfire=misfire), at("10:00:07")) == Fire(at("10:00:07"))


def test_a_first_run_set_beforehand_is_kept() -> None:
    timing = of(cron("0 3 * * *"), next_scheduled_run=at("2027-03-02 03:00"))

    assert check_due(timing, at("10:00")) == Wait(at("2027-03-02 03:00"))
    assert check_due(timing, at("2027-03-02 03:00")) == Fire(at("2027-03-02 03:00"))


def test_an_interval_counts_from_the_end_of_the_last_success() -> None:
    timing = of(EVERY_5, last_successful_run=at("10:00"))

    assert check_due(timing, at("10:04:59")) == Wait(at("10:05"))
    assert check_due(timing, at("10:05:00")) == Fire(at("10:05"))


@pytest.mark.parametrize(
    ("now", "misfire", "answer"),
    [
        ("10:04:59", ONCE_NOW, Wait(at("10:05"))),
        ("10:04:59", NOTHING, Wait(at("10:05"))),
        ("10:05:30", ONCE_NOW, Fire(at("10:05"))),
        ("10:05:30", NOTHING, Fire(at("10:05"))),
        ("10:12:00", ONCE_NOW, Fire(at("10:10"))),
        ("10:12:00", NOTHING, Wait(at("10:15"))),
        ("10:10:30", NOTHING, Fire(at("10:10"))),
        ("10:11:00", NOTHING, Fire(at("10:10"))),
        ("10:11:01", NOTHING, Wait(at("10:15"))),
        ("13:02:00", NOTHING, Wait(at("13:05"))),
        ("13:00:30", NOTHING, Fire(at("13:00"))),
        ("13:02:00", ONCE_NOW, Fire(at("13:00"))),
        ("10:12:00", replace(NOTHING, threshold=timedelta(seconds=180)), Fire(at("10:10"))),
    ],
)
def test_a_missed_interval_follows_its_policy(now: str, misfire: Misfire, answer: DueStatus) -> None:
    assert check_due(of(EVERY_5, misfire=misfire, last_successful_run=at("10:00")), at(now)) == answer


@pytest.mark.parametrize(
    ("now", "misfire", "answer"),
    [
        ("02:59:00", ONCE_NOW, Wait(at("03:00"))),
        ("03:00:05", ONCE_NOW, Fire(at("03:00"))),
        ("03:00:05", NOTHING, Fire(at("03:00"))),
        ("09:00:00", ONCE_NOW, Fire(at("03:00"))),
        ("09:00:00", NOTHING, Wait(at("2027-03-02 03:00"))),
        ("2027-03-05 09:00", ONCE_NOW, Fire(at("2027-03-05 03:00"))),
        ("2027-03-05 03:00:30", NOTHING, Fire(at("2027-03-05 03:00"))),
    ],
)
def test_a_missed_cron_occurrence_follows_its_policy(now: str, misfire: Misfire, answer: DueStatus) -> None:
    timing = of(cron("0 3 * * *"), misfire=misfire, last_successful_run=at("2027-02-28 03:00:10"))

    assert check_due(timing, at(now)) == answer


def test_seconds_count_in_six_fields() -> None:
    timing = of(cron("*/15 * * * * *"), last_successful_run=at("10:00:00"))

    assert check_due(timing, at("10:00:14")) == Wait(at("10:00:15"))
    assert check_due(timing, at("10:00:15")) == Fire(at("10:00:15"))


@pytest.mark.parametrize(
    ("last", "now", "answer"),
    [
        ("10:03", "10:04:59", Wait(at("10:05"))),
        ("10:03", "10:05:00", Fire(at("10:05"))),
        ("10:07", "10:08", Wait(at("10:10"))),
        ("10:10", "10:12", Wait(at("10:15"))),
        ("10:03", "10:21", Fire(at("10:20"))),
    ],
)
def test_an_anchored_interval_keeps_its_rate(last: str, now: str, answer: DueStatus) -> None:
    timing = of(every(minutes=5, anchored=True), created_at=at("09:00"), last_successful_run=at(last))

    assert check_due(timing, at(now)) == answer


@pytest.mark.parametrize(
    ("timing", "reason"),
    [
        (of(Interval(0)), "0 s is invalid"),
        (of(Interval(-5), last_successful_run=at("10:00")), "-5 s is invalid"),
        (of(None), "without a schedule"),
        (of(None, schedule_type=ScheduleType.CRON), "without a schedule"),
        (of(Cron("")), "0 fields"),
        (of(Cron("61 * * * *")), "minute '61'"),
        (of(Cron("61 * * * *"), last_successful_run=at("10:00")), "minute '61'"),
        (of(Cron("9" * 5000 + " * * * *")), "cron expression"),
        (of(Cron("@daily", "Mars/Olympus")), "unknown time zone"),
        (
            of(EVERY_5, exclusions=(exclude.days_of_week("sun"),), time_zone="Mars/Olympus"),
            "unknown time zone",
        ),
        (of(EVERY_5, exclusions=(exclude.days_of_week(*range(7)),)), "allow no start"),
        *((of(EVERY_5, schedule_type=kind), "has no schedule") for kind in list(ScheduleType)[-2:]),
        (of(None, schedule_type=ScheduleType.NONE), "has no schedule"),
        (of(None, schedule_type=ScheduleType.ON_DEMAND), "has no schedule"),
    ],
)
def test_an_unreadable_timing_never_runs_with_a_reason(timing: Timing, reason: str) -> None:
    answer = check_due(timing, at("10:00"))

    assert isinstance(answer, Never)
    assert reason in answer.reason


def test_a_once_manifest_is_due_until_it_has_succeeded() -> None:
    timing = of(None, schedule_type=ScheduleType.ONCE, scheduled_at=at("10:00"))

    assert check_due(timing, at("09:59:59")) == Wait(at("10:00"))
    assert check_due(timing, at("10:00:00")) == Fire(at("10:00"))
    assert check_due(timing, at("2028-01-01")) == Fire(at("10:00"))
    assert isinstance(check_due(timing._replace(last_successful_run=at("10:00:01")), at("11:00")), Never)
    assert isinstance(check_due(timing._replace(scheduled_at=None), at("11:00")), Never)


def test_jitter_is_waited_for_and_measured_from() -> None:
    timing = of(EVERY_5, last_successful_run=at("10:00"), next_scheduled_run=at("10:05:40"))

    assert check_due(timing, at("10:05:30")) == Wait(at("10:05:40"))
    assert check_due(timing, at("10:05:40")) == Fire(at("10:05:40"))
    assert check_due(timing._replace(misfire=NOTHING), at("10:06:40")) == Fire(at("10:05:40"))
    assert check_due(timing._replace(misfire=NOTHING), at("10:06:41")) == Wait(at("10:10"))


@pytest.mark.parametrize(
    ("misfire", "answers"),
    [
        (ONCE_NOW, [Wait(at("2027-03-08 00:00")), Fire(at("2027-03-08 00:00") - 21 * 60 * MINUTE)]),
        (NOTHING, [Wait(at("2027-03-08 00:00")), Wait(at("2027-03-08 03:00"))]),
    ],
)
def test_an_excluded_weekend_is_skipped(misfire: Misfire, answers: list[DueStatus]) -> None:
    """The last success was on Friday; Saturday's occurrence is overdue when the weekend ends."""
    timing = of(
        cron("0 3 * * *"),
        misfire=misfire,
        exclusions=(exclude.days_of_week("sat", "sun"),),
        last_successful_run=at("2027-03-05 03:00:10"),
    )

    saturday, monday = check_due(timing, at("2027-03-06 03:00")), check_due(timing, at("2027-03-08 00:00"))

    assert [saturday, monday] == answers
    assert isinstance(check_due(timing, at("2027-03-08 03:00")), Fire)


def test_an_occurrence_in_an_exclusion_is_delayed_to_its_end() -> None:
    night = (exclude.time_window("22:00", "06:00"),)
    once = of(None, schedule_type=ScheduleType.ONCE, scheduled_at=at("23:00"), exclusions=night)

    assert check_due(once, at("12:00")) == Wait(at("2027-03-02 06:00"))
    assert check_due(of(EVERY_5, exclusions=night), at("23:59:59")) == Wait(at("2027-03-02 06:00"))
    assert check_due(of(EVERY_5, exclusions=night), at("21:59:59")) == Fire(at("21:59:59"))


def test_exclusions_are_read_in_the_manifests_zone() -> None:
    weekend = (exclude.days_of_week("sat", "sun"),)
    timing = of(EVERY_5, exclusions=weekend, time_zone="America/New_York")

    assert check_due(timing, at("2027-03-08 02:00")) == Wait(at("2027-03-08 05:00"))


def replayed(timing: Timing, now: datetime) -> list[str]:
    """What is queued, one by one, until there is nothing more to do."""
    made_up: list[str] = []
    while isinstance(answer := check_due(timing, now), Fire):
        made_up.append(f"{answer.scheduled_for:%H:%M}")
        timing = timing._replace(last_scheduled_for=answer.scheduled_for)
    return made_up


@pytest.mark.parametrize("schedule", [EVERY_5, every(minutes=5, anchored=True), cron("*/5 * * * *")])
def test_fire_all_makes_up_the_latest_missed_in_order(schedule: Schedule) -> None:
    timing = of(schedule, last_successful_run=at("10:00:00"), misfire=fire_all(10))

    assert replayed(timing, at("10:21")) == ["10:05", "10:10", "10:15", "10:20"]
    assert replayed(timing._replace(misfire=fire_all(2)), at("10:21")) == ["10:15", "10:20"]
    assert replayed(timing._replace(last_scheduled_for=at("10:10")), at("10:21")) == ["10:15", "10:20"]
    assert check_due(timing._replace(last_scheduled_for=at("10:20")), at("10:21")) == Wait(at("10:25"))


def test_fire_all_begins_with_a_first_run_that_was_set_beforehand() -> None:
    timing = of(EVERY_5, next_scheduled_run=at("10:05"), misfire=fire_all(10))

    assert check_due(timing, at("10:04")) == Wait(at("10:05"))
    assert replayed(timing, at("10:16")) == ["10:05", "10:10", "10:15"]


@pytest.mark.parametrize("schedule", [EVERY_5, every(minutes=5, anchored=True), cron("*/5 * * * *")])
def test_fire_all_makes_up_nothing_that_was_excluded(schedule: Schedule) -> None:
    closed = (exclude.time_window("10:10", "10:30"),)
    timing = of(schedule, last_successful_run=at("10:00"), exclusions=closed, misfire=fire_all(10))

    assert replayed(timing, at("10:36")) == ["10:05", "10:30", "10:35"]
    assert replayed(timing._replace(misfire=fire_all(2)), at("10:36")) == ["10:30", "10:35"]
    assert check_due(timing, at("10:20")) == Wait(at("10:30")), "what was missed before it waits for its end"
    assert check_due(timing._replace(last_scheduled_for=at("10:05")), at("10:30:30")) == Fire(at("10:30"))


def test_where_all_that_passed_was_excluded_fire_all_waits_for_the_next() -> None:
    weekend = (exclude.days_of_week("sat", "sun"),)
    friday, monday = at("2027-03-05 03:00"), at("2027-03-08 00:00")
    timing = of(cron("0 3 * * *"), last_scheduled_for=friday, exclusions=weekend, misfire=fire_all(10))

    assert check_due(timing, at("2027-03-06 03:00")) == Wait(monday)
    assert check_due(timing, monday) == Wait(at("2027-03-08 03:00"))
    assert check_due(timing, at("2027-03-08 03:00")) == Fire(at("2027-03-08 03:00"))


@given(
    schedule=st.sampled_from([every(minutes=7), cron("*/7 * * * *", "Europe/Berlin"), cron("30 2 * * *")]),
    days=st.integers(0, 9),
    minutes=st.integers(0, 2000),
    limit=st.integers(1, 40),
    zone=st.sampled_from(["UTC", "Europe/Berlin"]),
)
@settings(derandomize=True, max_examples=60, deadline=None)
def test_fire_all_finds_what_going_through_all_of_them_finds(
    schedule: Schedule, days: int, minutes: int, limit: int, zone: str
) -> None:
    closed = (exclude.days_of_week("sat", "sun"), exclude.time_window("22:00", "02:15"))
    since = at("2027-03-20")  # Berlin changes its clocks on the 28th
    now = since + timedelta(days=days, minutes=minutes)
    timing = of(
        schedule, last_scheduled_for=since, exclusions=closed, time_zone=zone, misfire=fire_all(limit)
    )
    every_one = list(moments_between(schedule, since, now))
    missed = [each for each in every_one if not is_excluded(closed, zone, each)][-limit:]
    is_closed = is_excluded(closed, zone, now)

    answer = check_due(timing, now)

    assert answer == Fire(missed[0]) if missed and not is_closed else isinstance(answer, Wait)


def moments_between(schedule: Schedule, after: datetime, until: datetime) -> Iterator[datetime]:
    if isinstance(schedule, Cron):
        yield from occurrences(schedule, after, until)
        return
    while (after := after + timedelta(seconds=schedule.seconds)) <= until:
        yield after


def test_jitter_holds_fire_all_back_but_adds_no_run() -> None:
    timing = of(
        EVERY_5,
        last_successful_run=at("10:01"),
        last_scheduled_for=at("10:00"),
        next_scheduled_run=at("10:05:40"),
        misfire=fire_all(10),
    )

    assert check_due(timing, at("10:05:30")) == Wait(at("10:05:40"))
    assert replayed(timing, at("10:06")) == ["10:05"]


@pytest.mark.parametrize("schedule", [every(seconds=1), every(seconds=1, anchored=True), cron.secondly()])
@pytest.mark.parametrize("misfire", [ONCE_NOW, NOTHING, fire_all(3)])
def test_years_of_missed_seconds_cost_nothing(schedule: Schedule, misfire: Misfire) -> None:
    timing = of(schedule, last_successful_run=at("2007-01-01"), misfire=misfire)

    answer = check_due(timing, at("10:00:00"))

    assert answer == Fire(at("10:00:00") - timedelta(seconds=2 if misfire.limit else 0))


@pytest.mark.parametrize("schedule", [every(seconds=1), every(seconds=1, anchored=True), cron.secondly()])
def test_years_of_excluded_seconds_cost_nothing(schedule: Schedule) -> None:
    closed = (exclude.date_range("2007-01-02", "2027-02-28"),)
    timing = of(schedule, last_successful_run=at("2007-01-01"), exclusions=closed, misfire=fire_all(3))

    assert check_due(timing, at("00:00:01")) == Fire(at("2007-01-01 23:59:59"))


def test_overlapping_runs_are_each_for_an_occurrence_of_their_own() -> None:
    timing = of(EVERY_5, last_successful_run=at("10:00"), last_scheduled_for=at("10:20"), max_instances=3)

    assert check_due(timing, at("10:24")) == Wait(at("10:25"))
    assert check_due(timing, at("10:25")) == Fire(at("10:25"))
    assert replayed(timing, at("10:47")) == ["10:45"]
    assert replayed(timing._replace(next_scheduled_run=at("10:25:30")), at("10:26")) == ["10:25"]


def test_a_first_run_that_is_still_going_does_not_start_again_at_once() -> None:
    timing = of(EVERY_5, last_scheduled_for=at("10:00"), max_instances=2)

    assert check_due(timing, at("10:01")) == Wait(at("10:05"))


moments = st.datetimes(datetime(2027, 1, 1), datetime(2027, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001
schedules: st.SearchStrategy[Schedule] = st.one_of(
    st.builds(Interval, st.integers(1, 100_000), st.booleans()),
    st.builds(
        cron,
        st.sampled_from(["*/7 * * * *", "30 2 * * *", "0 0 * * mon", "*/10 * * * * *", "0 3 1 * *"]),
        st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
    ),
)
misfires = st.sampled_from([ONCE_NOW, NOTHING, fire_all(1), fire_all(4)])
exclusions = st.sampled_from(
    [(), (exclude.days_of_week("sat", "sun"),), (exclude.time_window("22:00", "06:00"),)]
)
timings = st.builds(
    of,
    schedules,
    misfire=misfires,
    exclusions=exclusions,
    time_zone=st.sampled_from(["UTC", "Europe/Berlin"]),
    max_instances=st.integers(1, 2),
    last_successful_run=st.none() | moments,
    last_scheduled_for=st.none() | moments,
    next_scheduled_run=st.none() | moments,
)


@given(timings, moments, st.floats(0, 1))
@settings(derandomize=True, max_examples=400)
def test_a_wait_ends_at_its_time_and_not_before(timing: Timing, now: datetime, part: float) -> None:
    answer = check_due(timing, now)

    if isinstance(answer, Wait):
        assert answer.until > now
        assert check_due(timing, answer.until) != answer
        before = now + (answer.until - now) * part
        assert before >= answer.until or not isinstance(check_due(timing, before), Fire)


@given(timings, moments)
@settings(derandomize=True, max_examples=300)
def test_nothing_is_fired_for_the_future_or_twice(timing: Timing, now: datetime) -> None:
    answer = check_due(timing, now)

    if isinstance(answer, Fire):
        assert answer.scheduled_for <= now
        queued = timing._replace(last_scheduled_for=answer.scheduled_for, max_instances=2)
        following = check_due(queued, now)
        assert not isinstance(following, Fire) or following.scheduled_for > answer.scheduled_for


def test_evaluating_at_each_returned_time_finds_every_occurrence_of_a_month_once() -> None:
    schedule = cron("*/20 1-3 * * *", tz="Europe/Berlin")
    timing, now, met = of(schedule, last_successful_run=at("2027-10-01")), at("2027-10-01"), list[datetime]()

    while now < at("2027-11-01"):
        match check_due(timing, now):
            case Fire(scheduled_for):
                met.append(scheduled_for)
                timing = timing._replace(last_successful_run=now)
            case Wait(until):
                now = until
            case Never():
                break

    assert met == list(occurrences(schedule, at("2027-10-01"), at("2027-11-01") - MINUTE))
