"""Clocks are turned forward and back; occurrences are neither lost nor doubled."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from functools import cache
from itertools import islice, pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trax.schedule import cron, latest_occurrence, next_occurrence, occurrences

START, END = datetime(2025, 1, 1, tzinfo=UTC), datetime(2036, 1, 1, tzinfo=UTC)
SECOND, HOUR, DAY, WEEK = (timedelta(seconds=1), timedelta(hours=1), timedelta(days=1), timedelta(weeks=1))


def at(text: str, zone: str = "UTC") -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)


def run_on(expression: str, zone: str, day: str) -> list[str]:
    """What the clocks of the zone show at the occurrences of a day, with the offset."""
    end = datetime.fromisoformat(day) + DAY
    moments = occurrences(
        cron(expression, tz=zone), at(day, zone) - SECOND, at(f"{end:%Y-%m-%d}", zone) - SECOND
    )
    return [f"{moment.astimezone(ZoneInfo(zone)):%H:%M%z}" for moment in moments]


@pytest.mark.parametrize(
    ("expression", "runs"),
    [
        ("30 2 * * *", ["03:00-0400"]),
        ("5 30 2 * * *", ["03:00-0400"]),
        ("0,30 2,3 * * *", ["03:00-0400", "03:30-0400"]),
        ("30 3 * * *", ["03:30-0400"]),
        ("*/20 2 * * *", ["03:00-0400"]),
        ("0 */6 * * *", ["00:00-0500", "06:00-0400", "12:00-0400", "18:00-0400"]),
        ("30 0-4 * * *", ["00:30-0500", "01:30-0500", "03:00-0400", "03:30-0400", "04:30-0400"]),
    ],
)
def test_a_skipped_hour_runs_once_right_after(expression: str, runs: list[str]) -> None:
    assert run_on(expression, "America/New_York", "2026-03-08") == runs


def test_an_hourly_schedule_is_not_moved_out_of_a_gap() -> None:
    runs = run_on("30 * * * *", "America/New_York", "2026-03-08")

    assert runs[:3] == ["00:30-0500", "01:30-0500", "03:30-0400"]
    assert len(runs) == 23


@pytest.mark.parametrize(
    ("expression", "runs"),
    [
        ("30 1 * * *", ["01:30-0400"]),
        ("5 30 1 * * *", ["01:30-0400"]),
        ("0,30 1,2 * * *", ["01:00-0400", "01:30-0400", "02:00-0500", "02:30-0500"]),
        ("*/30 1 * * *", ["01:00-0400", "01:30-0400", "01:00-0500", "01:30-0500"]),
    ],
)
def test_a_repeated_hour_runs_once_unless_it_is_a_wildcard(expression: str, runs: list[str]) -> None:
    assert run_on(expression, "America/New_York", "2026-11-01") == runs


def test_an_hourly_job_runs_every_hour_of_a_day_with_25() -> None:
    moments = list(
        occurrences(
            cron("0 * * * *", tz="Europe/Berlin"),
            at("2026-10-24 23:59", "Europe/Berlin"),
            at("2026-10-25 23:59", "Europe/Berlin"),
        )
    )

    assert len(moments) == 25
    assert {later - earlier for earlier, later in pairwise(moments)} == {HOUR}


@pytest.mark.parametrize(
    ("expression", "day", "runs"),
    [
        ("15 2 * * *", "2026-10-04", ["02:30+1100"]),
        ("*/10 2 * * *", "2026-10-04", ["02:30+1100", "02:40+1100", "02:50+1100"]),
        ("45 1 * * *", "2026-04-05", ["01:45+1100"]),
        ("*/15 1 * * *", "2026-04-05", ["01:00", "01:15", "01:30", "01:45", "01:30", "01:45"]),
        ("*/20 3 * * *", "2026-04-05", ["03:00+1030", "03:20+1030", "03:40+1030"]),
    ],
)
def test_half_an_hour_is_enough(expression: str, day: str, runs: list[str]) -> None:
    found = run_on(expression, "Australia/Lord_Howe", day)

    assert [full[: len(short)] for full, short in zip(found, runs, strict=True)] == runs


def test_a_midnight_that_does_not_exist_is_an_hour_later() -> None:
    assert run_on("0 0 * * *", "Africa/Cairo", "2026-04-24 01:00") == ["01:00+0300"]
    assert run_on("30 * 24 4 *", "Africa/Cairo", "2026-04-24 01:00")[:2] == ["01:30+0300", "02:30+0300"]


def test_a_day_that_does_not_exist_is_made_up_at_its_end() -> None:
    runs = list(occurrences(cron("0 10 * * *", tz="Pacific/Apia"), at("2011-12-28 12:00"), at("2012-01-01")))

    local = [f"{moment.astimezone(ZoneInfo('Pacific/Apia')):%d %H:%M}" for moment in runs]
    assert local == ["28 10:00", "29 10:00", "31 00:00", "31 10:00", "01 10:00"]


def test_the_latest_occurrence_is_found_from_behind() -> None:
    nightly = cron("0 3 * * *")
    now = at("2027-03-01 09:00")

    assert latest_occurrence(nightly, now, at("1999-01-01")) == at("2027-03-01 03:00")
    assert latest_occurrence(nightly, at("2027-03-01 03:00"), at("2027-02-28")) == at("2027-03-01 03:00")
    assert latest_occurrence(nightly, now, at("2027-03-01 03:00")) is None


def test_nothing_is_found_beyond_the_ends() -> None:
    between = occurrences(cron("0 3 * * *"), at("2027-03-01 03:00"), at("2027-03-03 03:00"))

    assert list(between) == [at("2027-03-02 03:00"), at("2027-03-03 03:00")]


zones = sorted(available_timezones())
moments = st.datetimes(START.replace(tzinfo=None), END.replace(tzinfo=None), timezones=st.just(UTC))
fields = st.tuples(
    st.sampled_from(["", "30 ", "*/20 "]),
    st.sampled_from(["0", "30", "*", "*/15", "5-55/25", "59"]),
    st.sampled_from(["*", "0", "1", "2", "3", "23", "*/2", "0-4", "22-2"]),
    st.sampled_from(["* * *", "* * SUN", "* 3,4,9,10,11 *", "L * *", "25-31 * 0"]),
)
expressions = fields.map(lambda parts: f"{parts[0]}{' '.join(parts[1:])}")


@given(st.sampled_from(zones), expressions, moments)
@settings(derandomize=True, max_examples=200)
def test_forwards_and_backwards_meet(zone: str, expression: str, start: datetime) -> None:
    schedule = cron(expression, tz=zone)

    found = list(islice(occurrences(schedule, start, END + 9 * 366 * DAY), 8))

    assert found == sorted(set(found))
    assert [latest_occurrence(schedule, moment, start) for moment in found] == found
    behind = [latest_occurrence(schedule, moment - SECOND / 1000, start) for moment in found]
    assert behind == [None, *found[:-1]]


@given(st.sampled_from(zones), st.times().map(lambda of_day: of_day.replace(microsecond=0)), moments)
@settings(derandomize=True, max_examples=200)
def test_a_daily_job_runs_daily_in_every_zone(zone: str, of_day: time, start: datetime) -> None:
    schedule = cron.daily(of_day.hour, of_day.minute, of_day.second, tz=zone)

    found = list(islice(occurrences(schedule, start, END + DAY * 9), 8))

    assert len(found) == 8
    assert is_daily(found)


def is_daily(moments: list[datetime]) -> bool:
    """Clocks are turned by an hour as a rule, and by two at Troll."""
    return all(DAY - 2 * HOUR <= later - earlier <= DAY + 2 * HOUR for earlier, later in pairwise(moments))


@pytest.mark.parametrize("minutes", [-90, -30, 0, 15, 45, 60, 75])
def test_a_daily_job_runs_daily_around_every_turn_of_every_clock(minutes: int) -> None:
    for zone, turn in turns():
        wall = (turn - SECOND).astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0) + SECOND
        of_day = wall + timedelta(minutes=minutes)
        start, days = of_day - 3 * DAY - SECOND, 6

        found = list(
            occurrences(
                cron.daily(of_day.hour, of_day.minute, tz=zone),
                start.replace(tzinfo=ZoneInfo(zone)),
                (start + days * DAY).replace(tzinfo=ZoneInfo(zone)),
            )
        )

        assert len(found) == days, (zone, turn)
        assert is_daily(found)


@cache
def turns() -> list[tuple[str, datetime]]:
    """Every turn of clocks in ten years, for one zone of each kind."""
    weeks = [START + number * WEEK for number in range((END - START) // WEEK)]
    kinds = {tuple(week.astimezone(ZoneInfo(zone)).utcoffset() for week in weeks): zone for zone in zones}
    return [
        (zone, turned(zone, before))
        for offsets, zone in kinds.items()
        for before, (old, new) in zip(weeks, pairwise(offsets), strict=False)
        if old != new
    ]


def turned(zone: str, low: datetime) -> datetime:
    place, high = ZoneInfo(zone), low + WEEK
    while high - low > SECOND:
        middle = low + (high - low) // (2 * SECOND) * SECOND
        is_before = middle.astimezone(place).utcoffset() == low.astimezone(place).utcoffset()
        low, high = (middle, high) if is_before else (low, middle)
    return high


def test_there_are_clock_changes_to_test() -> None:
    assert len(turns()) > 500
    assert next_occurrence(cron("@daily"), START) > START
