from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.databases import IN_MEMORY_TOO

from trax import Trax, every
from trax.errors import DefinitionError, NotFound, StoreUnavailable, TraxError
from trax.server.start import retry_transient
from trax.testing import Harness

if TYPE_CHECKING:
    from trax.store import Store

pytestmark = IN_MEMORY_TOO


async def test_operator_overrides_can_be_reset(url: str) -> None:
    app = Trax(url)

    @app.train
    async def greet(name: str) -> None:
        raise AssertionError(name)

    app.group("people", max_active_jobs=3)
    app.schedule(greet, "ada", "Ada", every(hours=1), group="people")
    app.schedule(greet, "off", "Off", every(hours=1), group="people", enabled=False)
    async with Harness(app):
        await app.manifests.disable("ada")
        await app.manifests.enable("off")
        await app.groups.update("people", max_active_jobs=9, priority=7, enabled=False)

        await app.manifests.reset_operator_overrides()

        group = await app.groups.get("people")
        assert (group.max_active_jobs, group.priority, group.enabled) == (3, 0, True)
        assert (await app.manifests.get("ada")).enabled
        assert not (await app.manifests.get("off")).enabled


async def test_a_group_that_only_a_train_names_is_kept(url: str) -> None:
    app = Trax(url)

    @app.train(group="mail")
    async def greet(name: str) -> None:
        raise AssertionError(name)

    async with Harness(app) as h:
        await app.groups.update("mail", max_active_jobs=2)
        await h.seed()

        assert (await app.groups.get("mail")).max_active_jobs == 2


async def test_only_trains_of_this_app_can_be_scheduled_or_queued(url: str) -> None:
    app, other = Trax(url), Trax("memory://")

    @other.train
    async def greet(name: str) -> None:
        raise AssertionError(name)

    with pytest.raises(DefinitionError, match="'greet' is not registered in this app"):
        app.schedule(greet, "ada", "Ada", every(hours=1))
    with pytest.raises(DefinitionError, match="'greet' is not registered in this app"):
        await app.queue(greet, "Ada")
    async with Harness(app):
        with pytest.raises(DefinitionError, match="'greet' is not registered in this app"):
            await app.manifests.schedule(greet, "ada", "Ada", every(hours=1))


async def test_a_circle_through_what_is_stored_is_refused_at_start(url: str) -> None:
    app = Trax(url)

    @app.train
    async def greet(name: str) -> None:
        raise AssertionError(name)

    app.schedule(greet, "root", "root", every(hours=1)).then_include(greet, "child", "child")
    async with Harness(app) as h:
        await app.manifests.schedule_dependent(greet, "grandchild", "g", "child")
        next_version = Trax("memory://")
        next_version.train("greet", greet.route)
        train = next_version.trains.get("greet")
        next_version.context.declarations.after("grandchild").then_include(train, "child", "child")

        h.app.context.declarations._registry = next_version.context.declarations._registry  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(DefinitionError, match="cycle"):
            await h.seed()


@pytest.mark.parametrize("faults", [1, 4])
async def test_a_database_that_is_not_there_yet_is_waited_for(store: Store, faults: int) -> None:
    pauses: list[float] = []
    left = faults

    async def open_store() -> Store:
        nonlocal left
        left -= 1
        if left >= 0:
            raise StoreUnavailable("not yet")
        return store

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    assert await retry_transient(open_store, sleep=sleep) is store
    assert pauses == [2, 4, 8, 16][:faults]


async def test_a_word_that_is_no_state_is_refused_with_the_ones_there_are(url: str) -> None:
    app = Trax(url)

    with pytest.raises(TraxError, match="invalid state 'faild'; did you mean 'failed'"):
        await app.executions.list(state="faild")
    with pytest.raises(
        TraxError, match="invalid dead letter status 'open'; expected one of awaiting_intervention"
    ):
        await app.dead_letters.list(status="open")
    app.close()


async def test_an_unknown_name_suggests_the_most_similar_one(url: str) -> None:
    app = Trax(url)

    @app.train
    async def greet(name: str) -> None:
        raise AssertionError(name)

    app.schedule(greet, "greet-ada", "Ada", every(hours=1), group="people")
    app.schedule(greet, "sync-users", "Users", every(hours=1), group="etl")
    async with Harness(app):
        for verb in (
            app.manifests.get,
            app.manifests.trigger,
            app.manifests.enable,
            app.manifests.cancel,
            app.manifests.delete,
            app.why,
        ):
            with pytest.raises(
                NotFound, match=r"^there is no manifest 'greet-adaa'; did you mean 'greet-ada'\?$"
            ):
                await verb("greet-adaa")
        for verb in (app.groups.get, app.groups.update, app.groups.cancel):
            with pytest.raises(NotFound, match=r"^there is no group 'peple'; did you mean 'people'\?$"):
                await verb("peple")
        with pytest.raises(NotFound, match=r"^there is no manifest 'quite-another'$"):
            await app.manifests.get("quite-another")
