from __future__ import annotations

from datetime import timedelta

import pytest

from trax.records.schedule import Cron, Interval, Schedule
from trax.schedule import cron, every, explain, to_cron_expression


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (every(minutes=5), "every 5 min"),
        (every(hours=1), "every 1 h"),
        (every(seconds=90), "every 1 min 30 s"),
        (every(days=2), "every 2 days"),
        (every(hours=6, anchored=True), "every 6 h, at a fixed rate"),
        (every(minutes=5, variance=timedelta(minutes=1)), "every 5 min, up to 1 min later"),
        (cron("0 7 * * mon-fri"), "At 07:00 on Monday through Friday"),
        (cron("0 7 * * mon-fri", tz="Europe/Berlin"), "At 07:00 on Monday through Friday (Europe/Berlin)"),
        (cron("@hourly"), "At the start of every hour"),
        (cron("0 0 * * fri-sun"), "At 00:00 on Friday, Saturday, and Sunday"),
        (cron.daily(3, second=5), "At 03:00:05 every day"),
        (Cron("no cron"), "no cron (invalid)"),
    ],
)
def test_a_schedule_in_words(schedule: Schedule, words: str) -> None:
    assert explain(schedule) == words


@pytest.mark.parametrize(
    ("schedule", "expression"),
    [
        (None, "* * * * *"),
        (cron("0 3 * * *"), "0 3 * * *"),
        (every(seconds=1), "* * * * * *"),
        (every(seconds=15), "*/15 * * * * *"),
        (every(seconds=7), "*/6 * * * * *"),
        (every(seconds=45), "*/30 * * * * *"),
        (every(minutes=1), "* * * * *"),
        (every(minutes=5), "*/5 * * * *"),
        (every(minutes=45), "*/30 * * * *"),
        (every(minutes=60), "0 * * * *"),
        (every(minutes=120), "0 */2 * * *"),
        (every(hours=12), "0 */12 * * *"),
        (Interval(0), "* * * * * *"),
    ],
)
def test_a_schedule_as_the_nearest_cron_text(schedule: Schedule | None, expression: str) -> None:
    assert to_cron_expression(schedule) == expression
