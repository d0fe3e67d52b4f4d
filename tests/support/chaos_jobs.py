"""What the processes of the chaos tests run. They say what they do in files of the folder they run in."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from trax import Trax, current

app = Trax()


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


def is_held(name: str) -> bool:
    return Path(f"hold-{name}").exists()


def note(file: str, *words: object) -> None:
    """Add a line at once, so that it is there even if the process is killed after this."""
    run = current()
    assert run
    line = " ".join(map(str, (run.metadata_id, *words)))
    with Path(file).open("ab", buffering=0) as lines:
        lines.write(f"{line}\n".encode())
