"""Every number and length of time that can be set has two ends: the fleet lives at both, not beyond."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
from tests.support.html_reader import Page
from tests.support.web_app import NOON, browser, railway, web_app

from trax.cli import main
from trax.errors import InvalidSetting
from trax.inspect.status import status
from trax.server.loops import repair_now
from trax.settings import Settings
from trax.store import settings as rows
from trax.store.runs.rescue import end_suspended
from trax.testing import Harness
from trax.web import Access
from trax.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trax.settings.kinds import Bounds

TINY = timedelta(microseconds=1)
DUTIES = (
    "manifest_manager",
    "job_dispatcher",
    "hand_over",
    "dead_letter_cleanup",
    "metadata_cleanup",
    "totals",
    "run_log",
)
BOUNDED: dict[str, Bounds] = {
    name: bounds for name in Settings.model_fields if (bounds := Settings.bounds(name)) is not None
}
EDITABLE = [name for name in BOUNDED if not Settings.is_fixed(name)]
COMPANIONS: dict[tuple[str, str], dict[str, Any]] = {
    ("heartbeat_interval", "most"): {"worker_lost_after": timedelta(days=1)},
    ("worker_lost_after", "least"): {"heartbeat_interval": timedelta(seconds=0.1)},
}
"""What an extreme needs beside it: a worker must be allowed more silence than between two beats."""


def extremes() -> Iterator[dict[str, Any]]:
    for name in EDITABLE:
        bounds = BOUNDED[name]
        least = bounds.least + TINY if bounds.is_above else bounds.least
        yield {name: least, **COMPANIONS.get((name, "least"), {})}
        yield {name: bounds.most, **COMPANIONS.get((name, "most"), {})}


def beyond(name: str) -> list[Any]:
    """One step past each end, as JSON would say it; below the least only where it is not moved up to it."""
    bounds = BOUNDED[name]
    if isinstance(bounds.most, timedelta):
        below = 0 if bounds.is_above else bounds.least.total_seconds() - 0.001
        return [below, bounds.most.total_seconds() + 1, 3_000 * 365 * 86_400, 1e300]
    above = [] if name == "dependent_priority_boost" else [bounds.most + 1, 2**63, 10**30]
    return above + ([bounds.least - 1] if is_refused(name, bounds.least - 1) else [])


def is_refused(name: str, value: Any) -> bool:
    try:
        Settings.load({name: value}, {})
    except InvalidSetting:
        return True
    return False


BEYOND = [(name, value) for name in EDITABLE for value in beyond(name)]


async def one_full_cycle(harness: Harness) -> None:
    """Everything that a server does again and again, and everything that is read beside it."""
    app, store = harness.app, await harness.app.context.store.open()
    await harness.seed()
    for duty in DUTIES:
        await harness.cycle(duty)
    worker = await Worker.start(app.context, store)
    await worker.claim()
    await worker.send_heartbeat()
    await worker.run_all()
    await worker.send_heartbeat()
    await worker.unregister()
    await store.ask(end_suspended, idle_for=app.context.settings.worker_lost_after)
    await store.call(repair_now, store, app.context)
    await harness.advance(hours=1)
    await status(app.context.store, app.context.live)
    await app.workers.list()
    await app.why("ada")


def test_every_number_and_every_length_of_time_has_two_ends() -> None:
    numbers = [
        name
        for name in Settings.model_fields
        if isinstance(getattr(Settings(), name), int | float | timedelta)
    ]
    switches = {name for name in numbers if isinstance(getattr(Settings(), name), bool)}
    may_be_none = {"local_worker_count", "max_concurrent_runs", "unknown_train_timeout"}

    assert set(BOUNDED) == (set(numbers) - switches) | may_be_none


async def test_at_both_ends_every_duty_goes_through_and_a_worker_beats(url: str) -> None:
    async with Harness(railway(url, metadata_cleanup_enabled=True), now=NOON) as harness:
        for extreme in extremes():
            await harness.app.queue("serve_coffee", {"customer": "Ada"})
            await harness.app.queue("serve_coffee", {"customer": "Bob", "cups": 10})
            edited = await harness.app.settings.update(**extreme)
            assert extreme.items() <= edited.model_dump().items()

            await one_full_cycle(harness)

            assert (await harness.app.settings.get()) == edited
            await harness.app.settings.reset()


@pytest.mark.parametrize("name", BOUNDED)
def test_one_step_beyond_is_refused_by_code_and_environment_with_the_bound(name: str) -> None:
    for value in beyond(name):
        with pytest.raises(InvalidSetting, match=f"setting '{name}'.* must be {BOUNDED[name]}"):
            Settings.load({name: value}, {})
        with pytest.raises(InvalidSetting, match=f"setting '{name}'.* must be {BOUNDED[name]}"):
            Settings.load({}, {f"TRAX_{name.upper()}": repr(value)})


async def test_one_step_beyond_is_refused_by_python_api_and_page(url: str) -> None:
    async with web_app(url, access=Access(allow_anonymous=True)) as room, browser(room.web) as reader:
        before = await room.app.settings.get()
        token = dict(Page(await reader.get("/settings")).forms[0].fields)["csrf_token"]
        for name, value in BEYOND:
            with pytest.raises(InvalidSetting, match=name):
                await room.app.settings.update(**{name: value})
            answer = await room.api.patch("/api/v1/settings", json={name: value})
            assert answer.status_code == 422
            assert [field["path"] for field in answer.json()["fields"]] == [name]
            form = {"action": "save", "name": name, "value": value, "csrf_token": token}
            headers = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
            answer = await reader.post("/settings", content=urlencode(form), headers=headers)
            assert answer.status_code == 303
        assert await room.app.settings.get() == before
        assert set((await room.app.settings.origins()).values()) == {"default"}


def test_one_step_beyond_is_refused_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"sqlite:///{tmp_path}/trax.db"
    with pytest.raises(SystemExit):
        main(["db", "migrate", "--database-url", address])
    for name, value in BEYOND:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["settings", "set", f"{name}={json.dumps(value)}", "--database-url", address])

        told = capsys.readouterr().err
        assert (ended.value.code, told.count("\n")) == (1, 1)
        assert f"must be {BOUNDED[name]}" in told


async def test_an_invalid_row_is_ignored_with_a_warning(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Another release, or somebody with a database client, may have written it."""
    async with Harness(railway(url), now=NOON) as harness:
        app = harness.app
        store = await app.context.store.open()
        written = {"local_worker_count": str(2**31), "dead_letter_retention_period": '"P999999D"'}
        await store.call(rows.write, written, now=NOON)

        await one_full_cycle(harness)

        assert (await app.settings.get()).local_worker_count is None
        assert "setting 'local_worker_count': the stored value is ignored: " in caplog.text
        assert "must be from 1 to 10,000 (got 2147483648)" in caplog.text
        assert "must be above 0 s, up to 68 years (got 'P999999D')" in caplog.text
