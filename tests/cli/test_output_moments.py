from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from trax.cli.output import moment
from trax.clock import format_distance

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)


def test_a_moment_is_exact_and_relative() -> None:
    elsewhere = (NOON - timedelta(minutes=5)).astimezone()

    assert moment(elsewhere, NOON) == "2027-03-01 11:55:00Z (5 min ago)"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "now"), (40, "in 40 s"), (-3600, "1 h ago"), (-3725, "1 h 2 min ago"), (86400 + 59, "in 1 day")],
)
def test_a_distance_is_shown_in_two_units_at_most(seconds: float, said: str) -> None:
    assert format_distance(NOON + timedelta(seconds=seconds), NOON) == said
