"""A forecast draws from the history of the app's database, respects what operators set, and only reads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import insert

from trax import Trax, cron, every
from trax.errors import DefinitionError, InvalidSetting, UnknownTrain
from trax.inspect.forecast_figures import build_figures
from trax.inspect.simulate import Scenario, TrainModel, forecast, load_facts
from trax.store import Store
from trax.store.schema import tables
from trax.testing import Harness

if TYPE_CHECKING:
    from sqlalchemy import Connection

MIDNIGHT = datetime(2027, 3, 1, tzinfo=UTC)
SHOPS = ("berlin", "bremen", "hamburg", "mainz")
HOUR = timedelta(hours=1)


def nightly(url: str = "memory://") -> Trax:
    """Each shop is extracted at two, then loaded; two at once."""
    app = Trax(url)

    @app.train
    def extract(shop: str) -> None:
        raise AssertionError(shop)

    @app.train
    def load(shop: str) -> None:
        raise AssertionError(shop)

    app.group("etl", max_active_jobs=2)
    for shop in SHOPS:
        chain = app.schedule(extract, f"extract-{shop}", shop, cron("0 2 * * *"), group="etl")
        chain.then_include(load, f"load-{shop}", shop, group="etl")
    return app


def write_history(
    connection: Connection, train: str, minutes: list[int], *, failed: int, now: datetime
) -> None:
    run = tables(connection).metadata
    ends = [*((number, "completed") for number in minutes), *[(1, "failed")] * failed]
    rows: list[dict[str, Any]] = [
        {
            "external_id": f"{train}-{place}",
            "train": train,
            "state": state,
            "created_at": now - HOUR,
            "started_at": now - HOUR,
            "ended_at": now - HOUR + timedelta(minutes=number),
        }
        for place, (number, state) in enumerate(ends)
    ]
    connection.execute(insert(run), rows)


def scenario(**options: Any) -> Scenario:
    given: dict[str, Any] = {"start": MIDNIGHT, "days": 1, "durations": {"extract": 1200, "load": 600}}
    return Scenario(**(given | options))


def test_durations_and_failures_come_from_the_history_of_each_train(url: str) -> None:
    app = nightly(url)
    store = Store(url)
    now = store.read(store.now)
    store.run(write_history, "extract", [30, 10, 20], failed=1, now=now)
    store.close()

    facts = load_facts(app.context)
    result = forecast(app.context, Scenario(start=MIDNIGHT, days=1), facts=facts)

    assert facts.models == {"extract": TrainModel((600.0, 1200.0, 1800.0), 0.25, "history")}
    assert result.trains["load"] == TrainModel((60.0,), 0.0, "default")
    took = {run.ended_at - run.started_at for run in result.runs if run.ended_at and run.started_at}
    assert took <= {timedelta(minutes=number) for number in (1, 10, 20, 30)}


async def test_a_forecast_uses_the_values_set_by_operators(url: str) -> None:
    app = nightly(url)
    async with Harness(app, now=MIDNIGHT):
        await app.groups.update("etl", max_active_jobs=1)
        await app.settings.update(max_active_jobs=7)
        await app.manifests.disable("extract-mainz")

    result = forecast(app.context, scenario())

    assert (result.limits["etl"], result.max_active_jobs) == (1, 7)
    assert build_figures(result).groups[1].peak == 1
    assert not any(run.manifest == "extract-mainz" for run in result.runs)


def test_a_higher_limit_ends_the_nightly_chains_earlier() -> None:
    context = nightly().context

    two, four = (forecast(context, scenario(groups=groups)) for groups in ({}, {"etl": 4}))

    ends = [max(day.chains_end for day in build_figures(each).days if day.chains_end) for each in (two, four)]
    assert ends == [MIDNIGHT + 3 * HOUR, MIDNIGHT + 2.5 * HOUR]
    assert [build_figures(each).groups[1].peak for each in (two, four)] == [2, 4]


def test_a_setting_and_slots_bound_what_runs_at_once() -> None:
    context = nightly().context

    limited = forecast(context, scenario(groups={"etl": None}, settings={"max_active_jobs": 3}))
    small = forecast(context, scenario(groups={"etl": None}, servers=2, slots=1))

    assert [build_figures(each).groups[0].peak for each in (limited, small)] == [3, 2]


def test_a_train_that_always_fails_is_retried_and_becomes_a_dead_letter() -> None:
    result = forecast(nightly().context, scenario(failures={"extract": 1.0}))

    figures = build_figures(result).manifests
    assert {each.manifest: each.dead_letters for each in figures if each.dead_letters} == {
        f"extract-{shop}": 1 for shop in SHOPS
    }
    assert {each.runs for each in figures} == {0, 3}


def test_the_same_seed_gives_the_same_runs_and_another_seed_different_ones() -> None:
    app = nightly()

    first, again, other = (
        forecast(app.context, scenario(failures={"load": 0.5}, days=3, seed=seed)).runs for seed in (7, 7, 8)
    )

    assert first == again
    assert first != other


def test_a_coarse_resolution_keeps_the_rhythm_of_an_interval() -> None:
    app = Trax("memory://")

    @app.train
    def poll(name: str) -> None:
        raise AssertionError(name)

    app.schedule(poll, "poll", "x", every(minutes=1))
    given = Scenario(start=MIDNIGHT, days=1 / 24, durations={"poll": 1.0}, resolution=timedelta(seconds=30))

    assert len(forecast(app.context, given).runs) == 60


def test_a_scenario_with_unknown_names_is_refused() -> None:
    context = nightly().context

    with pytest.raises(UnknownTrain, match="did you mean 'extract'"):
        forecast(context, scenario(durations={"extrct": 1}))
    with pytest.raises(DefinitionError, match="no group 'elt'; did you mean 'etl'"):
        forecast(context, scenario(groups={"elt": 1}))
    with pytest.raises(InvalidSetting, match="max_active_job"):
        forecast(context, scenario(settings={"max_active_job": 1}))
