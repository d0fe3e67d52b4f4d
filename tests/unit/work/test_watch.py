from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.support.waiting import until

from trax.worker.active_run import ActiveRun
from trax.worker.heartbeat import LoopWatch

if TYPE_CHECKING:
    from collections.abc import Generator


class Job(NamedTuple):
    metadata_id: int = 7
    train: str = "greedy"
    timeout_seconds: float | None = None
    external_id: str = "none"
    rank: tuple[int, int] = (0, 0)


class LoggedLines(logging.Handler):
    """Collects what is said. A slow machine may add lines of its own: only the blamed one's count."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def about(self, *words: str) -> list[str]:
        return [line for line in self.lines if all(word in line for word in words)]


@pytest.fixture
def log() -> Generator[LoggedLines]:
    made, logger = LoggedLines(), logging.getLogger("trax.worker.heartbeat")
    logger.addHandler(made)
    yield made
    logger.removeHandler(made)


async def test_a_run_that_blocks_the_loop_is_named_with_the_place_and_the_duration(log: LoggedLines) -> None:
    run = ActiveRun(Job(), 0.0, 0.0, None)
    watch = LoopWatch(lambda: [run], blocked_seconds=0.01)
    blame = "run 7 of train 'greedy' blocks it"

    async def hold_everything_up() -> None:
        watch.wake()
        until(lambda: bool(log.about(blame)))

    run.task = asyncio.create_task(hold_everything_up())
    await run.task
    await asyncio.to_thread(until, lambda: bool(log.about("continues after", blame)))
    watch.stop()

    (told,) = log.about("has been blocked", blame)
    assert "hold_everything_up" in told
    assert len(log.about(blame)) == 2


async def test_others_are_not_blamed_for_it(log: LoggedLines) -> None:
    run = ActiveRun(Job(), 0.0, 0.0, None)
    watch = LoopWatch(lambda: [run], blocked_seconds=0.01)

    async def somebody_else() -> None:
        watch.wake()
        until(lambda: bool(log.about("visitor")))

    task = asyncio.create_task(somebody_else(), name="visitor")
    await task
    watch.stop()

    assert log.about("task 'visitor' blocks it; active: run 7 of train 'greedy'")
    assert not log.about("greedy' blocks it")


async def test_the_watch_sleeps_while_nothing_runs_and_wakes_again() -> None:
    asked: list[int] = []
    runs: list[ActiveRun[Job]] = []

    def look() -> list[ActiveRun[Job]]:
        asked.append(len(runs))
        return runs

    watch = LoopWatch(look, blocked_seconds=0.004)
    watch.wake()
    await asyncio.to_thread(until, lambda: not watch.is_awake)

    runs.append(ActiveRun(Job(), 0.0, 0.0, None))
    watch.wake()
    await asyncio.to_thread(until, lambda: asked.count(1) > 3)
    assert watch.is_awake
    watch.stop()
