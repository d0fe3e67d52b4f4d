from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from trax.errors import DefinitionError
from trax.records.schedule import Interval
from trax.schedule import add_jitter, cron, every, with_variance

TEN = datetime(2027, 3, 1, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({"seconds": 1}, 1),
        ({"minutes": 5}, 300),
        ({"hours": 1, "minutes": 30}, 5400),
        ({"days": 1}, 86400),
        ({"minutes": 0.5}, 30),
    ],
)
def test_an_interval_is_a_whole_number_of_seconds(given: Any, seconds: int) -> None:
    assert every(**given) == Interval(seconds)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"seconds": 0},
        {"minutes": -5},
        {"hours": 1, "minutes": -5},
        {"seconds": 0.5},
        {"seconds": 1.5},
        {"seconds": float("nan")},
        {"days": float("inf")},
        {"days": 100_000},
    ],
)
def test_an_invalid_interval_is_refused_with_its_value(given: Any) -> None:
    with pytest.raises(DefinitionError, match="every") as refused:
        every(**given)

    assert all(f"{unit}={value}" in str(refused.value) for unit, value in given.items() if value)


def test_schedules_compare_by_value() -> None:
    assert every(minutes=1) == every(seconds=60)
    assert every(minutes=1) != every(minutes=1, anchored=True)
    assert cron("0 3 * * *") != cron("0 3 * * *", tz="Europe/Berlin")


def test_a_variance_is_kept_in_seconds() -> None:
    minute = timedelta(minutes=1)

    assert every(minutes=5, variance=minute).variance_seconds == 60
    assert cron("@daily", variance=minute).variance_seconds == 60
    assert with_variance(every(minutes=5), minute) == every(minutes=5, variance=minute)
    assert with_variance(cron.daily(variance=minute), None) == cron.daily()


@pytest.mark.parametrize("off", [None, timedelta()])
def test_no_variance_and_zero_are_the_same(off: timedelta | None) -> None:
    assert every(minutes=5, variance=off) == every(minutes=5)


@pytest.mark.parametrize("variance", [timedelta(seconds=-1), timedelta(milliseconds=1500), 60])
def test_a_variance_that_cannot_be_is_refused(variance: Any) -> None:
    with pytest.raises(DefinitionError, match="variance"):
        every(minutes=5, variance=variance)


def test_jitter_reaches_both_ends_and_nothing_beyond() -> None:
    random = Random(7)  # noqa: S311

    thrown = {add_jitter(TEN, 3, random) for _ in range(200)}

    assert thrown == {TEN + timedelta(seconds=seconds) for seconds in range(4)}


def test_without_variance_there_is_no_jitter() -> None:
    assert add_jitter(TEN, None, Random(7)) == TEN  # noqa: S311
