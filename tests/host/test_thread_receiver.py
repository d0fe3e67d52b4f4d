"""The receiving end for code that blocks: runs are taken up by threads, and end under their own records."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from trax import NotFound, Trax
from trax.errors import StoreError
from trax.remote.receiver import ThreadReceiver
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

    from trax import Submission


class Nobody:
    name = "nobody"

    async def submit(self, batch: Sequence[Submission]) -> None: ...


class ThreadReceiverSetup:
    """An app in a file, whose jobs, but for the first, wait until they are let go."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.begun = threading.Semaphore(0)
        self.let_go = threading.Event()

    def app(self) -> Trax:
        app = Trax(self.url, submitter=Nobody())

        @app.train
        def work(number: int) -> int:
            self.begun.release()
            assert number == 1 or self.let_go.wait(60)
            return number

        return app

    def handed_over(self, count: int) -> list[int]:
        return asyncio.run(self._handed_over(count))

    async def _handed_over(self, count: int) -> list[int]:
        async with Harness(self.app()) as h:
            await h.app.queue_many("work", range(1, count + 1))
            await h.run_until_idle()
            return sorted(run.id for run in await h.app.executions.list())

    def states(self) -> list[str]:
        async def listed() -> list[str]:
            app = self.app()
            try:
                return [run.state for run in await app.executions.list()]
            finally:
                app.close()

        return asyncio.run(listed())


@pytest.fixture
def setup(tmp_path: Path) -> ThreadReceiverSetup:
    return ThreadReceiverSetup(f"sqlite:///{tmp_path}/trax.db")


@pytest.fixture
def threads() -> Generator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def test_a_run_is_executed_while_the_caller_waits_and_only_once(setup: ThreadReceiverSetup) -> None:
    (number,) = setup.handed_over(1)
    resident = ThreadReceiver(app := setup.app())
    setup.let_go.set()

    assert [resident.execute(number), resident.execute(number)] == [True, False]

    resident.close()
    app.close()
    assert setup.states() == ["completed"]


def test_a_run_beyond_the_slots_is_not_claimed_before_one_is_free(
    setup: ThreadReceiverSetup, threads: ThreadPoolExecutor
) -> None:
    _, *numbers = setup.handed_over(4)
    resident = ThreadReceiver(app := setup.app(), slots=lambda: 2)

    running = [threads.submit(resident.execute, number) for number in numbers]
    assert setup.begun.acquire(timeout=60)
    assert setup.begun.acquire(timeout=60)
    assert sorted(setup.states()) == ["in_progress", "in_progress", "pending", "pending"]
    setup.let_go.set()

    assert [one.result() for one in running] == [True, True, True]
    resident.close()
    app.close()
    assert setup.states() == ["completed"] * 3 + ["pending"]


def test_the_first_to_end_does_not_wait_for_the_others(
    setup: ThreadReceiverSetup, threads: ThreadPoolExecutor
) -> None:
    quick, slow = setup.handed_over(2)
    resident = ThreadReceiver(app := setup.app(), slots=lambda: 2)
    held = threads.submit(resident.execute, slow)
    assert setup.begun.acquire(timeout=60)

    assert resident.execute(quick)

    assert setup.states() == ["in_progress", "completed"]
    setup.let_go.set()
    assert held.result()
    resident.close()
    app.close()


def test_a_run_that_cannot_be_claimed_raises_in_the_caller(setup: ThreadReceiverSetup) -> None:
    setup.handed_over(1)
    resident = ThreadReceiver(app := setup.app())

    with pytest.raises(NotFound, match="no execution 999"):
        resident.execute(999)

    resident.close()
    app.close()


def test_a_receiver_that_cannot_register_tries_again_at_the_next_run(
    setup: ThreadReceiverSetup, tmp_path: Path
) -> None:
    (number,) = setup.handed_over(1)
    setup.let_go.set()
    (tmp_path / "trax.db").rename(tmp_path / "elsewhere.db")
    (tmp_path / "trax.db").mkdir()
    resident = ThreadReceiver(app := setup.app())
    with pytest.raises(StoreError):
        resident.execute(number)

    (tmp_path / "trax.db").rmdir()
    (tmp_path / "elsewhere.db").rename(tmp_path / "trax.db")

    assert resident.execute(number)
    resident.close()
    app.close()
