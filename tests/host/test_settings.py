"""What operators edit while the app runs."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest

from trax import Trax, TraxError
from trax.errors import InvalidSetting
from trax.store import settings

if TYPE_CHECKING:
    from collections.abc import Generator

    from trax.store import Connection

SHARED = pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
HOUR = timedelta(hours=1)


@pytest.fixture
def app(url: str) -> Generator[Trax]:
    app = Trax(url, max_active_jobs=5)
    yield app
    app.close()


async def rows(app: Trax) -> dict[str, str]:
    return await (await app.context.store.open()).ask(settings.load_edited)


async def store_row(app: Trax, name: str, value: str) -> None:
    """A row that no version of this code would write."""
    store = await app.context.store.open()

    def written(connection: Connection) -> None:
        settings.write(connection, {name: value}, now=store.now(connection))

    await store.call(written)


async def test_an_edit_counts_at_once_and_the_rest_stays(app: Trax) -> None:
    edited = await app.settings.update(max_active_jobs=50, max_retry_delay=timedelta(minutes=2))

    assert (edited.max_active_jobs, edited.max_retry_delay) == (50, timedelta(minutes=2))
    assert edited == await app.settings.get() == app.context.settings
    assert edited.default_max_retries == 3


async def test_none_is_a_value_and_not_an_omission(app: Trax) -> None:
    await app.settings.update(max_active_jobs=None)
    await app.settings.update(default_max_retries=7)

    assert await app.settings.get("max_active_jobs") is None
    assert await app.settings.get("default_max_retries") == 7


async def test_a_name_for_several_sets_them_all(app: Trax) -> None:
    edited = await app.settings.update(polling_interval=timedelta(seconds=9))

    assert edited.manifest_manager_polling_interval == timedelta(seconds=9)
    assert edited.job_dispatcher_polling_interval == timedelta(seconds=9)

    await app.settings.reset("polling_interval")
    assert await rows(app) == {}


@SHARED
async def test_an_edit_survives_a_restart_and_reaches_the_other_server(url: str) -> None:
    one, other = Trax(url, max_active_jobs=5), Trax(url, max_active_jobs=5)
    assert await other.settings.get("max_active_jobs") == 5

    await one.settings.update(max_active_jobs=50)

    assert await other.settings.get("max_active_jobs") == 50
    for app in (one, other):
        app.close()
    restarted = Trax(url, max_active_jobs=5)
    await restarted.context.store.open()
    assert restarted.context.settings.max_active_jobs == 50
    restarted.close()


async def test_reset_restores_the_values_of_code(app: Trax) -> None:
    await app.settings.update(max_active_jobs=50, save_inputs=False, save_outputs=False)

    one = await app.settings.reset("save_inputs")
    assert (one.max_active_jobs, one.save_inputs, one.save_outputs) == (50, True, False)

    everything = await app.settings.reset()
    assert (everything.max_active_jobs, everything.save_outputs) == (5, True)
    assert await rows(app) == {}


async def test_origins_name_the_source_of_each_setting(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAX_DEFAULT_MAX_RETRIES", "4")
    app = Trax(url, max_active_jobs=5, save_inputs=False)
    await app.settings.update(max_active_jobs=6)

    origins = await app.settings.origins()

    assert origins["max_active_jobs"] == "operator"
    assert origins["default_max_retries"] == "environment"
    assert origins["save_inputs"] == "code"
    assert origins["save_outputs"] == "default"
    app.close()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"max_active_job": 1}, r"there is no setting 'max_active_job'; did you mean 'max_active_jobs'\?"),
        ({"max_active_jobs": -1}, r"setting 'max_active_jobs': .* \(got -1\)"),
        ({"heartbeat_interval": HOUR}, "must be longer than heartbeat_interval"),
        ({"skip_migrations": True}, r"'skip_migrations' .* TRAX_SKIP_MIGRATIONS, and restart"),
    ],
)
async def test_an_invalid_setting_is_refused_and_no_row_is_written(
    app: Trax, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidSetting, match=said):
        await app.settings.update(save_inputs=False, **changes)

    assert await rows(app) == {}
    assert app.context.settings.save_inputs


async def test_unknown_names_are_refused_with_the_nearest(app: Trax) -> None:
    with pytest.raises(TraxError, match="did you mean 'max_active_jobs'"):
        await app.settings.get("max_active_job")
    with pytest.raises(TraxError, match="did you mean 'save_inputs'"):
        await app.settings.reset("save_input")


async def test_a_reset_that_would_leave_a_contradiction_is_refused(app: Trax) -> None:
    await app.settings.update(heartbeat_interval=timedelta(seconds=30), worker_lost_after=HOUR)

    with pytest.raises(InvalidSetting, match="must be longer than heartbeat_interval"):
        await app.settings.reset("worker_lost_after")

    assert await app.settings.get("worker_lost_after") == HOUR
    await app.settings.reset("worker_lost_after", "heartbeat_interval")
    assert await rows(app) == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gone_since", "1"),
        ("max_active_jobs", '"many"'),
        ("skip_migrations", "true"),
        ("save_inputs", '"perhaps"'),
    ],
)
async def test_a_stored_setting_that_cannot_work_is_ignored_with_a_warning(
    app: Trax, name: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    await store_row(app, name, value)
    await app.settings.update(default_max_retries=7)

    now = await app.settings.get()

    assert (now.max_active_jobs, now.skip_migrations, now.save_inputs) == (5, False, True)
    assert now.default_max_retries == 7
    assert caplog.text.count(f"setting {name!r}: the stored value is ignored") == 1
    assert (await app.settings.origins()).get(name) in {None, "code", "default"}
    await app.settings.reset(name)
    assert name not in await rows(app)


@SHARED
async def test_two_operators_cannot_write_a_contradiction_together(url: str) -> None:
    apps = [Trax(url), Trax(url)]
    for app in apps:
        await app.settings.get()
    together = Barrier(2)

    def edit(app: Trax, change: dict[str, Any]) -> str:
        together.wait()
        try:
            asyncio.run(app.settings.update(**change))
        except InvalidSetting:
            return "refused"
        return "written"

    ends = await asyncio.gather(
        asyncio.to_thread(edit, apps[0], {"heartbeat_interval": timedelta(seconds=15)}),
        asyncio.to_thread(edit, apps[1], {"worker_lost_after": timedelta(seconds=10)}),
    )

    assert sorted(ends) == ["refused", "written"]
    assert len(await rows(apps[0])) == 1
    for app in apps:
        app.close()


async def test_saving_of_outputs_follows_the_setting(app: Trax) -> None:
    @app.train
    async def greet(name: str) -> str:
        return name

    await app.settings.update(save_outputs=False)
    await app.run(greet, "Ada")
    await app.settings.update(save_outputs=True)
    await app.run(greet, "Ada")

    assert [run.output for run in await app.executions.list()] == ["Ada", None]
