from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from trax import Item, Trax, cron, every, exclude
from trax.inspect.lint import lint

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = datetime(2027, 3, 1, tzinfo=UTC)
EVERY_DAY = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def app_with(**settings: Any) -> tuple[Trax, Any]:
    app = Trax("memory://", **settings)

    @app.train
    async def greet(name: str) -> None:
        raise AssertionError(name)

    return app, greet


def unknown_submitter(app: Trax, greet: Any) -> None:
    app.route(greet, to="locall")


def two_submitters(app: Trax, greet: Any) -> None:
    app.route(greet, to="local")
    app.route(greet, to="post")


def closed_group(app: Trax, _: Any) -> None:
    app.group("people", max_active_jobs=0)


def always_excluded(app: Trax, greet: Any) -> None:
    app.schedule(greet, "ada", "Ada", every(hours=1), exclude=[exclude.days_of_week(*EVERY_DAY)])


def disabled_parent(app: Trax, greet: Any) -> None:
    app.schedule(greet, "ada", "Ada", every(hours=1), enabled=False).include(greet, "grace", "Grace")


def foreign_parent(app: Trax, greet: Any) -> None:
    many = [Item("grace", "Grace", depends_on="edith")]
    app.schedule(greet, "ada", "Ada", every(hours=1)).include_many(greet, "after", many)


def test_an_app_without_faults_is_clean() -> None:
    app, greet = app_with()
    app.group("people", max_active_jobs=1)
    app.schedule(greet, "ada", "Ada", cron("0 0 29 2 *"), group="people").include(greet, "grace", "Grace")

    assert lint(app.context, now=NOW) == []


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (unknown_submitter, "train 'greet': there is no submitter 'locall'"),
        (two_submitters, "train 'greet' is routed to 'local' and 'post'"),
        (closed_group, "group 'people' has max_active_jobs=0"),
        (always_excluded, "manifest 'ada': its exclusions leave no moment free"),
        (disabled_parent, "manifest 'grace' depends on 'ada', which is disabled"),
        (foreign_parent, "manifest 'after-grace' depends on 'edith', which this code does not declare"),
    ],
)
def test_a_pointless_declaration_is_reported_in_a_line(
    declare: Callable[[Trax, Any], None], said: str
) -> None:
    app, greet = app_with()
    declare(app, greet)

    [line] = lint(app.context, now=NOW)

    assert said in line


def test_a_cron_expression_that_skips_its_leap_day_is_reported() -> None:
    app, greet = app_with()
    app.schedule(greet, "ada", "Ada", cron("0 0 29 2 *"))

    [line] = lint(app.context, now=datetime(2097, 3, 1, tzinfo=UTC))  # 2100 has none

    assert line == "manifest 'ada': '0 0 29 2 *' has no occurrence within four years"


def test_a_limit_of_zero_is_reported() -> None:
    app, _ = app_with(max_active_jobs=0)

    [line] = lint(app.context, now=NOW)

    assert line.startswith("max_active_jobs is 0")
