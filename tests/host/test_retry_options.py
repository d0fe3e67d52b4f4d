"""`max_attempts` is the name everywhere; Python accepts `max_retries`, with the same number."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from trax import Retry, Trax, every, junction
from trax.errors import DefinitionError
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = ("max_attempts", "max_retries")


async def fails(number: int) -> None:
    raise ValueError(number)


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_has_one_number_under_both_names(name: str) -> None:
    given: dict[str, Any] = {name: 7}
    policy = Retry(**given)

    assert (policy.max_attempts, policy.max_retries, policy) == (7, 7, Retry(7))
    assert replace(policy, max_attempts=2, delay=timedelta(0)) == Retry(2, timedelta(0))
    assert repr(policy).startswith("Retry(max_attempts=7, ")


def test_the_default_number_may_be_set_under_the_other_name() -> None:
    assert Retry(max_retries=3) == Retry(3, max_retries=3) == Retry()


GIVEN_TWICE: dict[str, Callable[[Trax], object]] = {
    "Retry": lambda _: Retry(2, max_retries=4),
    "train 'greet'": lambda app: app.train(max_attempts=2, max_retries=4)(greet),
    "manifest 'ada'": lambda app: app.schedule(
        app.train(greet), "ada", 1, every(hours=1), max_attempts=2, max_retries=4
    ),
    "train 'fails'": lambda app: app.sync.queue(app.train(fails), 1, max_attempts=2, max_retries=4),
}


async def greet(number: int) -> None:
    del number


@pytest.mark.parametrize(("place", "define"), GIVEN_TWICE.items(), ids=GIVEN_TWICE.keys())
def test_two_numbers_are_refused(place: str, define: Callable[[Trax], object]) -> None:
    app = Trax("memory://")

    with pytest.raises(DefinitionError, match=f"{place}: max_retries is another name of max_attempts"):
        define(app)

    app.close()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", ["train", "queue", "manifest"])
async def test_a_job_gives_up_after_so_many_runs(url: str, name: str, place: str) -> None:
    given: dict[str, Any] = {name: 1}
    app = Trax(url)
    nothing: dict[str, Any] = {}
    train = app.train("fails", junction(fails), **(given if place == "train" else nothing))
    if place == "manifest":
        app.schedule(train, "fails-often", 1, every(hours=1), **given)
    async with Harness(app) as h:
        if place != "manifest":
            await app.queue(train, 1, **(given if place == "queue" else nothing))
        await h.run_until_idle()
        await h.cycle("manifest_manager")

        [letter] = await app.dead_letters.list()

    assert letter.reason.endswith("; max_attempts is 1")


@pytest.mark.parametrize("name", NAMES)
async def test_the_default_is_a_setting_under_both_names(url: str, name: str) -> None:
    default: dict[str, Any] = {f"default_{name}": 1}
    app = Trax(url, **default)
    app.schedule(app.train(fails), "fails-often", 1, every(hours=1))
    async with Harness(app):
        manifest = await app.manifests.get("fails-often")
        changes: dict[str, Any] = {f"default_{name}": 2}
        await app.settings.update(**changes)
        edited = await app.settings.get()
        origins = await app.settings.origins()
        single = await app.settings.get(f"default_{name}")
        await app.settings.reset(f"default_{name}")
        reset = await app.settings.get()

    assert (manifest.max_attempts, manifest.max_retries) == (1, 1)
    assert (edited.default_max_attempts, edited.default_max_retries, single) == (2, 2, 2)
    assert origins["default_max_attempts"] == "operator"
    assert reset.default_max_attempts == 1


@pytest.mark.parametrize("variable", ["TRAX_DEFAULT_MAX_ATTEMPTS", "TRAX_DEFAULT_MAX_RETRIES"])
def test_the_environment_may_use_both_names(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "9")

    app = Trax("memory://")

    assert app.context.settings.default_max_attempts == 9
    app.close()
