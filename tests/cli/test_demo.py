"""The demo as a newcomer meets it."""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.support import preloaded
from tests.support.preloaded import TRAX
from tests.support.terminal import CTRL_C, terminal

if TYPE_CHECKING:
    from pathlib import Path

LINE: Final = re.compile(
    r"^(\w+) +(\d+) +(\d+) +(\d+) +(\d+) +(?:[\d.]+ s|-) +(?:[\d.]+ s|-)(?: +(\d+))?$", re.MULTILINE
)
COUNTED: Final = """
SELECT train, count(*), sum(state = 'completed'), sum(state = 'failed'), sum(attempt > 1)
FROM trax_metadata WHERE train NOT LIKE 'trax.%' AND id > ? GROUP BY train
"""
OVERLAPPING: Final = """
SELECT max(many) FROM (
  SELECT (SELECT count(*) FROM trax_metadata b WHERE b.train = 'send_email'
          AND b.started_at <= a.started_at AND coalesce(b.ended_at, '9') > a.started_at) AS many
  FROM trax_metadata a WHERE a.train = 'send_email')
"""


def demo(folder: Path, seconds: float) -> str:
    """What it tells a pipe."""
    ended = preloaded.run([TRAX, "demo", "--seconds", str(seconds)], cwd=folder)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def asked(folder: Path, question: str, *given: Any) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "trax-demo" / "trax.db")) as connection:
        return connection.execute(question, given).fetchall()


def reported(told: str) -> dict[str, tuple[int, ...]]:
    return {line[0]: tuple(map(int, line[1:5])) for line in LINE.findall(told)}


@pytest.fixture(scope="module")
def visited(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """One visit, long enough for a dead letter and for a retry that succeeds."""
    folder = tmp_path_factory.mktemp("demo")
    return folder, demo(folder, 6)


@pytest.fixture
def revisited(visited: tuple[Path, str], tmp_path: Path) -> tuple[Path, str]:
    """The same visit, in a folder that may be changed."""
    folder, told = visited
    return shutil.copytree(folder, tmp_path / "again"), told


def test_the_report_agrees_with_the_records(visited: tuple[Path, str]) -> None:
    folder, told = visited

    counted = {train: tuple(numbers) for train, *numbers in asked(folder, COUNTED, 0)}

    assert reported(told) == counted
    assert counted["send_email"][0] > 10
    assert counted["sync_warehouse"][:4] == (3, 1, 2, 2)
    assert counted["convert_prices"][:4] == (2, 0, 2, 1)
    assert {
        "extract_sales",
        "transform_sales",
        "publish_report",
        "order_goods",
        "roast_beans",
    } <= counted.keys()


def test_the_limit_that_was_kept_is_measured(visited: tuple[Path, str]) -> None:
    folder, told = visited

    ((most,),) = asked(folder, OVERLAPPING)

    assert most == 3
    assert f"At most {most} emails were sent at once; their limit is 3." in told


def test_the_dead_letter_comes_with_commands_that_work(revisited: tuple[Path, str]) -> None:
    folder, told = revisited

    shown, queued = typed(folder, told, "show it"), typed(folder, told, "requeue it")

    assert "trax-demo/rates.csv is missing" in shown
    assert queued == "requeued: 1 of 1\n"


def typed(folder: Path, told: str, after: str) -> str:
    """What a command answers that stands behind these words."""
    (line,) = (line for line in told.splitlines() if line.startswith(f"  {after} "))
    _, *words = line.removeprefix(f"  {after} ").split()
    return preloaded.run([TRAX, *words], cwd=folder, check=True).stdout


def test_a_pipe_gets_plain_lines(visited: tuple[Path, str]) -> None:
    _, told = visited

    assert "\x1b" not in told
    assert "company, for 6 s" in told
    assert re.search(r"^\d\d:\d\d:\d\d  \d+ ready, \d+ delayed, \d+ running, ", told, re.MULTILINE)
    assert told.endswith("All records are in trax-demo/trax.db. The next run adds to them.\n")


def test_a_second_visit_counts_only_itself(revisited: tuple[Path, str]) -> None:
    folder, _ = revisited
    ((last,),) = asked(folder, "SELECT max(id) FROM trax_metadata")
    (folder / "trax-demo" / "rates.csv").write_text("EUR,1.00\n", encoding="utf-8")

    told = demo(folder, 3)

    counted = {train: tuple(numbers) for train, *numbers in asked(folder, COUNTED, last)}
    assert reported(told) == counted
    assert counted["convert_prices"][2] == 0


def test_a_demo_in_a_terminal_runs_until_ctrl_c_and_prints_its_report(tmp_path: Path) -> None:
    with terminal([TRAX, "demo"], folder=tmp_path) as seen:
        seen.shows("company, until Ctrl-C", "6 slots: send_email ×3", "1 waiting; see")  # noqa: RUF001
        seen.types(CTRL_C)
        assert seen.ended() == 0

    report = seen.text[seen.text.index("Results of") :]
    assert reported(report) == {train: tuple(numbers) for train, *numbers in asked(tmp_path, COUNTED, 0)}


def test_a_folder_that_cannot_be_created_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()

    ended = preloaded.run([TRAX, "demo", "--folder", "taken"], cwd=tmp_path)

    assert (ended.returncode, ended.stderr) == (
        1,
        "trax: folder 'taken' cannot be created: File exists; choose another with --folder\n",
    )
