"""How many at most: every list refuses a number that no page can have, by one rule and in the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from trax import Trax
from trax.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

LISTS: dict[str, Callable[[Trax, Any], Awaitable[Any]]] = {
    "manifests.list": lambda app, limit: app.manifests.list(limit=limit),
    "manifests.page": lambda app, limit: app.manifests.page(limit=limit),
    "groups.list": lambda app, limit: app.groups.list(limit=limit),
    "executions.list": lambda app, limit: app.executions.list(limit=limit),
    "executions.page": lambda app, limit: app.executions.page(limit=limit),
    "executions.logs": lambda app, limit: app.executions.logs(1, limit=limit),
    "work_queue.list": lambda app, limit: app.work_queue.list(limit=limit),
    "work_queue.page": lambda app, limit: app.work_queue.page(limit=limit),
    "dead_letters.list": lambda app, limit: app.dead_letters.list(limit=limit),
    "dead_letters.groups": lambda app, limit: app.dead_letters.groups(limit=limit),
    "dead_letters.requeue": lambda app, limit: app.dead_letters.requeue(fingerprint="a", limit=limit),
    "workers.list": lambda app, limit: app.workers.list(limit=limit),
    "logs.page": lambda app, limit: app.logs.page(limit=limit),
    "audit.list": lambda app, limit: app.audit.list(limit=limit),
    "stats.durations": lambda app, limit: app.stats.durations(limit=limit),
    "stats.failing": lambda app, limit: app.stats.top_failures(limit=limit),
    "stats.overview": lambda app, limit: app.stats.overview(limit=limit),
    "stats.groups": lambda app, limit: app.stats.groups(limit=limit),
}


def greet(name: str) -> str:
    return name


@pytest.fixture
def app(url: str) -> Generator[Trax]:
    opened = Trax(url)
    yield opened
    opened.close()


@pytest.mark.parametrize("name", LISTS)
async def test_a_limit_that_no_page_can_have_is_refused(app: Trax, name: str) -> None:
    for wrong in (-1, 0, 1001, True, "5"):
        with pytest.raises(DefinitionError) as refused:
            await LISTS[name](app, wrong)

        assert str(refused.value) == f"limit must be a whole number from 1 to 1000 (got {wrong!r})"


@pytest.mark.parametrize("name", sorted(set(LISTS) - {"dead_letters.requeue"}))
async def test_a_limit_of_one_is_fine(app: Trax, name: str) -> None:
    await app.run(app.train(greet), "Ada")

    await LISTS[name](app, 1)
