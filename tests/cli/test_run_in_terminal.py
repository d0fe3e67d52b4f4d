"""A server in a terminal: the live view while it runs, and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support import listing
from tests.support.preloaded import TRAX
from tests.support.terminal import CTRL_C, HIDE_CURSOR, SHOW_CURSOR, terminal

from trax.records import State
from trax.store import Store

if TYPE_CHECKING:
    from pathlib import Path

JOBS = """
import asyncio
import logging
from datetime import timedelta
from pathlib import Path

from trax import Trax, Retry, current, every

app = Trax(polling_interval=0.1)

@app.train
async def wait(_number: int) -> None:
    print("said by a job", flush=True)
    await current().progress(0.4)
    while not Path("go").exists():
        await asyncio.sleep(0.01)

@app.train(retry=Retry(max_retries=0))
def complain(_number: int) -> None:
    logging.getLogger("jobs").warning("about to fail")
    raise RuntimeError("no luck")

app.schedule(wait, "wait-for-it", 1, every(hours=1))
app.schedule(complain, "complain-once", 1, every(hours=1))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(JOBS, encoding="utf-8")
    return tmp_path


def test_a_terminal_shows_the_live_view(folder: Path) -> None:
    with terminal([TRAX, "run", "jobs.py:app", "--concurrency", "3"], folder=folder) as seen:
        seen.shows(
            f"all roles: 2 trains and 2 schedules on sqlite:///trax.db ({folder}/trax.db); Ctrl-C stops",
            "1 of 3 slots: wait 40%",
            "0 completed, 1 failed",
            "of complain,",
            "RuntimeError: no luck",
            "1 waiting; see `trax dead-letters list`",
            "WARNING jobs: about to fail",
            "said by a job\n",
        )


def test_ctrl_c_ends_the_view_names_the_runs_it_waits_for_and_restores_the_terminal(folder: Path) -> None:
    with terminal([TRAX, "run", "jobs.py:app"], folder=folder) as seen:
        before = seen.modes()
        seen.shows("slots: wait")

        seen.types(CTRL_C)
        seen.shows("stopping: waiting up to 30 s for 1 run to end (wait); Ctrl-C again interrupts")
        (folder / "go").touch()

        assert seen.ended() == 0
        assert seen.modes() == before
    assert seen.text.endswith("stopped\n")
    assert seen.raw.rfind(SHOW_CURSOR) > seen.raw.rfind(HIDE_CURSOR) > -1
    assert seen.raw.rfind(SHOW_CURSOR) < seen.raw.rfind("stopping")


def test_a_second_ctrl_c_puts_back_what_runs(folder: Path) -> None:
    with terminal([TRAX, "run", "jobs.py:app"], folder=folder) as seen:
        seen.shows("slots: wait")
        seen.types(CTRL_C)
        seen.shows("stopping")
        seen.types(CTRL_C)

        assert seen.ended() == 0
    assert seen.text.endswith("interrupting active runs; they return to the queue\nstopped\n")
    store = Store(f"sqlite:///{folder}/trax.db")
    waited = [run.state for run in store.read(listing.runs, train="wait")]
    store.close()
    assert waited == [State.CANCELLED]


@pytest.mark.parametrize("how", [{"TRAX_LOG_FORMAT": "text"}, {"TERM": "dumb"}])
def test_without_the_view_a_terminal_shows_log_lines(folder: Path, how: dict[str, str]) -> None:
    (folder / "go").touch()

    with terminal([TRAX, "run", "jobs.py:app"], folder=folder, environment=how) as seen:
        seen.shows(
            "INFO trax: all roles: 2 trains",
            "WARNING jobs: about to fail",
            "INFO trax.worker.job_runner: run",
        )
        seen.types(CTRL_C)
        assert seen.ended() == 0

    assert "\x1b" not in seen.raw


def test_a_scheduler_has_the_same_view_and_is_warned_of_file_limits(folder: Path) -> None:
    with terminal([TRAX, "scheduler", "jobs.py:app"], folder=folder) as seen:
        seen.shows(
            "scheduler: 2 trains and 2 schedules",
            "no live worker yet",
            "WARNING trax: several processes share the SQLite file sqlite:///trax.db",
        )
        seen.types(CTRL_C)
        assert seen.ended() == 0


def test_log_lines_of_an_app_with_its_own_logging_appear_above_the_view(folder: Path) -> None:
    (folder / "own.py").write_text(
        JOBS + '\nlogging.basicConfig(format="mine: %(message)s", level="INFO")\n', encoding="utf-8"
    )

    with terminal([TRAX, "run", "own.py:app"], folder=folder) as seen:
        seen.shows("mine: about to fail\n", "slots: wait")
