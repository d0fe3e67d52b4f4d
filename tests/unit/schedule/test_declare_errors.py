"""Common mistakes in calls: each error names the expected form."""

from __future__ import annotations

import inspect
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from trax import Trax, cron, every
from trax.errors import DefinitionError

FIVE_MINUTES = every(minutes=5)
PLACE = Path(__file__).relative_to(Path.cwd())


def test_a_schedule_without_an_input_reports_the_missing_argument() -> None:
    app: Any = Trax("memory://")
    greet = app.train(greet_somebody)

    with pytest.raises(DefinitionError) as refused:
        app.schedule(greet, "greet-ada", FIVE_MINUTES)

    assert str(refused.value) == (
        "expected schedule(train, external_id, input, every(…)), where a train without input gets None: "
        "missing a required argument: 'when'"
    )


def test_a_schedule_in_the_place_of_the_input_is_refused() -> None:
    app: Any = Trax("memory://")
    greet = app.train(greet_somebody)

    with pytest.raises(DefinitionError, match="manifest 'greet-ada': the input comes before the schedule"):
        app.schedule(greet, "greet-ada", FIVE_MINUTES, "Ada")


def test_a_timedelta_is_not_a_schedule_but_suggests_one() -> None:
    app: Any = Trax("memory://")
    greet = app.train(greet_somebody)

    with pytest.raises(DefinitionError, match=r"got 5 min\); did you mean every\(seconds=300\)\?"):
        app.schedule(greet, "greet-ada", "Ada", timedelta(minutes=5))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: write(every, minute=5), r"expected every\(seconds=….* 'minute'; did you mean 'minutes'\?"),
        (lambda: write(every, 5), r"expected every\(seconds=….* too many positional arguments"),
        (lambda: write(cron, "0 7 * * *", timezone="UTC"), r"expected cron\(.* keyword argument 'timezone'"),
        (lambda: write(cron.daily, hours=7), r"expected cron.daily\(.* 'hours'; did you mean 'hour'\?"),
        (lambda: write(Trax("memory://").group, "etl", max_jobs=3), "did you mean 'max_active_jobs'"),
        (lambda: write(Trax("memory://").queue, "greet"), r"expected app.queue\(train, input\)"),
        (lambda: write(Trax("memory://").run, "greet"), r"expected app.run\(train, input\)"),
        (lambda: write(Trax("memory://").sync.queue, "greet"), r"expected app.sync.queue\(train, input\)"),
    ],
)  # fmt: skip
def test_a_wrong_keyword_or_a_missing_argument_shows_the_call(call: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        call()


def test_a_train_that_exists_twice_names_both_places() -> None:
    app = Trax("memory://")
    _, first = app.train(greet_somebody), line()
    second = line() + 2
    with pytest.raises(DefinitionError) as refused:
        app.train(greet_somebody)

    assert str(refused.value) == (
        "train name 'greet_somebody' is registered twice: "
        f"by train 'greet_somebody' ({PLACE}:{first}) and by train 'greet_somebody' ({PLACE}:{second}); "
        "rename one of them"
    )


def test_a_manifest_that_exists_twice_names_both_places() -> None:
    app = Trax("memory://")
    greet = app.train(greet_somebody)
    app.schedule(greet, "eve", "Eve", FIVE_MINUTES)
    _, first = app.schedule_many(greet, "ada", {1: "Ada", 2: "Ada"}, FIVE_MINUTES), line()
    app.schedule(greet, "mallory", "Mallory", FIVE_MINUTES)
    second = line() + 2
    with pytest.raises(DefinitionError) as refused:
        app.schedule(greet, "ada-2", "Ada", FIVE_MINUTES)

    assert f"for train 'greet_somebody' ({PLACE}:{first}) and for train" in str(refused.value)
    assert f"for train 'greet_somebody' ({PLACE}:{second}); give one" in str(refused.value)


def line() -> int:
    """The line of the call."""
    frame = inspect.currentframe()
    assert frame
    assert frame.f_back
    return frame.f_back.f_lineno


def test_a_setting_cannot_be_assigned() -> None:
    app: Any = Trax("memory://")

    with pytest.raises(
        DefinitionError, match="there is no setting 'max_active_job'; did you mean 'max_active_jobs'"
    ):
        app.settings.max_active_job = 3
    for place in (app, app.settings):
        with pytest.raises(DefinitionError, match=r"await app.settings.update\(max_active_jobs=…\)"):
            place.max_active_jobs = 3
    with pytest.raises(AttributeError, match=r'await app.settings.get\("max_active_jobs"\)'):
        _ = app.settings.max_active_jobs


@pytest.mark.parametrize("values", ["Ada", b"Ada", {"name": "Ada"}, 3, None])
def test_one_value_in_the_place_of_many_inputs_is_refused(values: Any) -> None:
    app = Trax("memory://")
    greet = app.train(greet_somebody)

    with pytest.raises(DefinitionError, match="values must be a list of inputs"):
        app.sync.queue_many(greet, values)


def greet_somebody(name: str) -> str:
    return f"Hello, {name}!"


def write(function: Any, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)
