"""Runs that are under way while an operator looks."""

from __future__ import annotations

import asyncio
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.support.preloaded import TRAX, PreloadedProcess
from tests.support.results import run_result

from trax.clock import utc_now
from trax.records import LogLevel, State
from trax.records.metadata import NewLogLine, NewRun
from trax.store import Store
from trax.store.runs import metadata, run_log

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.cli.conftest import Railway
    from tests.support.operator import Operator


class UnderWay:
    """A run that some server executes."""

    def __init__(self, url: str) -> None:
        self.store = Store(url)
        self.id = self.store.run(metadata.begin, NewRun(external_id="r", train="greet"), now=utc_now())

    def says(self, message: str) -> None:
        line = NewLogLine(
            metadata_id=self.id,
            created_at=utc_now(),
            level=LogLevel.WARNING,
            logger="jobs",
            message=message,
        )
        self.store.run(run_log.add, [line])

    def ends(self, state: State) -> None:
        ending = run_result(self.id, state)
        self.store.run(metadata.finish, [ending], now=utc_now())


@pytest.fixture
def run(trains: Railway, file_url: str) -> Generator[UnderWay]:
    asyncio.run(trains.runs())
    under_way = UnderWay(file_url)
    yield under_way
    under_way.store.close()


def test_lines_of_a_run_are_printed_while_it_runs(run: UnderWay, file_url: str) -> None:
    words = [TRAX, "executions", "follow", str(run.id), "--database-url", file_url]
    run.says("one")

    with PreloadedProcess(words, stdout=subprocess.PIPE) as following:
        assert following.stdout
        first = following.stdout.readline()
        run.says("two")
        second = following.stdout.readline()
        run.says("three")
        run.ends(State.COMPLETED)
        rest, _ = following.communicate(timeout=60)

    assert (first[-4:], second[-4:]) == ("one\n", "two\n")
    assert rest.splitlines()[0].endswith("three")
    assert rest.splitlines()[1:] == [f"run {run.id} of greet completed"]
    assert following.returncode == 0


def test_cancelling_a_run_in_progress_requests_its_cancellation(run: UnderWay, operator: Operator) -> None:
    told = operator("executions", "cancel", str(run.id))

    assert (told.code, told.out) == (0, f"cancelled, or cancellation requested: 1 of 1 ({run.id})\n")
    assert operator.json("executions", "show", str(run.id))["cancel_requested"] is True


def test_a_followed_run_that_fails_is_one_document_for_programs(run: UnderWay, operator: Operator) -> None:
    run.says("one")
    run.ends(State.FAILED)

    told = operator("executions", "follow", str(run.id), "--json")

    assert told.code == 1
    assert told.out.startswith('{\n  "id": ')
    assert '"state": "failed"' in told.out
