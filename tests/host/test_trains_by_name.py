"""A train may be given by its name wherever a job is asked for; its input may then be plain data."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from trax import InvalidInput, Item, Trax, UnknownTrain, every
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import Callable

HOURLY = every(hours=1)
ADA = {"name": "Ada"}


class Hello(BaseModel):
    name: str


def app_at(url: str) -> Trax:
    app = Trax(url)

    @app.train
    async def greet(hello: Hello) -> str:
        return f"Hello, {hello.name}!"

    return app


@pytest.mark.parametrize("value", [ADA, Hello(name="Ada")], ids=["plain", "typed"])
async def test_a_train_runs_by_its_name(url: str, value: Any) -> None:
    app = app_at(url)
    async with Harness(app):
        said = await app.run("greet", value)
        [run] = await app.executions.list()

    assert (said, run.train, run.input) == ("Hello, Ada!", "greet", ADA)


def test_blocking_code_runs_a_train_by_its_name() -> None:
    app = app_at("memory://")

    assert app.sync.run("greet", ADA) == "Hello, Ada!"
    app.close()


@pytest.mark.parametrize("value", [ADA, Hello(name="Ada")], ids=["plain", "typed"])
async def test_a_manifest_names_its_train(url: str, value: Any) -> None:
    app = app_at(url)
    chain = app.schedule("greet", "hourly", value, HOURLY)
    chain.include("greet", "first", value).then_include("greet", "second", value)
    app.schedule_many("greet", "each", {"a": value}, HOURLY).include_many(
        "greet", "later", [Item("a", value, depends_on="each-a")]
    )
    app.schedule_once("greet", "once", value)
    async with Harness(app) as h:
        await app.manifests.schedule("greet", "at-run-time", value, HOURLY)
        await app.manifests.schedule_many("greet", "many", {"b": value}, HOURLY)
        await app.manifests.schedule_once("greet", "soon", value, timedelta(minutes=1))
        await app.manifests.schedule_dependent("greet", "after", value, "at-run-time")
        manifests = await app.manifests.list()
        await h.advance(minutes=1)
        await h.run_until_idle()
        runs = await app.executions.list(state="completed", train="greet")

    assert len(manifests) == len({run.manifest for run in runs}) == 10
    assert {manifest.train for manifest in manifests} == {"greet"}
    assert all(manifest.input == ADA for manifest in manifests)


CALLS: dict[str, Callable[[Trax, str, Any], Any]] = {
    "run": lambda app, name, value: app.sync.run(name, value),
    "queue": lambda app, name, value: app.sync.queue(name, value),
    "schedule": lambda app, name, value: app.schedule(name, "hourly", value, HOURLY),
    "schedule_many": lambda app, name, value: app.schedule_many(name, "each", {"a": value}, HOURLY),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_an_unknown_name_and_a_wrong_input_are_refused_alike(call: Callable[[Trax, str, Any], Any]) -> None:
    app = app_at("memory://")

    with pytest.raises(UnknownTrain, match="no train is registered as 'greeet'; did you mean 'greet'"):
        call(app, "greeet", ADA)
    with pytest.raises(InvalidInput, match="train 'greet': invalid input: name: Field required"):
        call(app, "greet", {})

    app.close()
