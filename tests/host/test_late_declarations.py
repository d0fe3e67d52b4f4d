"""Declarations after the start would have no effect, so they are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from trax import Trax, every, exclude
from trax.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Callable


async def greet(name: str) -> str:
    return f"Hello, {name}!"


DECLARATIONS: dict[str, Callable[[Trax, Any], object]] = {
    "schedule": lambda app, train: app.schedule(train, "late", "Ada", every(hours=1)),
    "schedule_many": lambda app, train: app.schedule_many(train, "late", {1: "Ada"}, every(hours=1)),
    "schedule_once": lambda app, train: app.schedule_once(train, "late", "Ada"),
    "group": lambda app, _: app.group("late", max_active_jobs=1),
    "calendar": lambda app, _: app.calendar("late", [exclude.dates("2026-12-25")]),
}


@pytest.mark.parametrize("declare", DECLARATIONS.values(), ids=DECLARATIONS.keys())
async def test_a_declaration_after_the_start_names_what_to_use_instead(
    declare: Callable[[Trax, Any], object], url: str
) -> None:
    app = Trax(url)
    train = app.train(greet)

    async with app:
        with pytest.raises(
            DefinitionError, match=r"the app has started.*`await app.manifests.schedule\(…\)`"
        ):
            declare(app, train)

    declare(app, train)


async def test_manifests_and_groups_change_at_run_time(url: str) -> None:
    app = Trax(url)
    train = app.train(greet)
    app.group("people", max_active_jobs=1)

    async with app:
        manifest = await app.manifests.schedule(train, "eve", "Eve", every(hours=1), group="people")
        group = await app.groups.update("people", max_active_jobs=2)

    assert (manifest.external_id, group.max_active_jobs) == ("eve", 2)
