"""The view of a server at work: what it draws, and what it does when it cannot."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from tests.support.statuses import NOTHING_WRONG
from tests.support.waiting import until

from trax import Retry, Trax, every
from trax.cli.live_view import TerminalView, pause_after, read_live_view, render
from trax.cli.logs import RecentLines, ViewLine
from trax.errors import StoreError
from trax.records.listing import COUNT_LIMIT
from trax.records.stats import LastFailure, LiveView, NextDue, RunningTrain
from trax.records.worker import WorkerRecord
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import Sequence

NOON = NOTHING_WRONG.now
WORKER = WorkerRecord(id=1, host="box", pid=7, concurrency=4, trains=(), started_at=NOON, heartbeat_at=NOON)
QUIET = LiveView(
    status=replace(NOTHING_WRONG, workers=(WORKER,)),
    running=(),
    completed=0,
    failed=0,
    next_due=(),
    last_failure=None,
)


def seen(how: dict[str, Any] | None = None, **changes: Any) -> LiveView:
    return replace(QUIET, status=replace(QUIET.status, **(how or {})), **changes)


def drawn(what: LiveView | str, lines: Sequence[ViewLine] = ()) -> dict[str, str]:
    """What stands behind each word; the heading and the lines beneath under their own text."""
    paper = StringIO()
    Console(file=paper, width=120).print(render("heading", what, lines))
    split = (line.rstrip().partition("  ") for line in paper.getvalue().splitlines() if line.strip())
    return {name: value.strip() for name, _, value in split}


def test_a_quiet_server_shows_zeros_and_no_due_manifest() -> None:
    assert drawn(seen()) == {
        "heading": "",
        "queue": "0 ready, 0 delayed",
        "running": "0 of 4 slots",
        "last minute": "0 completed, 0 failed",
        "next": "no manifest is due",
        "dead letters": "none",
    }


def test_a_busy_server_shows_what_runs_and_how_far_it_has_come() -> None:
    other = replace(WORKER, id=2, concurrency=6)
    under_way = (RunningTrain("sync", 3), RunningTrain("roast", 1, 0.4))
    counts = {"running": 4, "pending": 2, "ready": COUNT_LIMIT, "delayed": 7, "workers": (WORKER, other)}

    found = drawn(seen(counts, running=under_way, completed=12, failed=1))

    assert found["running"] == (
        "4 of 10 slots on 2 workers, 2 waiting for a slot: sync ×3, roast 40%"  # noqa: RUF001
    )
    assert (found["queue"], found["last minute"]) == ("10000+ ready, 7 delayed", "12 completed, 1 failed")


def test_due_times_and_the_last_failure_are_shown_relative_to_now() -> None:
    due = (NextDue("sync-users", NOON + timedelta(seconds=4)), NextDue("daily", NOON + timedelta(hours=2)))
    failure = LastFailure(9, "greet", NOON - timedelta(seconds=30), "OSError: no\n\x1b[2Jdisk")

    found = drawn(seen({"dead_letters": 2}, next_due=due, last_failure=failure))

    assert found["next"] == "sync-users in 4 s, daily in 2 h"
    assert found["last failure"] == "run 9 of greet, 30 s ago: OSError: no \\x1b[2Jdisk"
    assert found["dead letters"] == "2 waiting; see `trax dead-letters list`"


def test_a_queue_without_anybody_to_serve_it_is_wrong() -> None:
    found = drawn(seen({"workers": (), "pending_local": 3}))

    assert found["running"] == "no live worker yet"
    assert found["problem"] == "no worker is alive, and 3 are pending for one"


def test_an_unreachable_database_is_shown_in_place_of_the_numbers() -> None:
    lines = [ViewLine(logging.WARNING, "12:00 WARNING trax: gone")]

    found = drawn("the database does not answer", lines)

    assert list(found) == ["heading", "", "12:00 WARNING trax: gone"]


async def test_one_read_loads_the_whole_view(url: str) -> None:
    app = Trax(url)

    @app.train(retry=Retry(max_retries=0))
    def divide(number: int) -> float:
        return 1 / number

    for number in (1, 0):
        app.schedule(divide, f"divide-by-{number}", number, every(hours=1))
    async with Harness(app, now=NOON) as h:
        await h.run_until_idle()
        found = read_live_view(app, await app.context.store.open())

    assert (found.completed, found.failed, found.status.dead_letters) == (1, 1, 1)
    assert found.next_due == (NextDue("divide-by-1", NOON + timedelta(hours=1)),)
    assert found.last_failure is not None
    assert found.last_failure.reason == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize(("took", "pause"), [(0.001, 1), (0.04, 2), (30, 5)])
def test_a_slow_read_is_repeated_less_often(took: float, pause: float) -> None:
    assert pause_after(took) == pause


class Screen:
    """A terminal that notes what is drawn, and breaks when it is told to."""

    def __init__(self) -> None:
        self.text = ""
        self.breaks = False

    def write(self, text: str) -> int:
        if self.breaks:
            raise OSError("the terminal is gone")
        self.text += text
        return len(text)

    def flush(self) -> None: ...


@pytest.fixture
def screen() -> Screen:
    return Screen()


def view_on(screen: Screen, read: Any, lines: RecentLines) -> TerminalView:
    console = Console(file=screen, force_terminal=True, width=100)  # pyright: ignore[reportArgumentType]
    return TerminalView(console, "heading", read, lines)


def test_a_view_outlives_a_database_that_is_gone(screen: Screen) -> None:
    answers = iter([StoreError("lost"), QUIET])
    asked = threading.Event()

    def read() -> LiveView:
        answer = next(answers, QUIET)
        asked.set()
        if isinstance(answer, Exception):
            raise answer
        return answer

    view = view_on(screen, read, RecentLines())
    view.start()
    assert asked.wait(30)
    view.close()

    assert "database does not respond: lost" in screen.text
    assert "0 of 4 slots" in screen.text


def test_an_error_in_the_view_ends_it_and_log_lines_continue(
    screen: Screen, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, logger = RecentLines(), logging.getLogger("tests.view")
    logger.addHandler(lines)
    logging.getLogger("trax.cli.live_view").addHandler(lines)

    def read() -> LiveView:
        raise ArithmeticError("of the view")

    view = view_on(screen, read, lines)
    view.start()
    until(lambda: "live view: failed" in capsys.readouterr().err)
    logger.warning("the server goes on")
    view.close()

    logger.removeHandler(lines)
    logging.getLogger("trax.cli.live_view").removeHandler(lines)
    assert "WARNING tests.view: the server goes on\n" in capsys.readouterr().err
    assert screen.text.endswith("\x1b[?25h")


def test_a_terminal_that_is_gone_ends_the_view(screen: Screen, caplog: pytest.LogCaptureFixture) -> None:
    screen.breaks = True

    view = view_on(screen, lambda: QUIET, RecentLines())
    view.start()
    view.close()

    assert caplog.messages == ["live view: failed and is off; the server continues"]
