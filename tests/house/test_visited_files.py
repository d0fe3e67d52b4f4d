"""How many files a reader must open to follow one job; counted on the real engine, without its first use."""

from __future__ import annotations

import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import trax
from trax import Trax, every
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator

PACKAGE = str(Path(trax.__file__).parent)
HARNESS = "testing/harness.py"
MOST_FOR_QUEUE = 12
MOST_FOR_QUEUE_BY_NAME = 14
MOST_FOR_QUEUE_WITH_OPTIONS = 18
MOST_FROM_DUE_TO_DEPENDENTS = 54


class Visits:
    """Notes the files of Trax whose functions are called, in all threads."""

    def __init__(self) -> None:
        self._files: set[str] | None = None

    def __call__(self, frame: Any, event: str, _: object) -> None:
        if event == "call" and self._files is not None:
            self._files.add(frame.f_code.co_filename)

    async def during(self, work: Awaitable[Any]) -> set[str]:
        self._files = set()
        await work
        files, self._files = self._files, None
        visited = {path.removeprefix(f"{PACKAGE}/") for path in files if path.startswith(PACKAGE)}
        return visited - {HARNESS}


@pytest.fixture
def visits() -> Generator[Visits]:
    """From before the threads of the store start."""
    noted, before = Visits(), sys.getprofile()
    threading.setprofile(noted)
    sys.setprofile(noted)
    yield noted
    sys.setprofile(before)
    threading.setprofile(None)


async def chain(h: Harness) -> None:
    for duty in ("manifest_manager", "job_dispatcher"):
        await h.cycle(duty)
    await h.work()
    await h.cycle("manifest_manager")


async def test_each_way_to_queue_a_job_visits_few_files(visits: Visits, url: str) -> None:
    app = Trax(url)
    app.group("mail", max_active_jobs=5)

    @app.train
    async def greet(number: int) -> int:
        return number

    async def queue_each_way() -> tuple[set[str], ...]:
        return (
            await visits.during(app.queue(greet, 1)),
            await visits.during(app.queue("greet", 1)),
            await visits.during(app.queue(greet, 1, group="mail", delay=timedelta(minutes=1))),
        )

    async with Harness(app):
        await queue_each_way()

        plain, by_name, with_options = await queue_each_way()

    assert len(plain) <= MOST_FOR_QUEUE, sorted(plain)
    assert len(by_name) <= MOST_FOR_QUEUE_BY_NAME, sorted(by_name)
    assert len(with_options) <= MOST_FOR_QUEUE_WITH_OPTIONS, sorted(with_options)


async def test_a_job_is_followed_through_few_files(visits: Visits, url: str) -> None:
    app = Trax(url)

    @app.train
    async def greet(number: int) -> int:
        return number

    app.schedule(greet, "root", 1, every(minutes=5)).include(greet, "dependent", 2)
    async with Harness(app) as h:
        await app.queue(greet, 1)
        await h.run_until_idle()
        await h.advance(minutes=5)
        following = await visits.during(chain(h))
        (woken, *_) = await app.work_queue.list()

    assert (woken.manifest, woken.status) == ("dependent", "queued")
    assert len(following) <= MOST_FROM_DUE_TO_DEPENDENTS, sorted(following)
