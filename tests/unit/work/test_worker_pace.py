from __future__ import annotations

import math

import pytest

from trax.worker.worker import Pace


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pace(clock: Clock) -> Pace:
    return Pace(clock)


def test_from_fetch_to_fetch_all_that_ended_counts(pace: Pace, clock: Clock) -> None:
    clock.now = 2.0
    assert pace.measure(0.0, ended=30) == (30, 15.0)

    clock.now = 3.0
    assert pace.measure(2.0, ended=40) == (10, 10.0)


def test_runs_ended_before_the_fetch_count_for_their_part_of_the_time(pace: Pace, clock: Clock) -> None:
    clock.now = 4.0

    assert pace.measure(3.0, ended=100) == (25, 25.0), "all of them had ended when it began"


def test_a_long_time_without_a_fetch_makes_jobs_long(pace: Pace, clock: Clock) -> None:
    clock.now = 1000.0

    assert pace.measure(999.9, ended=500) == (0, 0.5)


def test_a_clock_that_does_not_advance_gives_no_rate(pace: Pace) -> None:
    assert pace.measure(0.0, ended=7) == (7, math.inf)
