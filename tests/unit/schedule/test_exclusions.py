from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trax.errors import DefinitionError
from trax.records.schedule import Calendar, DateRange, Dates, DaysOfWeek, Exclusion, TimeWindow, Window
from trax.schedule import exclude, exclusions_from_json, exclusions_to_json, first_allowed, is_excluded

WEEKEND = exclude.days_of_week("sat", "sun")
NIGHT = exclude.time_window("22:00", "06:00")
HOLIDAYS = exclude.date_range("2027-12-24", "2027-12-26")
OFFICE_HOURS = Calendar("office hours", (exclude.time_window("09:00", "17:00"),), only=True)
BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"
INSTANT = timedelta(microseconds=1)


def at(text: str, zone: str = "UTC", fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).astimezone(UTC)


def test_days_are_names_or_numbers_from_monday() -> None:
    assert exclude.days_of_week("sat", "Sunday", 0, 5) == DaysOfWeek((0, 5, 6))


def test_dates_and_times_are_text_or_values() -> None:
    assert exclude.dates("2026-12-25", date(2026, 1, 1)) == Dates((date(2026, 1, 1), date(2026, 12, 25)))
    assert exclude.date_range("2026-12-24", date(2026, 12, 26)) == DateRange(
        date(2026, 12, 24), date(2026, 12, 26)
    )
    assert exclude.time_window("22:00", time(6)) == TimeWindow(time(22), time(6))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (exclude.days_of_week, "needs a day"),
        (
            lambda: exclude.days_of_week("saturdy"),
            "'saturdy' is not a day of the week; did you mean 'saturday'",
        ),
        (lambda: exclude.days_of_week(7), "7 is not a day of the week"),
        (exclude.dates, "needs a date"),
        (lambda: exclude.dates("25.12.2026"), "'25.12.2026' is not a date"),
        (lambda: exclude.dates(datetime(2026, 12, 25, 12, tzinfo=UTC)), "is not a date"),
        (lambda: exclude.date_range("2026-12-26", "2026-12-24"), "ends on 2026-12-24, before it starts"),
        (lambda: exclude.time_window("25:00", "06:00"), "'25:00' is not a time of day"),
        (lambda: exclude.time_window(time(22, tzinfo=UTC), "06:00"), "has a time zone"),
    ],
)
def test_an_invalid_window_is_refused_with_its_value(make: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        make()


@pytest.mark.parametrize(
    ("exclusion", "moment", "excluded"),
    [
        (WEEKEND, "2027-03-06 23:59:59", True),
        (WEEKEND, "2027-03-08 00:00:00", False),
        (NIGHT, "2027-03-01 22:00:00", True),
        (NIGHT, "2027-03-01 23:30:00", True),
        (NIGHT, "2027-03-01 05:59:59", True),
        (NIGHT, "2027-03-01 06:00:00", False),
        (NIGHT, "2027-03-01 21:59:59", False),
        (exclude.time_window("09:00", "17:00"), "2027-03-01 09:00:00", True),
        (exclude.time_window("09:00", "17:00"), "2027-03-01 17:00:00", False),
        (exclude.time_window("09:00", "09:00"), "2027-03-01 09:00:00", False),
        (HOLIDAYS, "2027-12-23 23:59:59", False),
        (HOLIDAYS, "2027-12-24 00:00:00", True),
        (HOLIDAYS, "2027-12-25 12:00:00", True),
        (HOLIDAYS, "2027-12-26 23:59:59", True),
        (HOLIDAYS, "2027-12-27 00:00:00", False),
        (exclude.dates("2027-12-25"), "2027-12-25 13:00:00", True),
        (exclude.dates("2027-12-25"), "2028-12-25 13:00:00", False),
        (Calendar("closed", (WEEKEND, HOLIDAYS)), "2027-12-24 12:00:00", True),
        (Calendar("closed", (WEEKEND, HOLIDAYS)), "2027-12-23 12:00:00", False),
        (OFFICE_HOURS, "2027-03-01 08:59:59", True),
        (OFFICE_HOURS, "2027-03-01 09:00:00", False),
        (Calendar("nothing", (), only=True), "2027-03-01 09:00:00", True),
    ],
)
def test_a_window_covers_the_declared_times(exclusion: Exclusion, moment: str, excluded: bool) -> None:
    assert is_excluded((exclusion,), "UTC", at(moment)) is excluded


def test_either_of_two_exclusions_suffices() -> None:
    both = (WEEKEND, NIGHT)

    assert is_excluded(both, "UTC", at("2027-03-06 12:00"))
    assert is_excluded(both, "UTC", at("2027-03-01 23:00"))
    assert not is_excluded(both, "UTC", at("2027-03-01 12:00"))
    assert not is_excluded((), "UTC", at("2027-03-01 12:00"))


def test_windows_are_read_in_the_zone() -> None:
    assert is_excluded((NIGHT,), "UTC", at("2027-01-01 05:30"))
    assert not is_excluded((NIGHT,), BERLIN, at("2027-01-01 05:30"))


@pytest.mark.parametrize(
    ("exclusions", "zone", "now", "allowed"),
    [
        ((), "UTC", "2027-03-06 12:00", "2027-03-06 12:00"),
        ((WEEKEND,), "UTC", "2027-03-05 12:00", "2027-03-05 12:00"),
        ((WEEKEND,), "UTC", "2027-03-06 12:00", "2027-03-08 00:00"),
        ((WEEKEND,), BERLIN, "2027-03-06 12:00", "2027-03-08 00:00"),
        ((NIGHT,), "UTC", "2027-03-01 23:00", "2027-03-02 06:00"),
        ((NIGHT,), "UTC", "2027-03-01 03:00", "2027-03-01 06:00"),
        ((WEEKEND, NIGHT), "UTC", "2027-03-05 23:00", "2027-03-08 06:00"),
        ((HOLIDAYS, WEEKEND, NIGHT), BERLIN, "2027-12-24 12:00", "2027-12-27 06:00"),
        ((exclude.dates("2027-03-01", "2027-03-02"),), "UTC", "2027-03-01 12:00", "2027-03-03 00:00"),
        ((Calendar("closed", (WEEKEND, NIGHT)),), "UTC", "2027-03-05 23:00", "2027-03-08 06:00"),
        ((OFFICE_HOURS,), BERLIN, "2027-03-01 18:00", "2027-03-02 09:00"),
        ((OFFICE_HOURS, WEEKEND), BERLIN, "2027-03-05 18:00", "2027-03-08 09:00"),
        ((Calendar("sales", (HOLIDAYS,), only=True),), "UTC", "2027-03-01 12:00", "2027-12-24 00:00"),
        (
            (Calendar("launch", (exclude.dates("2027-05-01", "2027-04-01"),), only=True),),
            "UTC",
            "2027-03-01 12:00",
            "2027-04-01 00:00",
        ),
    ],
)
def test_the_end_of_what_excludes_is_computed(
    exclusions: tuple[Exclusion, ...], zone: str, now: str, allowed: str
) -> None:
    assert first_allowed(exclusions, zone, at(now, zone)) == at(allowed, zone)


@pytest.mark.parametrize(
    "exclusions",
    [
        (exclude.days_of_week(*range(7)),),
        (exclude.time_window("00:00", "12:00"), exclude.time_window("12:00", "00:00")),
        (exclude.date_range("2027-01-01", date.max),),
        (exclude.date_range("2027-01-01", "2040-01-01"),),
        (OFFICE_HOURS, exclude.time_window("08:00", "18:00")),
        (Calendar("past", (exclude.dates("2020-01-01"),), only=True),),
        (Calendar("never", (exclude.time_window("09:00", "09:00"),), only=True),),
        (Calendar("closed", (exclude.days_of_week(*range(7)), NIGHT)),),
    ],
)
def test_exclusions_without_a_free_moment_return_none(exclusions: tuple[Exclusion, ...]) -> None:
    assert first_allowed(exclusions, BERLIN, at("2027-03-01 23:00")) is None


def test_a_window_that_ends_in_a_gap_ends_right_after_it() -> None:
    night = (exclude.time_window("22:00", "02:30"),)

    assert first_allowed(night, NEW_YORK, at("2026-03-08 01:00", NEW_YORK)) == at(
        "2026-03-08 03:00", NEW_YORK
    )


def test_a_day_that_begins_in_a_gap_begins_right_after_it() -> None:
    thursday = (exclude.days_of_week("thu"),)

    allowed = first_allowed(thursday, "Africa/Cairo", at("2026-04-23 12:00", "Africa/Cairo"))

    assert allowed == at("2026-04-24 01:00", "Africa/Cairo")


def test_clocks_that_are_turned_back_may_leave_a_window_and_enter_it_again() -> None:
    window = (exclude.time_window("01:30", "03:00"),)

    first = first_allowed(window, NEW_YORK, at("2026-11-01 01:40", NEW_YORK))
    second = first_allowed(window, NEW_YORK, at("2026-11-01 01:40", NEW_YORK, fold=1))

    assert first == at("2026-11-01 01:00", NEW_YORK, fold=1)
    assert second == at("2026-11-01 03:00", NEW_YORK)


def test_exclusions_travel_as_json() -> None:
    exclusions = (WEEKEND, exclude.dates("2027-12-25"), HOLIDAYS, NIGHT, OFFICE_HOURS)

    text = exclusions_to_json(exclusions)

    assert text is not None
    assert '"kind":"days_of_week"' in text
    assert exclusions_from_json(text) == exclusions


def test_no_exclusions_are_stored_as_nothing() -> None:
    assert exclusions_to_json(()) is None
    assert exclusions_from_json(None) == ()


days = st.dates(date(2026, 1, 1), date(2027, 12, 31))
times = st.builds(time, st.integers(0, 23), st.sampled_from([0, 15, 30, 59]))
windows: st.SearchStrategy[Window] = st.one_of(
    st.sets(st.integers(0, 6), min_size=1, max_size=6).map(lambda chosen: exclude.days_of_week(*chosen)),
    st.sets(days, min_size=1, max_size=5).map(lambda chosen: exclude.dates(*chosen)),
    st.tuples(days, days).map(sorted).map(lambda ends: exclude.date_range(*ends)),
    st.builds(TimeWindow, times, times),
)
calendars = st.builds(
    Calendar, st.just("calendar"), st.lists(windows, min_size=1, max_size=3).map(tuple), st.booleans()
)
turning = ["UTC", BERLIN, NEW_YORK, "Africa/Cairo", "America/Nuuk", "America/Havana", "Australia/Lord_Howe"]
moments = st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001
turns = st.sampled_from([at(text) for text in ("2026-03-29 00:30", "2026-10-25 00:30", "2026-11-01 05:30")])
near_turns = st.tuples(turns, st.integers(-30, 30)).map(lambda near: near[0] + timedelta(hours=near[1]))


@given(st.lists(windows | calendars, max_size=3), st.sampled_from(turning), moments | near_turns)
@settings(derandomize=True, max_examples=400)
def test_the_first_moment_allowed_is_allowed_and_the_one_before_is_not(
    exclusions: list[Exclusion], zone: str, now: datetime
) -> None:
    allowed = first_allowed(exclusions, zone, now)

    if allowed is not None:
        assert not is_excluded(exclusions, zone, allowed)
        assert allowed == now or is_excluded(exclusions, zone, allowed - INSTANT)
        steps = range((min(allowed, now + timedelta(days=2)) - now) // timedelta(minutes=15))
        assert all(is_excluded(exclusions, zone, now + step * timedelta(minutes=15)) for step in steps)
