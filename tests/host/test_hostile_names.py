"""A name that no database can hold is the name of nothing: looked for, it is not found, and is no error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from trax import NotFound, Trax, every
from trax.errors import DefinitionError
from trax.records.listing import Count
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    Ask = Callable[[Trax, str], Awaitable[Any]]

UNSTORABLE = ["a\x00b", "\x00", "a\ud800b"]
ONE: dict[str, Ask] = {
    "manifests.get": lambda app, name: app.manifests.get(name),
    "manifests.enable": lambda app, name: app.manifests.enable(name),
    "manifests.disable": lambda app, name: app.manifests.disable(name),
    "manifests.trigger": lambda app, name: app.manifests.trigger(name),
    "manifests.cancel": lambda app, name: app.manifests.cancel(name),
    "manifests.delete": lambda app, name: app.manifests.delete(name),
    "groups.get": lambda app, name: app.groups.get(name),
    "groups.trigger": lambda app, name: app.groups.trigger(name),
    "groups.cancel": lambda app, name: app.groups.cancel(name),
    "stats.groups": lambda app, name: app.stats.groups(name=name),
    "why": lambda app, name: app.why(name),
}
SOME: dict[str, Ask] = {
    "manifests of a group": lambda app, name: app.manifests.list(group=name),
    "manifests of a train": lambda app, name: app.manifests.list(train=name),
    "executions": lambda app, name: app.executions.list(train=name, manifest=name, group=name),
    "executions by name": lambda app, name: app.executions.list(external_id=name),
    "entries": lambda app, name: app.work_queue.list(train=name, manifest=name, group=name),
    "dead letters": lambda app, name: app.dead_letters.list(manifest=name, fingerprint=name),
    "audit": lambda app, name: app.audit.list(actor=name, action=name, noun=name),
    "audit of a target": lambda app, name: app.audit.list(target=name),
}
PAGES: dict[str, Ask] = {
    "manifests by text": lambda app, name: app.manifests.page(text=name),
    "manifests": lambda app, name: app.manifests.page(group=name, train=name, depends_on=name),
    "executions": lambda app, name: app.executions.page(train=name, external_id=name, group=name),
    "entries": lambda app, name: app.work_queue.page(train=name, manifest=name, group=name),
    "logs": lambda app, name: app.logs.page(text=name),
}
COUNTS: dict[str, Ask] = {
    "manifests": lambda app, name: app.manifests.count(text=name),
    "executions": lambda app, name: app.executions.count(train=name),
    "entries": lambda app, name: app.work_queue.count(manifest=name),
}


@pytest.fixture
async def app(url: str) -> AsyncGenerator[Trax]:
    opened = Trax(url)

    @opened.train
    def greet(name: str) -> str:
        return name

    opened.schedule(greet, "ab", "Ada", every(hours=1), group="ab")
    async with Harness(opened) as harness:
        await harness.run_until_idle()
        yield opened


@pytest.mark.parametrize("name", UNSTORABLE)
async def test_an_unusual_name_is_not_found(app: Trax, name: str) -> None:
    for ask in ONE.values():
        with pytest.raises(NotFound):
            await ask(app, name)


@pytest.mark.parametrize("name", UNSTORABLE)
async def test_lists_filtered_by_an_unusual_name_are_empty(app: Trax, name: str) -> None:
    assert [what for what, ask in SOME.items() if await ask(app, name)] == []
    assert {what: (await ask(app, name)).items for what, ask in PAGES.items()} == dict.fromkeys(PAGES, ())
    assert {what: await ask(app, name) for what, ask in COUNTS.items()} == dict.fromkeys(COUNTS, Count(0))
    assert await app.dead_letters.requeue(fingerprint=name) == 0


@pytest.mark.parametrize("name", UNSTORABLE)
async def test_lists_can_continue_from_an_unusual_name(app: Trax, name: str) -> None:
    assert [each.external_id for each in await app.manifests.list(after=name)] == ["ab"]
    assert [each.external_id for each in (await app.manifests.page(after=name)).items] == ["ab"]
    assert [each.name for each in await app.groups.list(after=name)] == ["ab"]


@pytest.mark.parametrize("noun", ["audit", "dead_letters", "executions", "logs", "manifests", "work_queue"])
async def test_a_filter_that_does_not_exist_is_refused(app: Trax, noun: str) -> None:
    resource: Any = getattr(app, noun)

    for verb in (resource.list, resource.page, resource.count):
        with pytest.raises(DefinitionError, match=r"^unknown filter 'trian'"):
            await verb(trian="greet")


async def test_logs_of_an_execution_that_does_not_exist_are_not_found(app: Trax) -> None:
    with pytest.raises(NotFound, match="there is no execution 999"):
        await app.executions.logs(999)


async def test_a_setting_that_does_not_exist_is_a_lookup_error(app: Trax) -> None:
    with pytest.raises(LookupError, match="there is no setting 'max_active'; did you mean 'max_active_jobs'"):
        await app.settings.get("max_active")
