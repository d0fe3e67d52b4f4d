"""A pulse differs when something has changed, and only in the part that did."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydantic import BaseModel

from trax import Retry, Trax, every
from trax.engine.actor import acting
from trax.records.audit import Actor
from trax.records.status import ChangeTag, find_changes
from trax.store import status
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable

    from trax.records.status import ChangeMarks


class Order(BaseModel):
    cups: int = 1


class Watched:
    """A railway, and what has changed in it since the last look."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.app = harness.app
        self._last: ChangeMarks | None = None

    async def look(self) -> frozenset[ChangeTag]:
        store = await self.app.context.store.open()
        before, self._last = self._last, await store.ask(status.read_change_marks)
        return find_changes(before, self._last)

    async def after(self, *work: Awaitable[object]) -> frozenset[ChangeTag]:
        await self.look()
        for each in work:
            await each
        return await self.look()


@pytest.fixture
async def watched(url: str) -> AsyncGenerator[Watched]:
    app = Trax(url)

    @app.train(retry=Retry(max_retries=0))
    def serve(order: Order) -> None:
        if order.cups > 9:
            raise ValueError("too many")

    app.schedule(serve, "ada", Order(), every(hours=1))
    async with Harness(app) as harness:
        await harness.run_until_idle()
        yield Watched(harness)


async def test_nothing_is_news_while_nothing_happens(watched: Watched) -> None:
    assert await watched.after() == frozenset()
    assert await watched.look() == frozenset()


async def test_an_entry_changes_the_queue(watched: Watched) -> None:
    assert await watched.after(watched.app.queue("serve", {"cups": 1})) == {ChangeTag.QUEUE}


async def test_passing_the_gate_changes_queue_and_executions(watched: Watched) -> None:
    await watched.app.queue("serve", {"cups": 1})

    assert await watched.after(watched.harness.cycle("job_dispatcher")) >= {
        ChangeTag.QUEUE,
        ChangeTag.EXECUTIONS,
    }


async def test_an_end_changes_executions(watched: Watched) -> None:
    await watched.app.queue("serve", {"cups": 1})
    await watched.harness.cycle("job_dispatcher")

    assert ChangeTag.EXECUTIONS in await watched.after(watched.harness.work())


async def test_a_new_and_a_resolved_dead_letter_change_the_mark_of_dead_letters(watched: Watched) -> None:
    await watched.app.queue("serve", {"cups": 10})

    assert ChangeTag.DEAD_LETTERS in await watched.after(watched.harness.run_until_idle())
    assert ChangeTag.DEAD_LETTERS in await watched.after(watched.app.dead_letters.acknowledge_all("known"))


async def test_an_edit_changes_the_settings(watched: Watched) -> None:
    assert ChangeTag.SETTINGS in await watched.after(watched.app.settings.update(max_active_jobs=3))


async def test_a_switch_changes_the_manifests_and_the_audit(watched: Watched) -> None:
    async def switch() -> None:
        with acting(Actor("ada")):
            await watched.app.manifests.disable("ada")

    assert await watched.after(switch()) >= {ChangeTag.MANIFESTS, ChangeTag.AUDIT}
