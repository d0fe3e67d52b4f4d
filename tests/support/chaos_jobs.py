"""The jobs of the chaos tests. They log to files of the folder they run in."""

from __future__ import annotations

import asyncio
import os
import re
import time
from pathlib import Path
from threading import Event

from trax import Trax, current, every

PACED_SECONDS = 0.1
BURST_NUMBER = re.compile(r"/burst-(\d+)-")

if "FAKETIME_TIMESTAMP_FILE" in os.environ:
    # libfaketime refuses to sleep until a moment of the monotonic clock if it does not fake that clock.
    setattr(time, "sleep", Event().wait)  # noqa: B010 - typed otherwise

app = Trax()
app.group("narrow", max_active_jobs=2)


@app.train
async def work(name: str) -> int:
    """A short job; where there is a file that holds it, one that ends when the file is gone."""
    note("ran", name, os.getpid())
    await asyncio.sleep(0.005)
    while is_held(name):  # noqa: ASYNC110 - a file tells nobody that it is gone
        await asyncio.sleep(0.01)
    return os.getpid()


@app.train
def deaf(name: str) -> int:
    """Synchronous, and it never looks whether it should stop."""
    note("ran", name, os.getpid())
    while is_held(name):
        time.sleep(0.01)
    note("late", name)
    return os.getpid()


@app.train
async def paced(name: str) -> None:
    """A job of a known length, which says when it began and ended, by the clock that processes share.

    Those of each further burst are longer: on a busy machine short ones end before the next worker begins.
    """
    note("paced", name, os.getpid(), time.monotonic_ns(), time.time())
    burst = BURST_NUMBER.search(name)
    await asyncio.sleep(PACED_SECONDS * (int(burst[1]) if burst else 1))
    note("paced-ended", time.monotonic_ns())


@app.train
async def scheduled(_word: str) -> None:
    """What runs every second, where a test asks for it."""


if os.environ.get("SCHEDULED"):
    app.schedule(scheduled, "scheduled", "on time", every(seconds=1), priority=31)


def is_held(name: str) -> bool:
    return Path(f"hold-{name}").exists()


def note(file: str, *words: object) -> None:
    """Add a line at once, so that it is there even if the process is killed after this."""
    run = current()
    assert run
    line = " ".join(map(str, (run.metadata_id, *words)))
    with Path(file).open("ab", buffering=0) as lines:
        lines.write(f"{line}\n".encode())
