"""How a server ends: real processes, real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from tests.support import listing, preloaded
from tests.support.preloaded import TRAX, PreloadedProcess

from trax.cli.serve import stop_message
from trax.records import QueueStatus, State
from trax.store import Store

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from trax import Metadata, WorkQueueEntry

JOBS = """
import asyncio
import threading
from pathlib import Path

from trax import Trax

app = Trax(polling_interval=0.1, local_polling_interval=0.1)

@app.train
async def wait(_number: int) -> None:
    print("started", flush=True)
    while not Path("go").exists():
        await asyncio.sleep(0.01)

@app.train
def block(_number: int) -> None:
    print("started", flush=True)
    threading.Event().wait()
"""
HOUR = "3600"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(JOBS, encoding="utf-8")
    queueing = "import sys, jobs; jobs.app.sync.queue(jobs.app.trains.get(sys.argv[1]), 1); jobs.app.close()"
    (tmp_path / "queueing.py").write_text(queueing, encoding="utf-8")
    return tmp_path


@contextmanager
def running(folder: Path, train: str, shutdown_timeout: str) -> Generator[PreloadedProcess]:
    """A server with one job under way."""
    preloaded.run([sys.executable, "queueing.py", train], cwd=folder, check=True)
    with PreloadedProcess(
        [TRAX, "run", "jobs.py:app"],
        cwd=folder,
        env={**os.environ, "TRAX_SHUTDOWN_TIMEOUT": shutdown_timeout},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as server:
        assert server.stdout
        assert server.stdout.readline() == "started\n"
        yield server


def ask(server: PreloadedProcess) -> None:
    """Ask it to end, and wait until it has heard that."""
    assert server.stderr
    server.send_signal(signal.SIGTERM)
    while "stopping" not in server.stderr.readline():
        pass


def left_behind(folder: Path) -> tuple[WorkQueueEntry, Metadata]:
    store = Store(f"sqlite:///{folder}/trax.db")
    (entry,) = store.read(listing.entries)
    (record,) = store.read(listing.runs)
    store.close()
    return entry, record


def test_a_job_that_ends_in_time_completes(folder: Path) -> None:
    with running(folder, "wait", HOUR) as server:
        ask(server)
        (folder / "go").touch()
        server.communicate(timeout=60)

    _, record = left_behind(folder)
    assert (server.returncode, record.state) == (0, State.COMPLETED)


def test_a_job_that_exceeds_the_grace_period_is_requeued_uncounted(folder: Path) -> None:
    with running(folder, "wait", "0") as server:
        ask(server)
        server.communicate(timeout=60)

    entry, record = left_behind(folder)
    assert (server.returncode, record.state, record.attempt) == (0, State.CANCELLED, 1)
    assert (entry.status, entry.metadata_id) == (QueueStatus.QUEUED, None)


def test_a_second_signal_puts_back_what_runs_at_once(folder: Path) -> None:
    with running(folder, "wait", HOUR) as server:
        ask(server)
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)

    entry, record = left_behind(folder)
    assert (server.returncode, record.state) == (0, State.CANCELLED)
    assert entry.status is QueueStatus.QUEUED


def test_a_third_signal_ends_a_server_that_cannot_end(folder: Path) -> None:
    with running(folder, "block", HOUR) as server:
        ask(server)
        while server.poll() is None:
            server.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):  # a flood of signals would leave it no time to end
                server.wait(timeout=0.1)
        server.communicate(timeout=60)

    assert server.returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("under_way", "said"),
    [
        ([], "stopping"),
        (["greet"], "stopping: waiting up to 30 s for 1 run to end (greet); "),
        (["sync", "greet", "sync"], "stopping: waiting up to 30 s for 3 runs to end (2 of sync, greet); "),
    ],
)
def test_the_stop_message_names_the_runs_it_waits_for(under_way: list[str], said: str) -> None:
    assert stop_message(under_way, 30).startswith(said)
