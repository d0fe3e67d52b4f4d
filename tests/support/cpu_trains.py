"""An app whose trains run in processes of their own, which import this module."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel, SecretStr

from trax import Retry, Trax, current, every, junction

app = Trax("memory://", local_worker_count=2, max_active_jobs=None)

ONCE = Retry(max_retries=1)


class Seen(BaseModel):
    """What a run saw of itself, and where it ran."""

    pid: int
    metadata_id: int
    attempt: int
    manifest: str | None
    doubled: int


class Doubler:
    def double(self, number: int) -> int:
        return 2 * number


app.provide(Doubler, Doubler)


class Refusal(Exception):
    """Can be written down by pickle, and not be read again."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


class PanicException(BaseException):
    """As libraries written in Rust raise it."""


@junction
def halve(number: int) -> float:
    return number / 2


@junction
def show(half: float) -> str:
    return str(half)


in_two_steps = app.train("in_two_steps", halve >> show, cpu=True)


@app.train(cpu=True, aliases=["looked"])
def look(number: int, doubler: Doubler) -> Seen:
    run = current()
    assert run
    return Seen(
        pid=os.getpid(),
        metadata_id=run.metadata_id,
        attempt=run.attempt,
        manifest=run.manifest,
        doubled=doubler.double(number),
    )


@app.train(cpu=True, retry=ONCE)
def fail(what: str) -> None:
    match what:
        case "raise":
            raise KeyError(what)
        case "refuse":
            raise Refusal("not", "readable")
        case "exit":
            os._exit(7)
        case "leave":
            raise SystemExit(3)
        case "interrupt":
            raise KeyboardInterrupt(what)
        case "panic":
            raise PanicException(what)
        case _:
            os.kill(os.getpid(), signal.SIGKILL)


@app.train(cpu=True, retry=ONCE)
async def interrupt(number: int) -> int:
    raise KeyboardInterrupt(number)


@app.train(cpu=True)
def hear(number: int) -> int:
    """Gets the signal that a whole group of processes gets when it is asked to end."""
    os.kill(os.getpid(), number)
    return number


@app.train(cpu=True)
def spin(marker: str) -> None:
    """Deaf to every wish to stop."""
    Path(marker).touch()
    while True:
        threading.Event().wait(60)


@app.train(cpu=True)
def listen(marker: str) -> None:
    """Stops when it is asked to, and tidies up."""
    run = current()
    assert run
    Path(marker).touch()
    while not run.cancelled:
        threading.Event().wait(0.001)
    Path(marker + ".tidied").touch()


@app.train(cpu=True)
async def wait(marker: str) -> None:
    Path(marker).touch()  # noqa: ASYNC240 - nothing else runs here
    await asyncio.Event().wait()


@app.train(cpu=True)
def report(steps: int) -> None:
    run = current()
    assert run
    run.sync.progress(1 / steps, f"1 of {steps}")
    logging.getLogger("heavy").info("step %s of %s", 1, steps)


@app.train(cpu=True)
async def wake(name: str) -> int:
    run = current()
    assert run
    return await run.activate("asleep", name)


@app.train(cpu=True, retry=ONCE)
def wake_a_stranger(name: str) -> int:
    run = current()
    assert run
    return run.sync.activate("stranger", name)


@app.train(cpu=True, retry=ONCE)
def knock(word: SecretStr) -> int:
    run = current()
    assert run
    plain = word.get_secret_value()
    run.sync.progress(0.5, f"knocking with {plain}")
    logging.getLogger("heavy").warning("knocked with %s", plain)
    if plain.startswith("wrong"):
        raise LookupError(f"nobody knows {plain}")
    return len(plain)


@app.train
async def greet(name: str) -> str:
    return f"hello {name}"


app.schedule(wake, "waker", "Ada", every(hours=1)).include(greet, "asleep", "nobody", dormant=True)
app.schedule(wake_a_stranger, "rude", "Ada", every(hours=1))


def made() -> Trax:
    """An app that no other process can find."""
    hidden = Trax("memory://")

    @hidden.train(cpu=True, retry=Retry(max_retries=5, delay=timedelta(0)))
    def unreachable(number: int) -> int:
        return number

    return hidden
