"""A queue of SQS and its consumer keep the contract of engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.scenarios import CROWD, TURNS
from tests.support.sqs_engine import SqsEngine

from trax.testing.submitter_contract import SCENARIOS, Scenario, Workspace, name_of, play

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.amazon import Amazon


@pytest.mark.parametrize("scenario", TURNS, ids=name_of)
async def test_a_consumer_keeps_the_contract(
    scenario: Scenario, amazon: Amazon, postgres_url: str, tmp_path: Path
) -> None:
    engine = SqsEngine(amazon.endpoint, amazon.queue("jobs"))

    await play(scenario, engine, Workspace(postgres_url, tmp_path, crowd=CROWD))


async def test_a_fifo_queue_delivers_many_runs(amazon: Amazon, postgres_url: str, tmp_path: Path) -> None:
    engine = SqsEngine(amazon.endpoint, amazon.queue("jobs.fifo"))

    await play(SCENARIOS[-1], engine, Workspace(postgres_url, tmp_path, crowd=CROWD))
