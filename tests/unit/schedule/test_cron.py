from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trax.errors import DefinitionError
from trax.records.schedule import Cron
from trax.schedule import cron, next_occurrence, occurrences


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def first(expression: str, count: int, after: str = "2027-03-01 00:00") -> list[str]:
    """Monday the first of March, unless said otherwise."""
    moments = occurrences(cron(expression), at(after), at("2040-01-01"))
    return [f"{moment:%a %d %b %H:%M:%S}" for moment in islice(moments, count)]


@pytest.mark.parametrize(
    ("expression", "days"),
    [
        ("0 0 13 * fri", ["Fri 05", "Fri 12", "Sat 13", "Fri 19"]),
        ("0 0 */2 * mon", ["Mon 15", "Mon 29", "Mon 05", "Mon 19"]),
        ("0 0 13 * */2", ["Sat 13", "Tue 13", "Thu 13", "Sun 13"]),
        ("0 0 1-31/2 * mon", ["Wed 03", "Fri 05", "Sun 07", "Mon 08"]),
    ],
)
def test_either_of_two_day_fields_matches_and_both_if_one_begins_with_a_star(
    expression: str, days: list[str]
) -> None:
    assert [moment[:6] for moment in first(expression, 4, after="2027-03-01 12:00")] == days


@pytest.mark.parametrize(
    ("written", "expression"),
    [
        (cron.secondly(), "* * * * * *"),
        (cron.minutely(), "* * * * *"),
        (cron.minutely(second=5), "5 * * * * *"),
        (cron.hourly(), "0 * * * *"),
        (cron.hourly(minute=30), "30 * * * *"),
        (cron.hourly(minute=30, second=5), "5 30 * * * *"),
        (cron.daily(), "0 0 * * *"),
        (cron.daily(hour=3, second=5), "5 0 3 * * *"),
        (cron.weekly("monday", hour=9), "0 9 * * 1"),
        (cron.weekly("Sun"), "0 0 * * 0"),
        (cron.weekly(0, hour=9, minute=15, second=1), "1 15 9 * * 0"),
        (cron.monthly(), "0 0 1 * *"),
        (cron.monthly(day=15), "0 0 15 * *"),
    ],
)
def test_the_helpers_write_the_expression(written: Cron, expression: str) -> None:
    assert written == Cron(expression)


def test_the_helpers_accept_a_zone_and_a_variance() -> None:
    minute = timedelta(minutes=1)

    assert cron.daily(3, tz="Europe/Berlin", variance=minute) == Cron("0 3 * * *", "Europe/Berlin", 60)


@pytest.mark.parametrize(
    ("alias", "expression"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        (" @Daily ", "0 0 * * *"),
    ],
)
def test_an_alias_is_written_out(alias: str, expression: str) -> None:
    assert cron(alias).expression == expression


def test_an_expression_is_kept_as_given() -> None:
    assert cron("0  7 * *  mon-fri").expression == "0 7 * * mon-fri"


@pytest.mark.parametrize(
    ("expression", "moments"),
    [
        ("*/15 * * * * *", ["Mon 01 Mar 00:00:15", "Mon 01 Mar 00:00:30"]),
        ("0 9 * jan,apr mon#2", ["Mon 12 Apr 09:00:00", "Mon 10 Jan 09:00:00"]),
        ("0 0 L * *", ["Wed 31 Mar 00:00:00", "Fri 30 Apr 00:00:00"]),
        ("0 0 LW * *", ["Wed 31 Mar 00:00:00", "Fri 30 Apr 00:00:00", "Mon 31 May 00:00:00"]),
        ("0 0 * * 5L", ["Fri 26 Mar 00:00:00", "Fri 30 Apr 00:00:00"]),
        ("0 0 29 2 *", ["Tue 29 Feb 00:00:00", "Sun 29 Feb 00:00:00"]),
        ("0 0 13 * fri", ["Fri 05 Mar 00:00:00", "Fri 12 Mar 00:00:00", "Sat 13 Mar 00:00:00"]),
        ("10-30/10 0 * * 7", ["Sun 07 Mar 00:10:00", "Sun 07 Mar 00:20:00", "Sun 07 Mar 00:30:00"]),
    ],
)
def test_an_expression_means_what_cron_users_expect(expression: str, moments: list[str]) -> None:
    assert first(expression, len(moments)) == moments


@pytest.mark.parametrize(
    ("wrapped", "list_"),
    [
        ("0 0 * * FRI-MON", "0 0 * * 5,6,0,1"),
        ("0 0 * * fri-sun", "0 0 * * 5,6,0"),
        ("0 0 * * FRI-MON/2", "0 0 * * 5,0"),
        ("0 22-2 * * *", "0 22,23,0,1,2 * * *"),
        ("0 22-4/2 * * *", "0 22,0,2,4 * * *"),
        ("55-5/5 3,22-0 * * *", "55,0,5 3,22,23,0 * * *"),
        ("0 0 30-2 nov-jan *", "0 0 30,31,1,2 11,12,1 *"),
    ],
)
def test_a_range_that_runs_over_the_end_is_the_list_it_means(wrapped: str, list_: str) -> None:
    assert first(wrapped, 30) == first(list_, 30)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("* * * *", r"4 fields found; expected 5 \(minute hour .*6 \(second first\)"),
        ("* * * * * * *", "7 fields found"),
        ("", "0 fields found"),
        ("@fortnightly", "1 field found; .*@daily"),
        ("61 * * * *", r"minute '61' is invalid \(allowed: 0-59"),
        ("0 24 * * *", r"hour '24' is invalid \(allowed: 0-23"),
        ("60 0 0 * * *", "second '60'"),
        ("0 0 0 * *", r"day-of-month '0'.*1-31"),
        ("0 0 * 13 *", "month '13'"),
        ("0 0 * * mun", "day-of-week 'mun'.*SUN-SAT"),
        ("*/0 * * * *", "minute '\\*/0'"),
        ("0 22-2/0 * * *", "hour '22-2/0'"),
        ("0 0 30 2 *", "day-of-month '30'.*must exist"),
        ("0 0 31 4,6,9,11 *", "day-of-month '31'"),
        ("0 0 */10 2 mon#5", "no date matches it"),
        ("0 0 15W * *", "'15W'.*not supported; LW"),
        ("0 0 1,15w * *", "'15w'.*not supported"),
        ("? * * * *", r"minute '\?'"),
        ("9" * 2000 + " * * * *", "cron expression '999.*it has 2008 characters"),
    ],
)
def test_an_unreadable_expression_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        cron(text)


def test_something_else_than_text_is_refused() -> None:
    wrong: Any = 5

    with pytest.raises(DefinitionError, match="got 5"):
        cron(wrong)


@pytest.mark.parametrize(
    "helper", [lambda: cron.daily(hour=25), lambda: cron.weekly("mondy"), lambda: cron.weekly(8)]
)
def test_a_helper_refuses_what_no_clock_shows(helper: Any) -> None:
    with pytest.raises(DefinitionError):
        helper()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Europe/Berln", "did you mean 'Europe/Berlin'"),
        ("europe/berlin", ""),
        ("Mars/Olympus", ""),
        ("", ""),
        ("../etc/passwd", ""),
        ("Europe", ""),
        ("UTC\0", ""),
        (5, ""),
        (None, ""),
    ],
)
def test_an_unknown_zone_is_refused_with_a_hint(name: Any, hint: str) -> None:
    with pytest.raises(DefinitionError, match=f"unknown time zone .*{hint}"):
        cron("@daily", tz=name)


@given(st.text(max_size=30) | st.from_regex(r"([0-9*/,LW#-]{1,6} ){4,5}[0-9A-Z*/,L#-]{1,6}", fullmatch=True))
@settings(derandomize=True)
def test_any_text_is_either_refused_or_leads_to_a_moment(text: str) -> None:
    start = at("2027-03-01")
    try:
        schedule = cron(text)
    except DefinitionError:
        return

    assert next_occurrence(schedule, start) > start


def test_a_moment_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        next_occurrence(cron("@daily"), datetime(2027, 3, 1))  # noqa: DTZ001
