"""`app.workers`: live workers, their state and their runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from trax import NotFound, Trax
from trax.testing import Harness
from trax.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trax.records.worker import WorkerView

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
async def h(url: str) -> AsyncGenerator[Harness]:
    async with Harness(Trax(url, host_labels={"zone": "b"}), now=NOON) as opened:
        yield opened


async def test_a_worker_is_shown_with_its_place_and_its_slots(h: Harness) -> None:
    store = await h.app.context.store.open()
    worker = await Worker.start(h.app.context, store, slots=4, dispatches=True)

    (seen,) = await h.app.workers.list()

    assert (seen.worker.id, seen.worker.concurrency, seen.free_slots) == (worker.id, 4, 4)
    assert (seen.worker.roles, seen.worker.host_labels) == (("worker", "dispatcher"), {"zone": "b"})
    assert seen.worker.version
    assert (seen.silent_for, seen.is_lost, seen.running, seen.jobs) == (timedelta(), False, 0, ())
    assert await h.app.workers.get(worker.id) == seen
    await worker.unregister()
    assert await h.app.workers.list() == []
    with pytest.raises(NotFound, match=f"no worker {worker.id}"):
        await h.app.workers.get(worker.id)


async def test_a_worker_is_shown_with_what_it_runs(h: Harness) -> None:
    views: list[WorkerView] = []

    @h.app.train
    async def look(_: str) -> None:
        views.extend(await h.app.workers.list())

    entry = await h.app.queue(look, "x")
    await h.run_until_idle()

    (seen,) = views
    (job,) = seen.jobs
    assert (seen.running, seen.free_slots) == (1, 0)
    assert (job.train, job.id, job.started_at) == ("look", (await entry.wait()).id, NOON)


async def test_a_worker_that_fell_silent_is_lost(h: Harness) -> None:
    store = await h.app.context.store.open()
    await Worker.start(h.app.context, store, slots=1)
    await h.advance(seconds=21)

    (seen,) = await h.app.workers.list()

    assert (seen.is_lost, seen.silent_for) == (True, timedelta(seconds=21))
