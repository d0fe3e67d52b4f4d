"""`trax run --web` with few files, and more half-open connections than it has files: its jobs go on."""

from __future__ import annotations

import os
import re
import resource
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
from tests.support.waiting import until

from trax import Trax

if TYPE_CHECKING:
    from collections.abc import Generator

TRAX = Path(sys.executable).with_name("trax")
FILES = 128
CONNECTIONS = 250
JOBS = """
from trax import Trax

app = Trax("sqlite:///trax.db", polling_interval=0.1)

@app.train
async def double(number: int) -> int:
    return 2 * number
"""


def _allow_few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))


def _half_open(address: tuple[str, int]) -> socket.socket:
    """More wait in line than the system keeps in line: those are left to knock."""
    caller = socket.socket()
    caller.setblocking(False)
    caller.connect_ex(address)
    return caller


@contextmanager
def _server(folder: Path, log: Path) -> Generator[subprocess.Popen[bytes]]:
    (folder / "jobs.py").write_text(JOBS, encoding="utf-8")
    command = [TRAX, "run", "jobs.py:app", "--web", "0"]
    with (
        log.open("wb") as lines,
        subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "TRAX_WEB_HEAD_SECONDS": "2"},
            stderr=lines,
            preexec_fn=_allow_few_files,  # noqa: PLW1509
        ) as running,
    ):
        try:
            yield running
        finally:
            running.terminate()
            running.wait(60)


async def test_jobs_and_visitors_continue_while_half_open_requests_fill_all_connections(
    tmp_path: Path,
) -> None:
    log, client = tmp_path / "log", Trax(f"sqlite:///{tmp_path}/trax.db")

    @client.train
    async def double(number: int) -> int:
        return 2 * number

    with _server(tmp_path, log) as running, ExitStack() as callers:
        until(lambda: "dashboard on http://127.0.0.1:" in log.read_text())
        port = int(str(re.findall(r"http://127\.0\.0\.1:(\d+)", log.read_text())[0]))
        for _ in range(CONNECTIONS):
            callers.enter_context(_half_open(("127.0.0.1", port)))
        until(lambda: "connections are in use" in log.read_text())

        ran = [await (await client.queue(double, number)).wait(timeout=60) for number in range(10)]
        async with httpx2.AsyncClient(timeout=60) as visitor:
            answer = await visitor.get(f"http://127.0.0.1:{port}/health/live")
    client.close()

    assert [run.output for run in ran] == [2 * number for number in range(10)]
    assert answer.status_code == 200
    assert running.returncode == 0
    assert len(log.read_text().splitlines()) < 20
    assert "Traceback" not in log.read_text()
