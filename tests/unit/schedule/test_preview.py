from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from trax.records.schedule import Timing
from trax.records.states import ScheduleType
from trax.schedule import cron, every, exclude
from trax.schedule.preview import preview_runs

SATURDAY = datetime(2027, 3, 27, 12, tzinfo=UTC)


def timing(schedule: Any, kind: ScheduleType = ScheduleType.CRON, **more: Any) -> Timing:
    zone = getattr(schedule, "time_zone", "UTC")
    given: dict[str, Any] = {"created_at": SATURDAY, "next_scheduled_run": SATURDAY} | more
    return Timing(schedule_type=kind, schedule=schedule, time_zone=zone, **given)


def test_a_new_interval_runs_at_once_and_then_by_its_distance() -> None:
    runs = preview_runs(timing(every(hours=1), ScheduleType.INTERVAL), SATURDAY, 3)

    assert [run.at - SATURDAY for run in runs] == [timedelta(hours=hours) for hours in range(3)]


def test_a_time_that_the_clocks_jump_over_is_remarked() -> None:
    _, gap, usual = preview_runs(timing(cron("30 2 * * *", tz="Europe/Berlin")), SATURDAY, 3)

    assert gap.at == datetime(2027, 3, 28, 1, tzinfo=UTC)
    assert gap.remark == "the clocks jump from 02:00 to 03:00; the time between does not exist"
    assert (f"{usual.local:%d %H:%M %Z}", usual.remark) == ("29 02:30 CEST", None)


@pytest.mark.parametrize(
    ("expression", "which"), [("30 2 31 10 *", ["first"]), ("30 * 31 10 *", ["first", "second"])]
)
def test_a_time_that_the_clocks_show_twice_is_remarked(expression: str, which: list[str]) -> None:
    midnight = datetime(2027, 10, 30, 23, 59, tzinfo=UTC)

    runs = preview_runs(
        timing(cron(expression, tz="Europe/Berlin"), next_scheduled_run=midnight), midnight, 4
    )

    twice = [run.remark for run in runs if run.remark]
    assert twice == [f"the clocks show 02:30 twice; this is the {one} time" for one in which]


def test_an_excluded_occurrence_is_delayed() -> None:
    sundays = timing(cron("0 7 * * *"), exclusions=(exclude.days_of_week("sunday"),))

    _, after = preview_runs(sundays, SATURDAY, 2)

    assert after.at.date() == datetime(2027, 3, 29, tzinfo=UTC).date()


@pytest.mark.parametrize("kind", [ScheduleType.DEPENDENT, ScheduleType.ON_DEMAND])
def test_a_manifest_without_a_schedule_has_no_preview(kind: ScheduleType) -> None:
    assert preview_runs(timing(None, kind), SATURDAY, 5) == []
