"""The app of a soak: jobs that complete, fail, log, give up, and wait for cancellation."""

from __future__ import annotations

import asyncio
import logging
import os
from datetime import timedelta
from pathlib import Path
from typing import Final

from trax import Retry, Trax, current, every

logger = logging.getLogger(__name__)

LIMITED: Final = "limited"
LIMIT: Final = 4
RETRY: Final = Retry(max_attempts=20, delay=timedelta(milliseconds=200), multiplier=1.0)
KEPT_SECONDS: Final = 60
"""Longer than the time between two verifications, so that each record is verified several times."""
CLEANED: Final = ("counted", "told", "hopeless", "slow", "tick", "after_tick")

app = Trax(
    metadata_cleanup_enabled=True,
    metadata_cleanup_trains=CLEANED,
    metadata_cleanup_retention=timedelta(seconds=KEPT_SECONDS),
    metadata_cleanup_interval=timedelta(seconds=2),
    dead_letter_retention_period=timedelta(seconds=KEPT_SECONDS),
    max_active_jobs=40,
)
app.group(LIMITED, max_active_jobs=LIMIT)


@app.train(retry=RETRY, group=LIMITED)
async def counted(number: int) -> int:
    """Every third job fails at first; each success is noted in a file, which outlives its record."""
    run = current()
    assert run is not None
    if number % 3 == 0 and run.attempt == 1:
        raise ConnectionError(number)
    _note("ran", number)
    return number


@app.train(retry=RETRY)
async def told(number: int) -> None:
    run = current()
    assert run is not None
    for step in range(5):
        logger.info("step %s of job %s", step, number)
        await run.progress(step / 5, f"step {step}")
        await asyncio.sleep(0.01)


@app.train(max_attempts=0)
async def hopeless(number: int) -> None:
    raise RuntimeError(number)


@app.train(max_attempts=0)
async def slow(number: int) -> int:
    """Wait until it is cancelled, at most for a while."""
    await asyncio.sleep(60)
    return number


@app.train(retry=RETRY)
async def tick(number: int) -> int:
    _note("tasks", os.getpid(), len(asyncio.all_tasks()))
    return number


@app.train(retry=RETRY)
async def after_tick(number: int) -> int:
    return number


for number in range(5):
    app.schedule(tick, f"tick-{number}", number, every(seconds=1)).include(
        after_tick, f"after-{number}", number
    )


def _note(file: str, *words: object) -> None:
    """Write a line at once, so that it exists even if the process is killed right after."""
    with Path(file).open("ab", buffering=0) as lines:
        lines.write(f"{' '.join(map(str, words))}\n".encode())
