from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

import pytest

from trax.cli.importing.celery_beat import read_beat
from trax.cli.importing.foreign import NO_LIMIT, Comparison, compare
from trax.errors import DefinitionError
from trax.records.schedule import Cron, DaysOfWeek, Interval

schedules: Any = import_module("celery.schedules")  # it has no types
crontab, schedule, solar = schedules.crontab, schedules.schedule, schedules.solar
Celery: Any = import_module("celery").Celery
Moody: Any = type("Moody", (schedule,), {"__doc__": "Its own code says when."})
NOW = datetime(2027, 3, 20, 12, 0, 17, tzinfo=UTC)


def read(said: Any, *, tz: str = "Europe/Berlin", **entry: Any) -> Comparison:
    app = Celery(set_as_current=False)
    app.conf.timezone = tz
    app.conf.beat_schedule = {"job": {"task": "shop.report", "schedule": said, **entry}}
    (one,) = compare(list(read_beat(app, NOW)), NOW)
    return one


@pytest.mark.parametrize(
    ("said", "expression"),
    [
        (crontab(hour=3, minute=30), "30 3 * * *"),
        (crontab(minute="*/15", hour={8, 9, 10}), "*/15 8,9,10 * * *"),
        (crontab(minute=0, hour=1, day_of_week="monday-friday"), "0 1 * * mon-fri"),
        (crontab(minute=0, hour=1, day_of_week="sat-mon"), "0 1 * * 0,1,6"),
        (crontab(minute=0, hour=1, month_of_year="*/3", day_of_month="1"), "0 1 1 */3 *"),
        (crontab(minute=0, hour=1, day_of_month="1-7", day_of_week="mon"), "0 1 */31,1-7 * mon"),
        (crontab(minute=0, hour=1, day_of_month="8-14", day_of_week="sun"), "0 1 8-14 * */8,sun"),
    ],
)
def test_a_crontab_runs_when_celery_would_run_it(said: Any, expression: str) -> None:
    one = read(said)

    assert one.job.when == Cron(expression, "Europe/Berlin")
    assert (one.agrees, one.verdict) == (True, "10 of 10 agree")


def test_days_that_must_both_match_become_an_exclusion() -> None:
    one = read(crontab(minute=0, hour=1, day_of_month="13", day_of_week="fri"))

    assert one.job.when == Cron("0 1 13 * *", "Europe/Berlin")
    assert one.job.options["exclude"] == DaysOfWeek((0, 1, 2, 3, 5, 6))
    assert one.agrees
    assert "day 13 and fri must both match" in one.job.remarks[0]


def test_the_last_minute_of_an_excluded_day_is_not_made_up_at_midnight() -> None:
    one = read(crontab(minute=59, hour=23, day_of_month="12-13", day_of_week="fri"))

    assert one.agrees


@pytest.mark.parametrize("said", [300.0, 300, timedelta(minutes=5), schedule(timedelta(minutes=5))])
def test_a_distance_becomes_a_fixed_rate(said: Any) -> None:
    one = read(said)

    assert one.job.when == Interval(300, anchored=True)
    assert one.agrees


def test_less_than_a_second_becomes_one_and_the_difference_is_shown() -> None:
    one = read(0.5)

    assert one.job.when == Interval(1, anchored=True)
    assert (one.agrees, one.verdict) == (False, "5 of 10 agree")
    assert one.job.remarks == ("every 0.5 s becomes 1 s: Trax needs whole seconds",)


def sunset() -> Any:
    """Made past its constructor, which wants a library that reckons where the sun is."""
    made: Any = solar.__new__(solar)
    made.event, made.lat, made.lon = "sunset", 52, 13
    return made


@pytest.mark.parametrize(("said", "why"), [(sunset(), "sunrise"), (Moody(60), "its own code")])
def test_an_untranslatable_schedule_becomes_on_demand(said: Any, why: str) -> None:
    one = read(said)

    assert (one.job.when, one.verdict) == (None, "on demand only")
    assert why in one.job.remarks[0]


def test_arguments_become_the_input_and_a_queue_becomes_a_group() -> None:
    one = read(60, args=(1,), kwargs={"to": "ada"}, options={"queue": "mail", "expires": 30}).job

    assert one.input == {"args": [1], "kwargs": {"to": "ada"}}
    assert one.options["group"] == "mail"
    assert "expires drops a task that did not start in time; in Trax it waits until it can run" in one.remarks


@pytest.mark.parametrize(
    ("message", "task", "conf", "seconds"),
    [
        ({}, {}, {}, None),
        ({}, {}, {"task_time_limit": 9}, 9),
        ({}, {"time_limit": 7.5}, {"task_time_limit": 9}, 8),
        ({"time_limit": 5}, {"time_limit": 7}, {"task_time_limit": 9}, 5),
        ({"soft_time_limit": 3}, {}, {"task_time_limit": 9}, 9),
        ({"soft_time_limit": 3}, {}, {"task_soft_time_limit": 4}, 3),
    ],
)
def test_the_time_limit_of_a_task_is_the_timeout(
    message: dict[str, Any], task: dict[str, Any], conf: dict[str, Any], seconds: int | None
) -> None:
    def report() -> None: ...

    app = Celery(set_as_current=False)
    app.task(name="shop.report", shared=False, **task)(report)
    app.conf.update(conf, beat_schedule={"job": {"task": "shop.report", "schedule": 60, "options": message}})

    (one,) = read_beat(app, NOW)

    assert one.timeout == (NO_LIMIT if seconds is None else timedelta(seconds=seconds))
    assert one.remarks == ()


def test_an_unreadable_entry_becomes_on_demand() -> None:
    found = list(read_beat({"odd": {"schedule": 60}, "fine": {"task": "t", "schedule": 60}}, NOW))

    assert [(one.external_id, one.when is None) for one in found] == [("odd", True), ("fine", False)]
    assert "cannot be read (KeyError('task'))" in found[0].remarks[0]


def test_arguments_that_are_no_plain_data_are_remarked() -> None:
    one = read(60, args=(object(),)).job

    assert one.input is None
    assert "are not plain data" in one.remarks[0]


def test_a_deadline_for_starting_is_the_misfire_threshold() -> None:
    app = Celery(set_as_current=False)
    app.conf.beat_cron_starting_deadline = 90
    app.conf.beat_schedule = {"job": {"task": "t", "schedule": crontab(hour=3)}}

    (one,) = read_beat(app, NOW)

    assert one.options["on_misfire"] == "do_nothing"
    assert one.options["misfire_threshold"] == timedelta(seconds=90)


def test_a_schedule_may_be_given_without_its_app() -> None:
    (one,) = read_beat({"job": {"task": "t", "schedule": crontab(hour=3, minute=0)}}, NOW)

    assert one.when == Cron("0 3 * * *", "UTC")


def test_an_object_that_is_neither_app_nor_schedule_is_refused() -> None:
    with pytest.raises(DefinitionError, match="42 is neither a Celery app nor a beat_schedule"):
        list(read_beat(42, NOW))
