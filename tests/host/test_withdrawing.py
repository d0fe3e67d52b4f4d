"""A run that is cancelled after it was handed over: whoever has its message is told."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from trax import Trax
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from trax import Submission


class Cluster:
    """Takes everything, and can be told to forget it."""

    name = "cluster"

    def __init__(self) -> None:
        self.withdrawn: list[Submission] = []

    async def submit(self, batch: Sequence[Submission]) -> None: ...

    def withdraw(self, batch: Sequence[Submission]) -> None:
        self.withdrawn += batch


class Yard:
    """An app whose runs wait at a cluster."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.cluster = Cluster()
        self.app = Trax(url, submitter=self.cluster, **settings)
        self.h = Harness(self.app)

        @self.app.train
        async def work(number: int) -> int:
            return number

        self.work = work

    async def handed_over(self, number: int) -> int:
        await self.app.queue(self.work, number)
        await self.h.run_until_idle()
        return (await self.app.executions.list())[0].id


@pytest.fixture
async def yard(url: str) -> AsyncGenerator[Yard]:
    yard = Yard(url)
    async with asyncio.timeout(60), yard.h:
        yield yard


async def test_the_submitter_of_a_cancelled_run_is_notified(yard: Yard) -> None:
    unwanted, _ = await yard.handed_over(1), await yard.handed_over(2)

    await yard.app.executions.cancel([unwanted])

    (told,) = yard.cluster.withdrawn
    assert (told.metadata_id, told.train, told.input) == (unwanted, "work", "1")
    assert told.external_id == (await yard.app.executions.get(unwanted)).external_id


async def test_a_started_run_is_cancelled_by_its_record_alone(yard: Yard) -> None:
    number = await yard.handed_over(1)
    async with yard.app.receiver() as receiver:
        assert await receiver.execute(number)

    await yard.app.executions.cancel([number])

    assert yard.cluster.withdrawn == []


async def test_cancelling_a_run_before_its_hand_over_notifies_no_submitter(yard: Yard) -> None:
    await yard.app.queue(yard.work, 1)
    await yard.h.cycle("job_dispatcher")
    (run,) = await yard.app.executions.list()

    await yard.app.executions.cancel([run.id])

    assert yard.cluster.withdrawn == []


async def test_a_failing_submitter_does_not_prevent_a_cancellation(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(_: object) -> None:
        raise ConnectionError("nobody there")

    number = await yard.handed_over(1)
    monkeypatch.setattr(yard.cluster, "withdraw", nobody)

    assert await yard.app.executions.cancel([number]) == [number]

    assert (await yard.app.executions.get(number)).state == "cancelled"


async def test_one_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def silence(_: object) -> None:
        release.wait(60)

    yard, release = Yard("memory://", hand_over_timeout=timedelta(seconds=0.05)), threading.Event()
    monkeypatch.setattr(yard.cluster, "withdraw", silence)
    async with asyncio.timeout(30), yard.h:
        number = await yard.handed_over(1)

        assert await yard.app.executions.cancel([number]) == [number]

        release.set()
