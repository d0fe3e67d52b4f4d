from __future__ import annotations

import subprocess
import sys
from datetime import date, time, timedelta
from typing import Any

import pytest
from tests.support.declaring import (
    FIVE_MINUTES,
    NOTHING,
    ORDERS,
    USERS,
    Nothing,
    Special,
    Table,
    manifests,
    publish,
    sync,
)

from trax.errors import DefinitionError, InvalidInput
from trax.records.schedule import Cron, Dates, DaysOfWeek, Interval, TimeWindow
from trax.records.states import MisfirePolicy, ScheduleType
from trax.schedule import cron, every, exclude
from trax.schedule.builder import Declarations
from trax.schedule.declaration import Declaration
from trax.schedule.misfire import fire_all
from trax.train import Codec, Retry, Train, train

CHRISTMAS = Dates((date(2026, 12, 25),))
WEEKEND = DaysOfWeek((5, 6))


@pytest.fixture
def declarations() -> Declarations:
    return Declarations()


def scheduled(declarations: Declarations, **options: Any) -> Declaration:
    declarations.schedule(sync, "sync-users", USERS, FIVE_MINUTES, **options)
    return manifests(declarations)["sync-users"]


def test_a_schedule_stores_only_the_declared_values(declarations: Declarations) -> None:
    assert scheduled(declarations) == Declaration(
        external_id="sync-users",
        train="sync",
        input='{"table":"users"}',
        schedule_type=ScheduleType.INTERVAL,
        schedule=FIVE_MINUTES,
        group="sync-users",
    )


def test_every_option_reaches_the_declaration(declarations: Declarations) -> None:
    retry = Retry(max_retries=5, delay=timedelta(seconds=10))

    assert scheduled(
        declarations,
        group="etl",
        priority=31,
        enabled=True,
        retry=retry,
        timeout=timedelta(minutes=10),
        on_misfire="do_nothing",
        misfire_threshold=timedelta(0),
        exclude=[CHRISTMAS, WEEKEND],
        variance=timedelta(minutes=1),
        max_instances=2,
        start="next_occurrence",
    ) == Declaration(
        external_id="sync-users",
        train="sync",
        input='{"table":"users"}',
        schedule_type=ScheduleType.INTERVAL,
        schedule=Interval(300, variance_seconds=60),
        group="etl",
        priority=31,
        enabled=True,
        max_retries=5,
        retry=retry,
        timeout=timedelta(minutes=10),
        misfire_policy=MisfirePolicy.DO_NOTHING,
        misfire_threshold=timedelta(0),
        exclusions=(CHRISTMAS, WEEKEND),
        max_instances=2,
        start="next_occurrence",
    )


def test_schedules_and_exclusions_come_as_they_are_written(declarations: Declarations) -> None:
    declarations.schedule(
        sync,
        "daily",
        USERS,
        cron("0 7 * * mon-fri", tz="Europe/Berlin", variance=timedelta(seconds=30)),
        exclude=[exclude.dates("2026-12-25"), exclude.time_window("22:00", "06:00")],
    )
    declarations.schedule(sync, "often", USERS, every(minutes=5))

    daily, often = manifests(declarations).values()
    assert daily.schedule == Cron("0 7 * * mon-fri", time_zone="Europe/Berlin", variance_seconds=30)
    assert daily.exclusions == (CHRISTMAS, TimeWindow(time(22), time(6)))
    assert often.schedule == FIVE_MINUTES


def test_declaring_loads_no_database_library() -> None:
    asked = "import sys, trax.schedule.builder; print('sqlalchemy' in sys.modules)"

    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)

    assert told.stdout.strip() == "False"


def test_options_of_none_keep_their_defaults(declarations: Declarations) -> None:
    declarations.schedule(
        sync,
        "none",
        USERS,
        FIVE_MINUTES,
        group=None,
        enabled=None,
        max_instances=None,
        dormant=None,
        start=None,
    )
    declarations.schedule(sync, "left-out", USERS, FIVE_MINUTES)

    said, left_out = manifests(declarations).values()
    assert (said.group, left_out.group) == ("none", "left-out")
    assert (said.enabled, said.max_instances, said.start) == (None, 1, None)


@pytest.mark.parametrize(
    ("when", "kind"),
    [
        (FIVE_MINUTES, ScheduleType.INTERVAL),
        (Cron("0 7 * * *"), ScheduleType.CRON),
        ("on_demand", ScheduleType.ON_DEMAND),
        ("none", ScheduleType.NONE),
    ],
)
def test_the_kind_of_schedule_is_the_manifests_type(
    declarations: Declarations, when: Any, kind: ScheduleType
) -> None:
    declarations.schedule(sync, "a", USERS, when)

    assert manifests(declarations)["a"].schedule_type is kind


def test_a_dependent_has_a_parent_and_no_schedule(declarations: Declarations) -> None:
    declarations.schedule(sync, "a", USERS, FIVE_MINUTES).include(publish, "b", NOTHING).include(
        publish, "c", NOTHING, dormant=True
    )

    found = manifests(declarations)
    assert (found["b"].schedule_type, found["b"].depends_on) == (ScheduleType.DEPENDENT, "a")
    assert (found["c"].schedule_type, found["c"].depends_on) == (ScheduleType.DORMANT_DEPENDENT, "a")
    assert found["b"].schedule is None


def test_a_once_schedule_has_a_delay(declarations: Declarations) -> None:
    declarations.schedule_once(sync, "later", USERS, delay=timedelta(minutes=5))
    declarations.schedule_once(sync, "at-once", USERS)

    later, at_once = manifests(declarations).values()
    assert (later.schedule_type, later.delay) == (ScheduleType.ONCE, timedelta(minutes=5))
    assert at_once.delay == timedelta(0)


def test_a_single_exclusion_needs_no_list(declarations: Declarations) -> None:
    assert scheduled(declarations, exclude=CHRISTMAS).exclusions == (CHRISTMAS,)


def test_the_schedules_own_variance_wins(declarations: Declarations) -> None:
    own = Interval(300, variance_seconds=10)

    declarations.schedule(sync, "a", USERS, own, variance=timedelta(seconds=99))

    assert manifests(declarations)["a"].schedule == own


def test_a_policy_with_a_limit_keeps_it(declarations: Declarations) -> None:
    found = scheduled(declarations, on_misfire=fire_all(10))

    assert (found.misfire_policy, found.misfire_limit) == (MisfirePolicy.FIRE_ALL, 10)


def retried(**options: Any) -> Train[Table, str]:
    return train("retried", sync.route, **options)


SLOW, QUICK = (
    Retry(max_retries=9, delay=timedelta(hours=1)),
    Retry(max_retries=2, delay=timedelta(seconds=1)),
)


@pytest.mark.parametrize(
    ("of_the_train", "of_the_schedule", "max_retries", "delay"),
    [
        ({}, {}, None, None),
        ({"max_retries": 4}, {}, 4, None),
        ({"retry": SLOW}, {}, 9, SLOW.delay),
        ({"retry": SLOW, "max_retries": 4}, {}, 4, SLOW.delay),
        ({"retry": SLOW, "max_retries": 4}, {"max_retries": 0}, 0, SLOW.delay),
        ({"retry": SLOW, "max_retries": 4}, {"retry": QUICK}, 2, QUICK.delay),
        ({"max_retries": 4}, {"retry": QUICK, "max_retries": 1}, 1, QUICK.delay),
    ],
)
def test_the_nearest_word_about_retries_wins(
    declarations: Declarations,
    of_the_train: dict[str, Any],
    of_the_schedule: dict[str, Any],
    max_retries: int | None,
    delay: timedelta | None,
) -> None:
    declarations.schedule(retried(**of_the_train), "a", USERS, FIVE_MINUTES, **of_the_schedule)

    found = manifests(declarations)["a"]
    assert found.max_retries == max_retries
    assert (found.retry and found.retry.delay) == delay
    assert found.retry is None or found.retry.max_retries == max_retries


def test_the_trains_timeout_is_used_where_the_schedule_has_none(declarations: Declarations) -> None:
    timed = retried(timeout=timedelta(minutes=1))

    declarations.schedule(timed, "a", USERS, FIVE_MINUTES)
    declarations.schedule(timed, "b", USERS, FIVE_MINUTES, timeout=timedelta(minutes=2))

    assert [each.timeout for each in manifests(declarations).values()] == [
        timedelta(minutes=1),
        timedelta(minutes=2),
    ]


def test_codecs_that_exist_already_are_used() -> None:
    asked: list[str] = []

    def codec_of(train: Train[Any, Any]) -> Codec[Any]:
        asked.append(train.name)
        return Codec(train.input_type, owner="somebody")

    Declarations(codec_of).schedule_many(sync, "sync", {"1": USERS, "2": ORDERS}, FIVE_MINUTES)

    assert asked == ["sync"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (NOTHING, "expected Table or a mapping of its fields, got Nothing"),
        (Special(table="users"), "expected Table itself, got its subclass Special"),
        ({"tabel": "users"}, "table: Field required"),
        (None, "got None"),
    ],
)
def test_an_input_of_another_type_is_refused_where_it_is_written(
    declarations: Declarations, wrong: Any, message: str
) -> None:
    with pytest.raises(InvalidInput, match=f"manifest 'a': train 'sync': invalid input: .*{message}"):
        declarations.schedule(sync, "a", wrong, FIVE_MINUTES)

    assert declarations.timetable().manifests == ()


def test_an_external_id_is_declared_once(declarations: Declarations) -> None:
    declarations.schedule(sync, "a", USERS, FIVE_MINUTES)

    with pytest.raises(
        DefinitionError,
        match=r"'a' is declared twice: for train 'sync' \(.*test_declare.py:270\) and for train "
        r"'publish' \(.*test_declare.py:\d+\); give one of them another id",
    ):
        declarations.schedule_once(publish, "a", Nothing())


@pytest.mark.parametrize("external_id", ["", " ", "two words", "line\n", "x" * 201, 3, None])
def test_an_external_id_can_stand_in_an_address(declarations: Declarations, external_id: Any) -> None:
    with pytest.raises(DefinitionError, match="an external id"):
        declarations.schedule(sync, external_id, USERS, FIVE_MINUTES)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("priority", 32, r"priority must be a whole number from 0 to 31 \(got 32\)"),
        ("priority", -1, "priority must be"),
        ("priority", True, "priority must be"),
        ("enabled", 1, "enabled must be True or False"),
        ("max_retries", -1, r"max_retries must be a whole number from 0 to 2147483647 \(got -1\)"),
        ("retry", 3, r"retry must be a Retry \(got 3\)"),
        ("timeout", timedelta(0), "timeout must be a timedelta above 0"),
        ("timeout", timedelta.max, "timeout must be a timedelta above 0, up to 68 years"),
        ("timeout", 30, r"timeout must be a timedelta above 0, .* \(got 30\)"),
        ("on_misfire", "do_nothin", "on_misfire must be .* did you mean 'do_nothing'"),
        ("on_misfire", "fire_all", r"on_misfire must be .* or fire_all\(limit\)"),
        ("on_misfire", 3, "on_misfire must be"),
        ("misfire_threshold", timedelta(seconds=-1), "misfire_threshold must be a timedelta of whole"),
        ("exclude", "2026-12-25", r"exclude must be an exclusion such as .* \(got '2026-12-25'\)"),
        ("exclude", [CHRISTMAS, date(2026, 12, 26)], "exclude must be an exclusion"),
        ("exclude", 3, "exclude must be an exclusion"),
        ("variance", timedelta(seconds=-1), "variance must be a timedelta of whole seconds, from 0"),
        ("variance", timedelta(milliseconds=500), "variance must be a timedelta of whole seconds"),
        ("max_instances", 0, r"max_instances must be a whole number from 1 to 2147483647 \(got 0\)"),
        ("start", "tomorrow", 'start must be "now" or "next_occurrence"'),
        ("dormant", True, "cannot be dormant: only a manifest that depends on another one can"),
        ("prioritty", 3, "unknown option 'prioritty'; did you mean 'priority'"),
    ],
)
def test_an_option_that_cannot_work_is_refused_where_it_is_written(
    declarations: Declarations, option: str, value: Any, message: str
) -> None:
    with pytest.raises(DefinitionError, match=f"manifest 'sync-users'.*{message}"):
        scheduled(declarations, **{option: value})

    assert declarations.timetable().manifests == ()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("variance", timedelta(seconds=5), "manifest 'b' has no every.* the option variance"),
        ("start", "next_occurrence", "manifest 'b' has no every.* the option start"),
        ("start", "now", "manifest 'b' has no every.* the option start"),
    ],
)
def test_options_of_schedules_are_refused_without_a_schedule(
    declarations: Declarations, option: str, value: Any, message: str
) -> None:
    options: dict[str, Any] = {option: value}
    root = declarations.schedule(sync, "a", USERS, FIVE_MINUTES)

    with pytest.raises(DefinitionError, match=message):
        root.include(publish, "b", NOTHING, **options)
    with pytest.raises(DefinitionError, match=message):
        declarations.schedule_once(publish, "b", NOTHING, timedelta(minutes=1), **options)
    with pytest.raises(DefinitionError, match=message):
        declarations.schedule(publish, "b", NOTHING, "on_demand", **options)


def test_a_once_schedule_cannot_be_dormant_or_in_the_past(declarations: Declarations) -> None:
    with pytest.raises(DefinitionError, match="manifest 'a' cannot be dormant"):
        declarations.schedule_once(sync, "a", USERS, dormant=True)
    with pytest.raises(DefinitionError, match="manifest 'a': delay must be a timedelta from 0"):
        declarations.schedule_once(sync, "a", USERS, timedelta(seconds=-1))


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ("0 7 * * *", r"got '0 7 \* \* \*'\); did you mean cron\('0 7 \* \* \*'\)\?"),
        (timedelta(minutes=5), r"manifest 'a' needs every\(…\), cron\(\"…\"\) or \"on_demand\" \(got"),
        (None, "manifest 'a' needs every"),
        (Interval(0), "manifest 'a' needs an interval of 1 second or more"),
        (Interval(60, variance_seconds=-1), "manifest 'a' needs a variance of 0 seconds or more"),
        (Cron("0 7 * *"), "cron expression '0 7"),
        (Cron("0 7 * * *", time_zone="Europe/Berlim"), "Europe/Berlim"),
    ],
)
def test_an_invalid_schedule_is_refused(declarations: Declarations, when: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        declarations.schedule(sync, "a", USERS, when)


def test_only_a_train_can_be_scheduled(declarations: Declarations) -> None:
    def greet(name: str) -> str:
        return name

    wrong: Any = greet
    with pytest.raises(DefinitionError, match=r"manifest 'a' needs a train \(got <function .* @app\.train"):
        declarations.schedule(wrong, "a", "Ada", FIVE_MINUTES)
    with pytest.raises(DefinitionError, match="batch 'greet' needs a train"):
        declarations.schedule_many(wrong, "greet", {"1": "Ada"}, FIVE_MINUTES)
