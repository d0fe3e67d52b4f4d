from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.waiting import until

from trax.server.processes import WorkerProcesses

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import os, pathlib, signal

signal.signal(signal.SIGTERM, {on_term})
pathlib.Path({folder!r}, str(os.getpid())).touch()
while True:
    signal.pause()
"""


def program(code: str) -> list[str]:
    return [sys.executable, "-c", code]


async def up(folder: Path, count: int) -> list[int]:
    """Wait until so many have said that they run; returns which."""
    await asyncio.to_thread(until, lambda: len(running(folder)) == count)
    return running(folder)


def running(folder: Path) -> list[int]:
    return [int(file.name) for file in folder.iterdir()]


async def test_a_process_that_keeps_dying_is_replaced_ever_later_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 4:
            fleet.forward_signal(signal.SIGTERM)

    fleet = WorkerProcesses(program("raise SystemExit(3)"), os.environ, pause)

    async with asyncio.timeout(60):
        code = await fleet.run(1)

    assert pauses == [0.5, 1, 2, 4]
    assert code == 1
    assert "worker process 1 ended with exit code 3; restarting in 0.5 s" in caplog.text


async def test_a_killed_process_is_replaced_and_the_others_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = WorkerProcesses(
        program(PROGRAM.format(on_term="lambda *_: exit(0)", folder=str(tmp_path))), os.environ
    )

    async with asyncio.timeout(60):
        task = asyncio.create_task(fleet.run(2))
        victim, survivor = await up(tmp_path, 2)
        os.kill(victim, signal.SIGKILL)
        await up(tmp_path, 3)
        os.kill(survivor, 0)
        fleet.forward_signal(signal.SIGTERM)
        code = await task

    assert code == 0
    assert "was killed by SIGKILL; restarting in 0.5 s" in caplog.text


@pytest.mark.parametrize(
    ("on_term", "times", "code"), [("lambda *_: exit(0)", 1, 0), ("signal.SIG_IGN", 3, 1)]
)
async def test_processes_are_stopped_gracefully_and_killed_at_the_third_signal(
    on_term: str, times: int, code: int, tmp_path: Path
) -> None:
    fleet = WorkerProcesses(program(PROGRAM.format(on_term=on_term, folder=str(tmp_path))), os.environ)

    async with asyncio.timeout(60):
        task = asyncio.create_task(fleet.run(3))
        await up(tmp_path, 3)
        for _ in range(times):
            fleet.forward_signal(signal.SIGTERM)
        ended = await task

    assert ended == code
