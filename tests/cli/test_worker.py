"""Schedulers and workers as processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.support import preloaded
from tests.support.preloaded import TRAX, PreloadedProcess

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

JOBS = """
import asyncio
import os
from pathlib import Path

from trax import Trax, every

app = Trax(polling_interval=0.1, local_polling_interval=0.1)

@app.train
async def meet(place: str) -> None:
    Path(place).write_text(str(os.getpid()))
    while len(list(Path().glob("place-*"))) < 2:
        await asyncio.sleep(0.01)
    print(f"met in {os.getpid()}", flush=True)
    while Path("stay").exists():
        await asyncio.sleep(0.01)

app.schedule_many(meet, "meet", {str(number): f"place-{number}" for number in (1, 2)}, every(hours=1))
"""
PICKY = """
import asyncio
from pathlib import Path

from trax import Trax, every

app = Trax(polling_interval=0.1, local_polling_interval=0.1)

@app.train
async def meet(side: str) -> None:
    Path(f"place-{side}").touch()
    while len(list(Path().glob("place-*"))) < 2:
        await asyncio.sleep(0.01)
    print(f"met on the {side}", flush=True)

@app.train
async def wave() -> None: ...

for side in ("left", "right"):
    app.schedule(meet, side, side, every(hours=1), group=side)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(JOBS, encoding="utf-8")
    return tmp_path


@contextmanager
def started(folder: Path, *words: str) -> Generator[PreloadedProcess]:
    with PreloadedProcess(
        [TRAX, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def lines(process: PreloadedProcess, count: int) -> list[str]:
    assert process.stdout
    return [process.stdout.readline().strip() for _ in range(count)]


def ended(process: PreloadedProcess, number: int = signal.SIGTERM) -> tuple[int, str, str]:
    process.send_signal(number)
    out, told = process.communicate(timeout=60)
    return process.returncode, out, told


def test_a_worker_runs_jobs_that_a_scheduler_admits(folder: Path) -> None:
    with started(folder, "scheduler", "jobs.py:app") as scheduler:
        with started(folder, "worker", "jobs:app", "--concurrency", "2") as worker:
            met = lines(worker, 2)
            worker_ended = ended(worker)
        scheduler_ended = ended(scheduler)

    assert met == [f"met in {worker.pid}"] * 2
    assert "worker: 1 train and 2 schedules" in worker_ended[2]
    assert "scheduler: 1 train and 2 schedules" in scheduler_ended[2]
    assert (worker_ended[0], scheduler_ended[0], scheduler_ended[1]) == (0, 0, "")


def test_several_processes_work_side_by_side_and_end_together(folder: Path) -> None:
    with started(folder, "scheduler", "jobs.py:app"):
        command = ("worker", "jobs.py:app", "--processes", "2", "--concurrency", "1")
        with started(folder, *command) as parent:
            met = lines(parent, 2)
            code, _, told = ended(parent, signal.SIGINT)

    assert len(set(met)) == 2
    assert f"met in {parent.pid}" not in met
    assert told.count("stopping") == 2
    assert code == 0


def test_the_processes_end_with_their_parent_however_it_ends(folder: Path) -> None:
    with started(folder, "scheduler", "jobs.py:app"):
        command = ("worker", "jobs.py:app", "--processes", "2", "--concurrency", "1")
        with started(folder, *command) as parent:
            lines(parent, 2)
            code, _, told = ended(parent, signal.SIGKILL)  # returns when nobody holds its output any more

    assert told.count("stopping") == 2
    assert code == -signal.SIGKILL


def test_a_process_that_dies_is_replaced(folder: Path) -> None:
    (folder / "stay").touch()

    with started(folder, "scheduler", "jobs.py:app"):
        command = ("worker", "jobs.py:app", "--processes", "2", "--concurrency", "1")
        with started(folder, *command) as parent:
            victim = int(lines(parent, 2)[0].rpartition(" ")[2])
            os.kill(victim, signal.SIGKILL)
            assert parent.stderr
            while "restarting in 0.5 s" not in (said := parent.stderr.readline()):
                pass
            while " started: pid " not in parent.stderr.readline():
                pass
            (folder / "stay").unlink()
            code, _, _ = ended(parent)

    assert "was killed by SIGKILL" in said
    assert code == 0


def test_processes_claim_only_their_trains_and_groups(folder: Path) -> None:
    """The two jobs need each other, so they only end if both workers take theirs."""
    (folder / "jobs.py").write_text(PICKY, encoding="utf-8")
    with started(folder, "scheduler", "jobs.py:app"):
        rest = ("--processes", "2", "--concurrency", "1")
        with started(
            folder, "worker", "jobs.py:app", "--trains", "meet,wave", "--groups", "left", *rest
        ) as one:
            with started(folder, "worker", "jobs.py:app", "--groups", "right") as other:
                met = (lines(one, 1), lines(other, 1))
                ended(other)
            ended(one)

    assert met == (["met on the left"], ["met on the right"])


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nojobs.py:app", "--processes", "2"], 1, "trax: file 'nojobs.py' does not exist"),
        (
            ["jobs.py:app", "--processes", "0"],
            2,
            'trax: Invalid value "0" for --processes. Must be >= 1. See `trax worker --help`.',
        ),
        (
            ["jobs.py:app", "--concurrency", "-1"],
            2,
            'trax: Invalid value "-1" for --concurrency. Must be >= 1. See `trax worker --help`.',
        ),
        (
            ["jobs.py:app", "--concurency", "2"],
            2,
            "trax: Unknown option: --concurency. Did you mean --concurrency? See `trax worker --help`.",
        ),
        (
            ["jobs.py:app", "--trains", "meat"],
            1,
            "trax: no train is registered as 'meat'; did you mean 'meet'?",
        ),
        (
            ["jobs.py:app", "--groups", "left,,right"],
            1,
            "trax: groups must be a list of at least one name (got ['left', '', 'right'])",
        ),
    ],
)
def test_a_worker_with_invalid_options_fails_in_one_line_before_it_starts(
    folder: Path, words: list[str], code: int, said: str
) -> None:
    failed = preloaded.run([TRAX, "worker", *words], cwd=folder)

    assert (failed.returncode, failed.stdout, failed.stderr) == (code, "", said + "\n")
